"""Commands and a real hub: started by them, killed under them, stopped, broken."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]


@contextmanager
def listening(agent: Agent, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that listens, and is connected to the hub."""
    process = agent.start("listen", *words)
    try:
        agent.wait_until(lambda: agent.session in connected(agent))
        yield process
    finally:
        process.kill()
        process.communicate()


def connected(agent: Agent) -> list[str]:
    """Who the hub says is connected."""
    try:
        return list(json.loads(Path(agent.paths.peers).read_bytes())["active_sessions"])
    except (OSError, ValueError):
        return []


def next_line(stream: IO[bytes] | None) -> dict[str, Any]:
    """The next JSON line of a process (whose pipes are not buffered here)."""
    assert stream is not None
    assert select.select((stream,), (), (), 60.0)[0], "the line did not come"
    return dict(json.loads(stream.readline()))


def order(process: subprocess.Popen[bytes], **fields: Any) -> None:
    """Write a line to a listener's standard input."""
    assert process.stdin
    process.stdin.write(json.dumps({"action": "send", **fields}).encode() + b"\n")
    process.stdin.flush()


def hubs_of(agent: Agent) -> list[int]:
    """Every hub process that serves the agent's directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"daemon" in words and os.fsencode(agent.base) in words:
                found.append(int(entry.name))
    return found


# -- two agents -------------------------------------------------------------------------------


def test_two_agents_talk_through_a_hub_that_nobody_started(agent: Make) -> None:
    """The first command starts it; a message is stored, and read once."""
    ann, bob = agent("ann"), agent("bob")
    assert bob.run("init").ok()["transport"] == "hub"
    sent = ann.run("send", "--to", "bob", stdin="`hi` $(bob) 👋\n".encode()).ok()
    assert (sent["status"], sent["state"], sent["live"], sent["known"]) == (
        "sent",
        "stored",
        0,
        True,
    )
    assert sent["level"] in ("disk", "process")
    shown = bob.run("poll").ok()
    assert [one["payload"]["text"] for one in shown["messages"]] == ["`hi` $(bob) 👋\n"]
    assert shown["messages"] == [sent["envelope"] | {"age": "just now"}]
    assert bob.run("poll").ok()["count"] == 0
    assert len(hubs_of(ann)) == 1


def test_a_broadcast_reaches_everybody_but_its_sender(agent: Make) -> None:
    """Without a hub running at first."""
    ann, bob, cem = agent("ann"), agent("bob"), agent("cem")
    for one in (ann, bob, cem):
        one.run("poll").ok()
    assert ann.run("send", "--text", "all").ok()["recipients"] == 2
    assert (bob.texts(), cem.texts(), ann.texts()) == (["all"], ["all"], [])


def test_a_message_sent_again_by_its_id_is_stored_once(agent: Make) -> None:
    """And other content under the same id is refused: status 65."""
    ann, bob = agent("ann"), agent("bob")
    words = ("send", "--to", "bob", "--id", "msg_000000000001", "--text")
    assert ann.run(*words, "one").ok().get("duplicate") is None
    assert ann.run(*words, "one").ok()["duplicate"] is True
    ended = ann.run(*words, "two")
    assert (ended.status, ended.result["code"]) == (65, "MESSAGE_ID_REUSE")
    assert bob.texts() == ["one"]


def test_a_stranger_is_warned_about_and_refused_when_strict(agent: Make) -> None:
    """With the names that were perhaps meant."""
    ann = agent("ann")
    agent("seven-of-nine").run("init").ok()
    ended = ann.run("send", "--to", "seven-of-nein", "--text", "x")
    assert ended.ok()["known"] is False
    assert ended.result["nearest"] == ["seven-of-nine"]
    assert "did you mean 'seven-of-nine'?" in ended.err
    ended = ann.run("send", "--to", "seven-off-nine", "--text", "x", "--strict")
    assert (ended.status, ended.result["code"]) == (68, "TARGET_NOT_FOUND")
    assert "did you mean 'seven-of-nine'" in ended.err
    assert not os.path.exists(ann.paths.inbox("seven-off-nine"))


def test_peers_shows_who_listens_and_who_was_here(agent: Make) -> None:
    """The one who asks is neither."""
    ann, bob = agent("ann"), agent("bob")
    ann.run("init").ok()
    with listening(bob):
        result = ann.run("peers").ok()
        assert [row["session"] for row in result["sessions"]] == ["bob"]
        assert result["hub"]["pid"] == ann.hub_pid()
        assert "bob" not in result["absent"]


# -- listening --------------------------------------------------------------------------------


def test_a_listener_shows_what_lies_unread_and_then_what_comes(agent: Make) -> None:
    """Each once, in order, and none of it is left to poll."""
    ann, bob = agent("ann"), agent("bob")
    ann.run("send", "--to", "bob", "--text", "before").ok()
    with listening(bob) as ear:
        assert next_line(ear.stdout)["payload"]["text"] == "before"
        sent = ann.run("send", "--to", "bob", "--text", "live").ok()
        assert sent["live"] == 1
        assert next_line(ear.stdout) == sent["envelope"] | {"age": "just now"}
        bob.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0)


def test_a_session_sends_while_it_listens(agent: Make) -> None:
    """By another command, and by lines on standard input; bad lines end nothing."""
    ann, bob = agent("ann"), agent("bob")
    with listening(bob) as ear:
        assert bob.run("send", "--to", "ann", "--text", "by command").ok()["state"] == "stored"
        order(ear, to="ann", text="by line", reply_to="msg_1")
        report = next_line(ear.stderr)
        assert (report["status"], report["state"], report["envelope"]["to_session"]) == (
            "sent",
            "stored",
            "ann",
        )
        assert ear.stdin
        ear.stdin.write(b"nonsense\n")
        order(ear, to="ann", text="nobody", strict=True)
        order(ear, to="a" * 200, text="x")
        ear.stdin.close()
        ear.stdin = None
        codes = [next_line(ear.stderr)["code"] for _ in range(3)]  # as they become known
        assert sorted(codes) == ["BAD_JSON", "BAD_SESSION_ID", "TARGET_NOT_FOUND"]
        ann.run("send", "--to", "bob", "--text", "still there?").ok()
        assert next_line(ear.stdout)["payload"]["text"] == "still there?"
    assert ann.texts() == ["by command", "by line"]


def test_listening_once_leaves_the_rest_to_the_next(agent: Make) -> None:
    """And without any message it ends with the time, which is no failure."""
    ann, bob = agent("ann"), agent("bob")
    ended = bob.run("listen", "--once", "--timeout", "0.3")
    assert (ended.status, ended.out) == (0, b"")
    ann.run("send", "--to", "bob", "--text", "one").ok()
    ended = bob.run("listen", "--once", "--timeout", "20")
    assert (ended.status, ended.result["payload"]["text"]) == (0, "one")
    assert bob.run("poll").ok()["count"] == 0


def test_a_second_listener_of_a_session_is_refused(agent: Make) -> None:
    """Status 77, and what to do instead."""
    bob = agent("bob")
    with listening(bob):
        ended = bob.run("listen", "--timeout", "20")
        assert (ended.status, ended.result["code"]) == (77, "SESSION_COLLISION")
        assert "another --session" in ended.err


def test_a_listener_ends_quietly_when_its_reader_goes(agent: Make) -> None:
    """Status 0, no words, and nobody counts as live who shows nothing."""
    bob = agent("bob")
    with listening(bob) as ear:
        assert ear.stdout
        ear.stdout.close()
        assert ear.wait(60) == 0
        assert ear.stderr
        assert ear.stderr.read() == b""
        ear.stdout = None


def test_a_listener_goes_on_through_the_death_of_its_hub(agent: Make) -> None:
    """Nothing is lost and nothing shown twice."""
    ann, bob = agent("ann"), agent("bob")
    with listening(bob) as ear:
        for number in range(4):
            ann.run("send", "--to", "bob", "--text", str(number)).ok()
            if number % 2:
                os.kill(bob.hub_pid(), signal.SIGKILL)
        assert [next_line(ear.stdout)["payload"]["text"] for _ in range(4)] == list("0123")
        bob.wait_until(lambda: "bob" in connected(bob))
        ann.run("send", "--to", "bob", "--text", "last").ok()
        assert next_line(ear.stdout)["payload"]["text"] == "last"


# -- hubs that die, stop or do not start ------------------------------------------------------


def test_a_hub_killed_between_two_sends_is_replaced(agent: Make) -> None:
    """The second message still arrives, once."""
    ann, bob = agent("ann"), agent("bob")
    ann.run("send", "--to", "bob", "--text", "one").ok()
    first = ann.hub_pid()
    os.kill(first, signal.SIGKILL)
    sent = ann.run("send", "--to", "bob", "--text", "two").ok()
    assert (sent["status"], sent["state"]) == ("sent", "stored")
    assert ann.hub_pid() != first
    assert bob.texts() == ["one", "two"]


def test_a_stopped_hub_is_named_and_gone_around(
    agent: Make, stopped: Callable[[int], None]
) -> None:
    """The message is in the file within seconds; the hub, resumed, pushes it once."""
    ann, bob = agent("ann"), agent("bob")
    with listening(bob) as ear:
        bob.wait_until(lambda: os.path.exists(bob.paths.inbox("bob")))  # the hub has made it
        pid = bob.hub_pid()
        stopped(pid)
        begun = time.monotonic()
        ended = ann.run("send", "--to", "bob", "--text", "around")
        assert time.monotonic() - begun < 20
        result = ended.ok()
        assert (result["status"], result["cause"]) == ("spooled_offline", "silent")
        assert f"pid {pid}" in ended.err
        assert f"kill -CONT {pid}" in ended.err
        waits = ann.run("send", "--text", "everybody")
        assert (waits.ok()["state"], waits.ok()["cause"]) == (None, "silent")
        assert "left for the hub in its own inbox file instead" in waits.err
        os.kill(pid, signal.SIGCONT)
        heard = {next_line(ear.stdout)["payload"]["text"] for _ in range(2)}
        assert heard == {"around", "everybody"}
        ann.run("send", "--to", "bob", "--text", "after").ok()
        assert next_line(ear.stdout)["payload"]["text"] == "after"


def test_twenty_commands_on_a_fresh_channel_start_one_hub(agent: Make) -> None:
    """All of them get through it."""
    agents = [agent(f"a{number}") for number in range(20)]
    started = [one.start("send", "--to", "sink", "--text", one.session) for one in agents]
    ended = [(one.communicate(timeout=60), one.returncode) for one in started]
    results = [json.loads(out) for (out, _err), _status in ended]
    assert [status for _, status in ended] == [0] * 20
    assert {result["status"] for result in results} == {"sent"}
    assert hubs_of(agents[0]) == [agents[0].hub_pid()]
    assert sorted(agent("sink").texts()) == sorted(one.session for one in agents)


def test_a_hub_that_cannot_make_its_socket_says_so(agent: Make) -> None:
    """Status 73 and its last words, where a hub is needed; direct messages go to the file."""
    ann = agent("ann")
    ann.run("poll").ok()
    os.mkdir(ann.paths.socket)
    ended = ann.run("init")
    assert ended.status == 73
    assert "last words" in ended.err
    assert "hub.sock" in ended.err
    assert ann.paths.spawn_output in ended.result["remedy"]
    sent = ann.run("send", "--to", "ann", "--text", "x")
    assert sent.ok()["status"] == "spooled_offline"
    assert "last words" in sent.err


def test_a_hub_that_breaks_at_import_shows_its_last_words(agent: Make, tmp_path: Path) -> None:
    """A missing or broken module is not a riddle: the line, and the file with the rest."""
    ann = agent("ann")
    broken = tmp_path / "path" / "twisted"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('this installation is broken')\n")
    ann.environ["PYTHONPATH"] += os.pathsep + str(broken.parent)
    ended = ann.run("send", "--text", "x")
    assert ended.status == 69
    assert "this installation is broken" in ended.err
    assert ann.paths.spawn_output in ended.err


def test_a_hub_started_by_hand_takes_the_options_before_the_verb(agent: Make) -> None:
    """And is the one that commands find."""
    ann = agent("ann")
    words = ("--dir", str(ann.base), "--channel", "default", "daemon")
    with subprocess.Popen(
        ann.command(*words), env=ann.environ | {"INTERCOM_DIR": "/nowhere"}, cwd="/"
    ) as hub:
        try:
            ann.environ["INTERCOM_NO_SPAWN"] = "1"
            ann.wait_until(lambda: os.path.exists(ann.paths.socket))
            assert ann.run("peers").ok()["hub"]["pid"] == hub.pid
        finally:
            hub.terminate()
        assert hub.wait(60) == 0


def test_a_hub_that_does_not_answer_is_no_running_hub(
    agent: Make, stopped: Callable[[int], None]
) -> None:
    """Who takes a place is told so, with the pid and what helps; through the files all goes on."""
    ann, bob = agent("ann"), agent("bob")
    ann.run("init", "--name", "ann").ok()
    pid = ann.hub_pid()
    stopped(pid)
    begun = time.monotonic()
    ready = bob.run("init", "--name", "bob")
    assert time.monotonic() - begun < 20
    assert (ready.ok()["session_id"], ready.result["transport"]) == ("bob", "spool")
    assert f"(pid {pid}) accepts connections but does not answer" in ready.err
    assert f"kill -CONT {pid}" in ready.err


def test_the_sender_to_a_locked_inbox_is_told_which_file_it_is(agent: Make) -> None:
    """So that what keeps it locked can be found with the command that is named."""
    ann = agent("ann")
    ann.run("send", "--to", "bob", "--text", "one").ok()
    inbox = ann.paths.inbox("bob")
    with open(inbox, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        refused = ann.run("send", "--to", "bob", "--text", "two")
    assert (refused.status, refused.result["code"]) == (75, "INBOX_LOCKED")
    assert refused.result["remedy"] == (
        f"see which program holds it: fuser -v {inbox}; then send again"
    )
    ann.run("send", "--to", "bob", "--text", "three").ok()


def test_a_spawned_hub_belongs_to_nobody(agent: Make) -> None:
    """It runs in a session of its own, in the root directory, and knows no agent's identity."""
    ann = agent("ann")
    ann.run("init", CLAUDE_CODE_SESSION_ID="secret", CODEX_HOME="/x").ok()
    pid = ann.hub_pid()
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    names = {entry.split(b"=")[0] for entry in environ}
    assert not names & {b"INTERCOM_SESSION", b"CLAUDE_CODE_SESSION_ID", b"CODEX_HOME"}
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert ann.run("peers").ok()["hub"]["idle_exit"] == 600
