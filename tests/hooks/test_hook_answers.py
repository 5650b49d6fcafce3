"""What a host is answered: golden outputs, and when there are none."""

from __future__ import annotations

import fcntl
import json
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.client.erasing import Traces
from intercom.errors import IntercomError
from intercom.hooks import bell
from intercom.hooks.calls import Surroundings, answer, read_input
from intercom.hooks.hosts import HOSTS
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox
from intercom.spool.turns import Holder, take
from intercom.wire import envelope

NOW = 1_800_000_000.0
CLAUDE = HOSTS["claude"]
#: What a model is told by each event, of the same mail; hosts drop what they do not know.
GOLDEN = {
    "user-prompt-submit": {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": "intercom: 3 unread messages for bob from ann, "
            '"x\\x5d y"; 1 of them waiting for an answer; the oldest 2 min ago; '
            "read with the tool inbox, or in a shell: intercom poll --format text",
        }
    },
    "stop": {
        "hookSpecificOutput": {
            "hookEventName": "Stop",
            "additionalContext": "intercom: 3 unread messages for bob from ann, "
            '"x\\x5d y"; 1 of them waiting for an answer; the oldest 2 min ago; '
            "read with the tool inbox, or in a shell: intercom poll --format text",
        }
    },
}


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    made = ChannelPaths(str(channel_dir), "default")
    made.prepare()
    return made


def put(paths: ChannelPaths, *senders: str, **payload: Any) -> None:
    """Leave messages for bob, whose words must never be seen."""
    with Inbox(paths, "bob") as inbox:
        for sender in senders:
            message_id = envelope.format_id(os.urandom(6))
            line = envelope.make(
                type="chat",
                message_id=message_id,
                from_session=sender,
                to_session="bob",
                channel="default",
                payload={"text": "SECRET", **payload},
                timestamp=envelope.format_timestamp(NOW - 120),
            )
            inbox.append(line, sender=sender, message_id=message_id)


class Bob:
    """The agent whose host calls."""

    def __init__(self, paths: ChannelPaths, project: Path) -> None:
        self.paths = paths
        self.project = project
        self.environ = {"INTERCOM_SESSION": "bob"}

    def hear(self, event: str, **said: Any) -> Any:
        """What one event is answered; for the model, only the text."""
        found = CLAUDE.event(event)
        assert found is not None
        at = Surroundings(self.paths, self.environ, str(self.project), NOW)
        told = answer(CLAUDE, found, said, at)
        assert "SECRET" not in json.dumps(told)
        return told

    def stop(self, going: bool = False) -> str:
        """How many messages the end of a turn tells of, and to whom: ``model 2``."""
        told = self.hear("stop", stop_hook_active=going)
        if not told:
            return ""
        text = told.get("systemMessage") or told["hookSpecificOutput"]["additionalContext"]
        return f"{'user' if 'systemMessage' in told else 'model'} {text.split()[1]}"


@pytest.fixture
def bob(paths: ChannelPaths, tmp_path: Path) -> Bob:
    return Bob(paths, tmp_path)


@pytest.mark.parametrize("event", [event.word for event in CLAUDE.events])
def test_each_event_is_answered_in_its_form(bob: Bob, event: str) -> None:
    """Names, numbers, how to read; no word of a message."""
    put(bob.paths, "ann", "x] y")
    put(bob.paths, "ann", expects_reply=True)
    assert bob.hear(event, stop_hook_active=False) == GOLDEN[event]
    assert bob.hear(CLAUDE.event(event).name) is not None  # type: ignore[union-attr]


@pytest.mark.parametrize("event", ["user-prompt-submit", "stop"])
def test_without_mail_nothing_is_said_or_made(bob: Bob, event: str) -> None:
    assert bob.hear(event) == {}
    assert os.listdir(bob.paths.directory) == []
    put(bob.paths, "ann")
    with Inbox(bob.paths, "bob") as inbox:
        inbox.skip_to_end()
    assert bob.hear(event) == {}
    assert not os.path.exists(bob.paths.bell("bob"))
    gone = Bob(ChannelPaths(bob.paths.base + "/gone", "default"), bob.project)
    assert gone.hear(event) == {}
    assert not os.path.exists(gone.paths.base)


def test_many_are_counted_and_few_named(bob: Bob, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bob.paths, *(f"s{number}" for number in range(7)))
    told = bob.hear("user-prompt-submit")["hookSpecificOutput"]["additionalContext"]
    assert "7 unread messages for bob from s0, s1, s2, s3, 3 others;" in told
    monkeypatch.setattr(bell, "LOOKED_AT", 300)
    told = bob.hear("user-prompt-submit")["hookSpecificOutput"]["additionalContext"]
    assert "over 1 unread message for bob from s0;" in told


# -- the same message is told of once -----------------------------------------------------------


def test_the_end_of_a_turn_tells_of_each_message_once(bob: Bob) -> None:
    """A prompt tells of it again: somebody has asked for something then."""
    put(bob.paths, "ann")
    assert bob.stop() == "model 1"
    assert bob.stop(going=True) == ""
    assert bob.stop() == ""
    assert bob.hear("user-prompt-submit") != {}
    assert bob.hear("user-prompt-submit") != {}
    assert bob.stop() == ""
    put(bob.paths, "ann")
    assert bob.stop() == "model 2"


def test_what_comes_behind_much_that_is_unread_is_told_of(bob: Bob) -> None:
    """Only the beginning is looked at, but that more has come is seen."""
    put(bob.paths, "ann", bulk="x" * bell.LOOKED_AT)
    assert bob.stop() == "model 1"
    assert bob.stop() == ""
    put(bob.paths, "eve")
    assert bob.stop() == "model over"
    assert bob.stop() == ""
    put(bob.paths, "eve")
    assert bob.stop() == "model over"


def test_an_agent_does_not_go_on_for_ever(bob: Bob) -> None:
    """Two that answer each other come to an end: their users decide."""
    for going in (False, True, True):
        put(bob.paths, "ann")
        assert bob.stop(going).startswith("model ")
    for _ in range(2):
        put(bob.paths, "ann")
        assert bob.stop(going=True).startswith("user ")
        assert bob.stop(going=True) == ""
    put(bob.paths, "ann")
    assert bob.stop().startswith("model ")  # another turn
    bob.hear("user-prompt-submit")
    put(bob.paths, "ann")
    assert bob.stop(going=True).startswith("model ")


def test_what_cannot_be_noted_is_not_told_of_on_and_on(
    bob: Bob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a turn, and never to one that goes on already, or does not say so."""
    put(bob.paths, "ann")
    monkeypatch.setattr(bell, "keep", lambda *_: False)
    assert bob.stop() == "model 1"
    assert bob.stop(going=True) == ""
    assert bob.hear("stop") == {}


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"generation":"x"}', b"\xff", b"[" * 9000])
def test_a_damaged_note_counts_as_none(bob: Bob, content: bytes) -> None:
    put(bob.paths, "ann")
    bob.stop()
    with open(bob.paths.bell("bob"), "wb") as file:
        file.write(content)
    assert bob.stop() == "model 1"
    assert bob.stop() == ""


def test_an_inbox_that_begins_anew_is_told_of_anew(bob: Bob) -> None:
    """The places in it are others, with a higher generation."""
    put(bob.paths, "ann", "ann")
    assert bob.stop() == "model 2"
    with Inbox(bob.paths, "bob") as inbox:
        inbox.skip_to_end()
        assert inbox.compact()
    put(bob.paths, "ann")
    assert bob.stop() == "model 1"


# -- whom it is for -----------------------------------------------------------------------------


def name_in(project: Path, caller: str, name: str) -> None:
    """Note a name in a project's map."""
    directory = project / ".intercom"
    directory.mkdir(parents=True, mode=0o700)
    row = {"session": name, "caller": caller, "channel": None, "since": 1.0, "used_at": 1.0}
    book = {"format": 2, "tree": "t", "project": str(project), "base": name}
    text = json.dumps({**book, "names": [{**row, "process": None}]})
    (directory / "session.json").write_text(text)
    (directory / "session.json").chmod(0o600)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, {"session_id": "S", "cwd": "{}/deep"}),
        ({"CLAUDE_PROJECT_DIR": "{}"}, {"session_id": "S", "cwd": "/nowhere"}),
        ({"CLAUDE_CODE_SESSION_ID": "S"}, {"session_id": "resumed"}),
        ({"CLAUDE_CODE_SESSION_ID": "S"}, {"session_id": None, "cwd": 5}),
        ({"CLAUDE_CODE_SESSION_ID": "S", "CURSOR_TRACE_ID": "x"}, {"cwd": "relative"}),
        ({"INTERCOM_SESSION": "bob", "CLAUDE_CODE_SESSION_ID": "other"}, {}),
    ],
)
def test_it_is_for_the_session_s_own_name(
    bob: Bob, environ: dict[str, str], said: dict[str, Any]
) -> None:
    """The name that its commands have, found by what the host says or has set."""
    (bob.project / "deep").mkdir()
    name_in(bob.project, "claude:S", "bob")
    put(bob.paths, "ann")
    tree = str(bob.project)
    bob.environ = {name: value.format(tree) for name, value in environ.items()}
    said = {key: value.format(tree) if key == "cwd" and isinstance(value, str) else value
            for key, value in said.items()}  # fmt: skip
    assert bob.hear("user-prompt-submit", **said) != {}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, {"session_id": "T"}),
        ({}, {}),
        ({"CURSOR_AGENT": "1"}, {"session_id": "S"}),
        ({"CURSOR_VERSION": "3", "CURSOR_TRACE_ID": "x"}, {"session_id": "S"}),
        ({}, {"session_id": "S", "agent_id": "sub"}),
    ],
)
def test_nobody_else_is_told(bob: Bob, environ: dict[str, str], said: dict[str, Any]) -> None:
    """A session without a name, a part of an agent, another host that runs these hooks."""
    name_in(bob.project, "claude:S", "bob")
    put(bob.paths, "ann")
    bob.environ = environ
    assert bob.hear("user-prompt-submit", **said) == {}
    assert not os.path.exists(bob.paths.bell("bob"))


def test_who_reads_anyway_is_not_told(bob: Bob) -> None:
    """A listener has the turn for as long as it runs."""
    put(bob.paths, "ann")
    turn = take(bob.paths, "bob", Holder(1, "intercom listen", NOW))
    assert turn is not None
    assert bob.stop() == ""
    turn.close()
    assert bob.stop() == "model 1"


def test_a_locked_inbox_is_not_waited_for(bob: Bob) -> None:
    """Whoever keeps it, stopped perhaps; the next event tells."""
    put(bob.paths, "ann")
    with open(bob.paths.inbox("bob"), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert bob.stop() == ""
    assert bob.stop() == "model 1"


def test_a_place_that_others_can_write_is_refused(bob: Bob) -> None:
    put(bob.paths, "ann")
    os.chmod(bob.paths.directory, 0o777)
    with pytest.raises(IntercomError, match="others can write"):
        bob.stop()


# -- what a host says ---------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            continue


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([b'{"a":', b'{"b":"}"}', b"}\n"], {"a": {"b": "}"}}),
        ([b"{"], {}),
        ([b"[]"], {}),
        ([b"\xff\xfe"], {}),
        ([b'{"a":1}{'], {}),
        ([], {}),
    ],
)
def test_a_host_is_heard_to_its_end(
    pipe: tuple[int, int], pieces: list[bytes], said: dict[str, Any]
) -> None:
    """What is no JSON object says nothing."""
    ours, theirs = pipe
    for piece in pieces:
        os.write(theirs, piece)
    os.close(theirs)
    assert read_input(ours, within=60) == said


def test_a_host_that_does_not_end_is_not_waited_for(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has said an object, or has said nothing for long enough."""
    ours, theirs = pipe
    os.write(theirs, b'{"session_id":"S"}')
    assert read_input(ours, within=60) == {"session_id": "S"}
    waited: list[float] = []
    monkeypatch.setattr(select, "select", fake_select(waited))
    assert read_input(ours) == {}
    assert len(waited) == 1


def fake_select(waited: list[float]) -> Callable[..., tuple[list[int], list[int], list[int]]]:
    """A wait in which nothing comes, and no time passes."""

    def wait(*args: Any) -> tuple[list[int], list[int], list[int]]:
        waited.append(args[3])
        return [], [], []

    return wait


def test_what_was_told_is_forgotten_with_the_session(bob: Bob) -> None:
    """Nothing of it stays."""
    put(bob.paths, "ann")
    bob.stop()
    assert os.path.exists(bob.paths.bell("bob"))
    Traces(bob.paths, "bob").put_aside()
    assert not os.path.exists(bob.paths.bell("bob"))
