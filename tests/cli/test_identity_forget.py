"""``forget``: a name goes, its mail is told of first, and nothing is lost without a word."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client import claims
from intercom.client.erasing import Traces
from intercom.client.forgetting import forget
from intercom.client.identity import Names
from intercom.client.offline import store_offline
from intercom.client.outbox import compose
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def api(agent: Make) -> Agent:
    """A project whose commands may not start a hub, and come from one agent's session."""
    made = agent("api")
    del made.environ["INTERCOM_SESSION"]
    made.environ |= {"INTERCOM_NO_SPAWN": "1", "CODEX_THREAD_ID": "me"}
    return made


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    """The channel of tests that run no commands."""
    found = ChannelPaths(str(channel_dir), "default")
    found.prepare()
    return found


def names_of(paths: ChannelPaths, project: Path) -> Names:
    """The names of a project, as one agent's session asks for them."""
    environ = {"CODEX_THREAD_ID": "me", "INTERCOM_TRANSPORT": "spool"}
    return Names(paths, str(project), environ)


def put(paths: ChannelPaths, to: str, message_id: str, text: str = "x") -> bool | None:
    """Leave a message in an inbox file; whether the recipient was known."""
    letter = compose(paths, "ann", to, {"text": text}, message_id=message_id)
    trouble = HubUnavailable("no hub", details={"cause": "absent"})
    return store_offline(paths, letter, trouble).known


def ids(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["id"] for line in lines]


def files_of(paths: ChannelPaths, session: str) -> list[str]:
    return sorted(name for name in os.listdir(paths.directory) if session in name)


# -- as a command -----------------------------------------------------------------------------


def test_a_forgotten_name_tells_what_was_unread_and_leaves_nothing(api: Agent) -> None:
    """On the channel or in the project; the next command takes a name as if it were the first."""
    name = api.run("init").ok()["session_id"]
    for text in ("read", "one", "two"):
        api.run("send", "--session", "ann", "--to", name, "--text", text).ok()
        if text == "read":
            api.run("poll").ok()
    told = api.run("forget", name).ok()
    assert (told["status"], told["session"], told["unread"]) == ("forgotten", name, 2)
    assert told["senders"] == {"ann": 2}
    assert [one["payload"]["text"] for one in told["messages"]] == ["one", "two"]
    assert files_of(api.paths, name) == []
    assert json.loads((api.project / ".intercom" / "session.json").read_text())["names"] == []
    ended = api.run("forget", name)
    assert (ended.status, ended.result["code"]) == (68, "TARGET_NOT_FOUND")
    again = api.run("init").ok()
    assert (again["session_id"], again["is_sticky"], again["skipped"]) == (name, False, 0)


def test_on_a_terminal_it_is_told_in_words(api: Agent) -> None:
    """Framed as poll frames it; of many the first are shown, and all are counted."""
    api.run("poll", INTERCOM_SESSION="bob").ok()
    for number in range(60):
        put(api.paths, "bob", f"m{number}", f"text {number}")
    text = api.run("forget", "bob", "--format", "text").out.decode()
    assert "]\ntext 49\n[/intercom " in text
    assert "text 50" not in text
    assert "(10 more)" in text
    assert "bob is forgotten; 60 messages were unread" in text
    api.run("poll", INTERCOM_SESSION="eve").ok()
    text = api.run("forget", "eve", "--format", "text").out.decode()
    assert text == "eve is forgotten; nothing was unread\n"


def test_a_mistyped_name_is_not_forgotten(api: Agent) -> None:
    """It is said which was perhaps meant."""
    api.run("poll", INTERCOM_SESSION="seven-of-nine").ok()
    ended = api.run("forget", "seven-of-nein")
    assert (ended.status, ended.result["nearest"]) == (68, ["seven-of-nine"])
    assert api.run("forget", "hub").status == 65
    assert files_of(api.paths, "nein") == []


@pytest.mark.parametrize("sockets", [True, False])
def test_a_name_that_somebody_uses_is_not_forgotten(api: Agent, sockets: bool) -> None:
    """Connected, or listening on the file; with its end it can be."""
    if sockets:
        del api.environ["INTERCOM_NO_SPAWN"]
    else:
        api.environ["INTERCOM_TRANSPORT"] = "spool"
    name = api.run("init").ok()["session_id"]
    with api.start("listen") as ear:
        api.wait_until(lambda: api.run("name", "--all").ok()["names"][0]["live"])
        ended = api.run("forget", name)
        assert (ended.status, ended.result["code"]) == (77, "SESSION_COLLISION")
        assert "intercom" in ended.result["remedy"]
        ear.kill()
    if sockets:
        told = api.paths.peers
        api.wait_until(lambda: name not in json.loads(Path(told).read_bytes())["active_sessions"])
    assert api.run("forget", name).ok()["unread"] == 0


def test_what_could_not_be_told_is_not_lost(api: Agent) -> None:
    """A closed pipe, a full disk: forgetting it again tells it again."""
    api.run("poll", INTERCOM_SESSION="bob").ok()
    put(api.paths, "bob", "m1", "precious")
    with open("/dev/full", "wb") as full:
        ended = api.start("forget", "bob", stdout=full)
        ended.communicate()
    assert ended.returncode == 74
    put(api.paths, "bob", "m2", "later")
    told = api.run("forget", "bob").ok()
    assert [one["id"] for one in told["messages"]] == ["m1", "m2"]
    assert api.run("forget", "bob").status == 68


def test_a_hub_knows_at_once_who_was_forgotten(agent: Make) -> None:
    """It says so to whoever writes to the name then, and lists it no longer."""
    ann, bob = agent("ann"), agent("bob")
    bob.run("init").ok()
    assert ann.run("send", "--to", "bob", "--text", "before").ok()["known"] is True
    assert ann.run("forget", "bob").ok()["unread"] == 1
    for _ in range(2):
        sent = ann.run("send", "--to", "bob", "--text", "after").ok()
        assert (sent["state"], sent["known"]) == ("stored", False)
    strict = ann.run("send", "--to", "bob", "--text", "strict", "--strict")
    assert strict.status == 68
    ann.wait_until(lambda: "bob" not in ann.run("peers").ok()["absent"])
    assert ann.run("send", "--text", "everybody").ok()["recipients"] == 0
    # What came for the name meanwhile waits for whoever takes it.
    assert bob.texts() == ["after", "after"]
    assert ann.run("send", "--to", "bob", "--text", "again").ok()["known"] is True
    with subprocess.Popen(
        bob.command("listen"), stdout=subprocess.PIPE, env=bob.environ, cwd=bob.project
    ) as ear:
        assert ear.stdout
        assert json.loads(ear.stdout.readline())["payload"]["text"] == "again"
        ann.run("send", "--to", "bob", "--text", "live").ok()
        assert json.loads(ear.stdout.readline())["payload"]["text"] == "live"
        ear.kill()


# -- at any moment ----------------------------------------------------------------------------


class Killed(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("step", range(6))
def test_a_crash_at_any_step_loses_nothing(
    paths: ChannelPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Forgetting the name again finishes it, and tells everything that was unread."""
    names = names_of(paths, tmp_path)
    identity = names.speaker()
    identity.hold.close()
    name = identity.session
    with Inbox(paths, name) as inbox:
        inbox.enrol()
        put(paths, name, "read")
        inbox.skip_to_end()
    Path(paths.token(name)).touch()
    put(paths, name, "unread")
    steps = 0

    def dying(real: Callable[..., None]) -> Callable[..., None]:
        def call(*words: str) -> None:
            nonlocal steps
            if steps == step:
                raise Killed
            real(*words)
            steps += 1

        return call

    with monkeypatch.context() as patched:
        patched.setattr("intercom.client.erasing.os.unlink", dying(os.unlink))
        patched.setattr("os.rename", dying(os.rename))
        died = False
        try:
            forget(paths, names, name)
        except Killed:
            died = True
    assert died == (step < 6)
    # Whoever writes between the two is heard, too.
    put(paths, name, "between")
    traces = forget(paths, names_of(paths, tmp_path), name)
    told = ids(list(traces.lines_aside()))
    assert told[-2:] == ["unread", "between"]
    assert set(told) <= {"read", "unread", "between"}
    traces.bury()
    assert files_of(paths, name) == []
    assert names_of(paths, tmp_path).own() is None


def test_of_messages_that_come_at_the_same_moment_none_is_lost_silently(
    paths: ChannelPaths, tmp_path: Path
) -> None:
    """Each was told as unread, or its sender heard that nobody has that name."""
    known: dict[str, bool | None] = {}
    told: list[str] = []
    stop = threading.Event()

    def send(number: int) -> None:
        count = 0
        while not stop.is_set():
            message_id = f"m{number}-{count}"
            known[message_id] = put(paths, "bob", message_id)
            count += 1

    senders = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for sender in senders:
        sender.start()
    names = names_of(paths, tmp_path)
    for _ in range(15):
        with Inbox(paths, "bob") as inbox:
            inbox.enrol()
        traces = forget(paths, names, "bob")
        told += ids(list(traces.lines_aside()))
        traces.bury()
    stop.set()
    for sender in senders:
        sender.join()
    with Inbox(paths, "bob") as inbox:
        left = ids([record.line for record in inbox.read(limit=1 << 24).records])
    assert len(known) > 100
    assert len(told) == len(set(told))
    assert sorted(told + left) == sorted(known)
    assert all(known[message_id] is False for message_id in left)


def test_the_last_words_of_one_who_does_not_look_again_are_heard(paths: ChannelPaths) -> None:
    """Programs of the original mesh write into the file that they had opened, moved or not."""
    with Inbox(paths, "bob") as inbox:
        inbox.enrol()
    put(paths, "bob", "m1")
    line = Path(paths.inbox("bob")).read_bytes().replace(b'"m1"', b'"m2"')
    fd = os.open(paths.inbox("bob"), os.O_WRONLY | os.O_APPEND)
    traces = Traces(paths, "bob")
    traces.put_aside()
    os.write(fd, line)
    os.close(fd)
    assert ids(list(traces.lines_aside())) == ["m1", "m2"]


def test_nobody_begins_to_use_a_name_that_is_being_forgotten(
    paths: ChannelPaths, tmp_path: Path
) -> None:
    """One who comes at that moment waits, and then begins anew."""
    name = names_of(paths, tmp_path).claim("bob").session
    with pytest.raises(IntercomError) as caught:  # it is held by what stands before
        forget(paths, names_of(paths, tmp_path), name)
    assert caught.value.code == "SESSION_COLLISION"
    with claims.alone(paths, "eve") as unused:
        assert unused
        arrived = threading.Thread(target=lambda: claims.hold(paths, "eve").close())
        arrived.start()
        os.unlink(paths.claim("eve"))
    arrived.join()
    assert os.path.exists(paths.claim("eve"))
    assert claims.look(paths, "eve").tree is None


def test_names_that_begin_alike_are_not_mixed_up(paths: ChannelPaths, tmp_path: Path) -> None:
    """Dots belong to names."""
    names = names_of(paths, tmp_path)
    for session in ("a", "a.0.b", "a.7"):
        put(paths, session, f"for {session}")
    left = [forget(paths, names, session) for session in ("a.0.b", "a.7", "a")]
    assert [ids(list(traces.lines_aside())) for traces in left] == [
        ["for a.0.b"],
        ["for a.7"],
        ["for a"],
    ]
