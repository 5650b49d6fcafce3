"""What commands do by themselves: options, standard input and output, files, identities."""

from __future__ import annotations

import json
import os
import platform
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.cli.main import run
from intercom.client.roster import ROSTER
from intercom.spool.files import Inbox

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]
MEGABYTE = 1 << 20


@pytest.fixture
def bob(agent: Make) -> Agent:
    """An agent whose commands may not start a hub."""
    made = agent("bob")
    made.environ["INTERCOM_NO_SPAWN"] = "1"
    return made


def offer(to: Agent, *texts: str) -> None:
    """Leave messages in an agent's inbox file."""
    for text in texts:
        sent = to.run("send", "--session", "ann", "--to", "bob", "--text", text)
        assert sent.ok()["status"] == "spooled_offline"


# -- options ----------------------------------------------------------------------------------


def test_options_stand_before_or_after_the_verb(bob: Agent, tmp_path: Path) -> None:
    """After the verb wins; the environment comes last."""
    places = [tmp_path / name for name in ("x", "y")]
    for words in (
        ["--dir", str(places[0]), "--channel", "one", "poll"],
        ["poll", "--dir", str(places[0]), "--channel", "one"],
        [
            "--dir",
            str(places[1]),
            "--channel",
            "two",
            "poll",
            "--channel=one",
            "--dir",
            str(places[0]),
        ],
    ):
        assert bob.run(*words, INTERCOM_CHANNEL="three").ok()["channel"] == "one"
    assert places[0].is_dir()
    assert not places[1].exists()
    assert bob.run("poll", INTERCOM_CHANNEL="three").ok()["channel"] == "three"


def test_a_changed_channel_name_is_said(bob: Agent) -> None:
    """Two spellings could meet by surprise."""
    ended = bob.run("poll", "--channel", "My Team!")
    assert ended.ok()["channel"] == "myteam"
    assert "'My Team!' is called 'myteam'" in ended.err


def test_the_project_decides_who_speaks(bob: Agent, tmp_path: Path) -> None:
    """Unless somebody is named."""
    del bob.environ["INTERCOM_SESSION"]
    other = tmp_path / "other"
    other.mkdir()
    first = bob.run("--project-dir", str(other), "poll").ok()["session"]
    assert first in {one.slug for one in ROSTER}
    assert bob.run("poll", "--project-dir", str(other)).ok()["session"] == first
    assert bob.run("poll", "--session", "me", "--project-dir", str(other)).ok()["session"] == "me"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dance"],
        ["send", "--wrong"],
        ["send", "hello"],
        ["send", "--text", "a", "--file", "b"],
        ["send", "--text", "a", "-"],
        ["send"],
        ["send", "--text", ""],
        ["send", "--text", "a", "--json-payload", "[1]"],
        ["send", "--text", "a", "--json-payload", "{"],
        ["send", "--text", "a", "--json-payload", '{"text":"b"}'],
        ["send", "--file", "/no/such/file"],
        ["send", "--file", "/"],
        ["poll", "--limit", "0"],
        ["ack"],
        ["ack", "--all", "1:0"],
        ["ack", "here"],
    ],
)
def test_wrong_usage_is_status_2_and_says_what_is_right(
    channel_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    """On standard error for people, as an object for programs; and no hub is started for it."""
    monkeypatch.setenv("INTERCOM_DIR", str(channel_dir))
    monkeypatch.setenv("INTERCOM_SESSION", "bob")
    with pytest.raises(SystemExit) as ended:
        run(words)
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert json.loads(out)["status"] == "error"
    assert json.loads(out)["code"] == "USAGE"
    assert err.startswith("intercom: ")
    assert not list(channel_dir.glob("*/hub*"))


def test_a_directory_that_is_not_ours_alone_is_refused(bob: Agent, tmp_path: Path) -> None:
    """Others could have planted files in it."""
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    ended = bob.run("poll", "--dir", str(open_to_all))
    assert ended.status == 77
    assert ended.result["code"] == "UNSAFE_PLACE"
    assert "chmod" in ended.err


def test_a_broken_identity_is_status_78(bob: Agent) -> None:
    """With the way out."""
    del bob.environ["INTERCOM_SESSION"]
    (bob.project / ".intercom").mkdir()
    (bob.project / ".intercom" / "session.json").write_text("{")
    ended = bob.run("poll")
    assert ended.status == 78
    assert "intercom init" in ended.result["remedy"]


# -- what is sent -----------------------------------------------------------------------------


def test_half_a_megabyte_of_anything_arrives_byte_for_byte(bob: Agent) -> None:
    """Backticks, dollars, quotes, emoji, line ends: through standard input nothing touches them."""
    odd = "`rm -rf` $(echo no) \"two\" 'one' \\ \t \r\n 👩\u200d💻 \u2028 \x00 \ufeff ü\n\n"
    body = (odd * (MEGABYTE // 2 // len(odd.encode()))).encode()
    assert len(body) > 500_000
    assert bob.run("send", "--to", "bob", stdin=body).ok()["status"] == "spooled_offline"
    (bob.project / "body").write_bytes(body)
    assert bob.run("send", "--to", "bob", "--file", "body").ok()
    assert bob.run("send", "--to", "bob", "-", stdin=b"x\n").ok()
    assert bob.texts() == [body.decode(), body.decode(), "x\n"]


@pytest.mark.parametrize("size", [MEGABYTE - 100, MEGABYTE + 1, 3 * MEGABYTE])
def test_what_is_too_large_is_refused_with_the_limit_named(bob: Agent, size: int) -> None:
    """And with a way to say it nevertheless."""
    ended = bob.run("send", "--to", "bob", stdin=b"x" * size)
    assert ended.status == 65
    assert ended.result["code"] == "LINE_TOO_LONG"
    assert str(MEGABYTE) in ended.result["message"]
    assert "path" in ended.result["remedy"]


def test_what_is_not_text_is_status_65(bob: Agent) -> None:
    """Nothing is replaced by question marks."""
    ended = bob.run("send", "--to", "bob", stdin=b"a\xffb")
    assert (ended.status, ended.result["code"]) == (65, "BAD_JSON")
    assert bob.run("send", "--to", "bob", "--text", os.fsdecode(b"\xff")).status == 65


def test_a_payload_goes_beside_the_text_or_alone(bob: Agent) -> None:
    """With a text of its own it needs no other."""
    words = ("send", "--to", "bob", "--json-payload")
    assert bob.run(*words, '{"diff":"+1"}', stdin=b"text").ok()
    assert bob.run(*words, '{"diff":"+2"}').ok()
    assert bob.run(*words, '{"text":"inside"}', stdin=b"not read").ok()
    payloads = [one["payload"] for one in bob.run("poll").ok()["messages"]]
    assert payloads == [{"text": "text", "diff": "+1"}, {"diff": "+2"}, {"text": "inside"}]


def test_a_text_that_the_shell_has_eaten_from_is_noticed(bob: Agent) -> None:
    """``--text "run `make` now"`` arrives without its middle."""
    assert "standard input" in bob.run("send", "--to", "bob", "--text", "run  now").err
    assert "standard input" not in bob.run("send", "--to", "bob", "--text", "run it now").err


def test_nobody_is_left_waiting_for_text_that_nobody_types(bob: Agent) -> None:
    """A terminal as standard input is asked for text only with ``-``."""
    ours, theirs = pty.openpty()
    asked = bob.start("send", "--to", "bob", stdin=theirs)
    _out, err = asked.communicate(timeout=60)
    assert asked.returncode == 2
    assert b"--text" in err
    typed = bob.start("send", "--to", "bob", "-", stdin=theirs)
    os.write(ours, b"typed\n\x04")
    typed.communicate(timeout=60)
    assert typed.returncode == 0
    os.close(ours)
    os.close(theirs)
    assert bob.texts() == ["typed\n"]


def test_without_a_hub_strangers_and_broadcasts_have_their_own_status(bob: Agent) -> None:
    """68 for a strict message to nobody, 69 for what only a hub can do."""
    assert bob.run("poll").ok()["count"] == 0
    ended = bob.run("send", "--to", "bobb", "--text", "x")
    assert ended.ok()["known"] is False
    assert "did you mean 'bob'?" in ended.err
    ended = bob.run("send", "--to", "bobb", "--text", "x", "--strict")
    assert ended.status == 68
    assert ended.result["nearest"] == ["bob"]
    ended = bob.run("send", "--text", "x")
    assert ended.status == 69
    assert "INTERCOM_NO_SPAWN" in ended.result["remedy"]
    assert bob.run("peers").status == 69


def test_the_result_of_sending_has_all_its_fields(bob: Agent) -> None:
    """A program finds them whether or not there is a hub."""
    result = bob.run(
        "send", "--to", "bob", "--text", "hi", "--reply-to", "msg_0", "--id", "x1"
    ).ok()
    assert {"status", "state", "level", "live", "known", "nearest", "envelope"} <= result.keys()
    assert result["reason"]
    envelope = result["envelope"]
    assert (envelope["id"], envelope["reply_to"], envelope["from_session"]) == (
        "x1",
        "msg_0",
        "bob",
    )
    assert bob.run("poll").ok()["messages"] == [envelope | {"age": "just now"}]


# -- what is read -----------------------------------------------------------------------------


def test_a_second_poll_is_empty(bob: Agent) -> None:
    """What was shown counts as read."""
    offer(bob, "one", "two")
    assert bob.texts() == ["one", "two"]
    again = bob.run("poll").ok()
    assert (again["count"], again["messages"], again["unread"]) == (0, [], 0)


def test_a_limit_leaves_the_rest(bob: Agent) -> None:
    """And tells how much that is."""
    offer(bob, "one", "two", "three")
    first = bob.run("poll", "--limit", "2").ok()
    assert (first["count"], first["unread"]) == (2, 1)
    assert bob.texts() == ["three"]


def test_peeking_moves_nothing_until_it_is_acknowledged(bob: Agent) -> None:
    """The position that it prints is what ack takes."""
    offer(bob, "one", "two")
    seen = bob.run("poll", "--peek", "--limit", "1").ok()
    assert seen["count"] == 1
    assert bob.run("poll", "--peek").ok()["count"] == 2
    acked = bob.run("ack", seen["position"]).ok()
    assert (acked["position"], acked["unread"]) == (seen["position"], 1)
    assert bob.texts() == ["two"]
    offer(bob, "three")
    assert bob.run("ack", "--all").ok()["unread"] == 0
    assert bob.texts() == []


@pytest.mark.parametrize("position", ["1:3", "1:99999", "7:0"])
def test_a_position_that_is_none_is_refused(bob: Agent, position: str) -> None:
    """Try again with a fresh one: status 75."""
    offer(bob, "one")
    ended = bob.run("ack", position)
    assert (ended.status, ended.result["code"]) == (75, "STALE_POSITION")
    assert bob.texts() == ["one"]


def test_what_could_not_be_written_out_is_not_read(bob: Agent) -> None:
    """A closed pipe, a full disk, a closed standard output: it is shown the next time."""
    offer(bob, "one")
    closed = bob.start("poll")
    assert closed.stdout
    closed.stdout.close()
    _out, err = closed.communicate()
    assert (closed.returncode, err) == (1, b"")
    with open("/dev/full", "wb") as full:
        filled = bob.start("poll", stdout=full)
        _out, err = filled.communicate()
    assert filled.returncode == 74
    assert b"No space" in err
    assert b"Traceback" not in err
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *bob.command("poll")]
    nothing = subprocess.run(
        shell, cwd=bob.project, env=bob.environ, capture_output=True, check=False
    )
    assert nothing.returncode == 74, nothing
    assert bob.texts() == ["one"]


def test_waiting_ends_with_the_first_message(bob: Agent) -> None:
    """Or with the time."""
    begun = time.monotonic()
    waiting = bob.start("poll", "--wait", "200")
    bob.wait_until(lambda: os.path.exists(bob.paths.meta("bob")))
    offer(bob, "one")
    out, _err = waiting.communicate(timeout=60)
    assert json.loads(out)["count"] == 1
    assert time.monotonic() - begun < 100
    assert bob.run("poll", "--wait", "0.1").ok()["count"] == 0


def test_damaged_lines_are_passed_over_and_counted(bob: Agent) -> None:
    """They hide no message."""
    offer(bob, "one")
    with open(bob.paths.inbox("bob"), "ab") as file:
        file.write(b'torn{"id"\n{"id":"a","type":"chat","payload":{"x":NaN}}\n')
    offer(bob, "two")
    result = bob.run("poll").ok()
    assert [one["payload"]["text"] for one in result["messages"]] == ["one", "two"]
    assert result["damaged"] == 2
    assert bob.run("poll").ok().get("damaged") is None


def test_on_a_terminal_messages_are_readable_text(bob: Agent) -> None:
    """And what a body says to the terminal is escaped."""
    offer(bob, "evil \x1b[2J text")
    bob.environ["NO_COLOR"] = "1"
    ours, theirs = pty.openpty()
    bob.start("--json", "poll", "--peek", stdout=theirs).communicate(timeout=60)
    assert json.loads(os.read(ours, 10_000))["count"] == 1
    bob.start("poll", stdout=theirs).communicate(timeout=60)
    text = os.read(ours, 10_000).decode()
    os.close(theirs)
    os.close(ours)
    assert re.match(r"\[intercom \w+ msg_\w+ from ann, ", text)
    assert "\r\n| evil \\x1b[2J text\r\n" in text
    assert "\x1b" not in text


# -- no sockets -------------------------------------------------------------------------------

#: Denies connect(2), as sandboxes of agents do, and becomes the command.
DENY_CONNECT = """
import ctypes, os, struct, sys
number = {"x86_64": 42, "aarch64": 203}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(code), ctypes.addressof(filter))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
    sys.exit(99)
os.execv(sys.executable, [sys.executable, "-m", "intercom", *sys.argv[1:]])
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux",
    reason="the filter is written for Linux on these",
)
def test_in_a_sandbox_without_sockets_messages_go_through_the_files(agent: Make) -> None:
    """The kernel denies connecting: nothing is started, all that files can do is done."""

    bob = agent("bob")
    bob.program = [sys.executable, "-c", DENY_CONNECT]
    ready = bob.run("init")
    if ready.status == 99:
        pytest.skip("this kernel takes no filters")
    assert ready.ok()["transport"] == "spool"
    assert "sandbox" in ready.err
    sent = bob.run("send", "--to", "bob", "--text", "hi").ok()
    assert (sent["status"], sent["cause"]) == ("spooled_offline", "denied")
    assert bob.run("send", "--text", "hi").status == 69
    heard = bob.run("listen", "--once", "--timeout", "20")
    assert heard.status == 0
    assert json.loads(heard.out)["payload"] == {"text": "hi"}
    assert bob.run("poll").ok()["count"] == 0
    assert not os.path.exists(bob.paths.spawn_output)


def test_the_hub_can_be_forbidden(agent: Make) -> None:
    """INTERCOM_TRANSPORT=spool is the sandbox by choice."""
    bob = agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = "spool"
    assert bob.run("send", "--to", "bob", "--text", "hi").ok()["status"] == "spooled_offline"
    assert bob.texts() == ["hi"]
    assert not os.path.exists(bob.paths.spawn_output)


# -- taking a place ---------------------------------------------------------------------------


def test_init_skips_what_is_old_and_deletes_nothing(bob: Agent) -> None:
    """It tells how much was skipped; without --fresh nothing is."""
    offer(bob, "one", "two")
    kept = bob.run("init", "--no-fresh").ok()
    assert (kept["status"], kept["inbox_reset"], kept["skipped"]) == ("ready", False, 0)
    ready = bob.run("init").ok()
    assert (ready["inbox_reset"], ready["skipped"]) == (True, 2)
    assert ready["session_id"] == "bob"
    assert ready["channel"] == "default"
    assert ready["project_dir"] == str(bob.project)
    assert bob.texts() == []
    with Inbox(bob.paths, "bob") as inbox:
        assert inbox.size() > 0


def test_a_project_can_be_given_a_name(bob: Agent) -> None:
    """And keeps it."""
    del bob.environ["INTERCOM_SESSION"]
    assert bob.run("init", "--name", "seven-of-nine").ok()["session_id"] == "seven-of-nine"
    assert bob.run("poll").ok()["session"] == "seven-of-nine"
    assert bob.run("init", "--name", "hub").status == 65


def test_listening_afresh_skips_what_is_old(bob: Agent) -> None:
    """And says how much."""
    offer(bob, "one", "two")
    ended = bob.run("listen", "--fresh", "--timeout", "0.3")
    assert (ended.status, ended.out) == (0, b"")
    assert "2 older messages skipped" in ended.err
