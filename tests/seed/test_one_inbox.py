"""The seed's programs and ours on the same files: inboxes, positions, locks, sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.spool.files import Inbox

Agent = Any  # see tests/conftest.py
Mesh = Any  # see conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def bob(agent: Make) -> Agent:
    """A session that both kinds of programs read."""
    return agent("bob")


def offset_of(mesh: Mesh, session: str = "bob") -> dict[str, Any]:
    """What the offset file says."""
    return dict(json.loads(Path(mesh.paths.offset(session)).read_bytes()))


def fill(mesh: Mesh, *texts: str) -> None:
    """Leave messages, as the original client does without a hub."""
    for text in texts:
        envelope = {"id": f"msg_{text}", "type": "chat", "from_session": "kira"}
        envelope |= {"to_session": "bob", "channel": "default", "reply_to": None}
        mesh.append("bob", **envelope, payload={"text": text}, timestamp="t")


# -- positions --------------------------------------------------------------------------------


def test_polls_of_both_kinds_share_one_position(mesh: Mesh, agent: Make, bob: Agent) -> None:
    """In turns, over messages of both: each is shown once, in order, by whoever comes next."""
    mesh.serve()
    ann = agent("ann")
    readers = [bob.texts, lambda: mesh.poll("bob")]
    shown, sent = [], []
    for number in range(4):
        for text in (f"ours {number} ü", f"theirs {number} 👋"):
            if text.startswith("ours"):
                ann.run("send", "--to", "bob", "--text", text).ok()
            else:
                assert mesh.send("kira", "bob", text)["status"] == "sent"
            sent.append(text)
        shown += readers[number % 2]()
    assert shown == sent
    assert bob.texts() == mesh.poll("bob") == []


def test_a_position_rewritten_by_the_original_counts_and_gets_our_additions_again(
    mesh: Mesh, bob: Agent
) -> None:
    """It drops the generation; the next commit of ours brings it back."""
    fill(mesh, "one")
    assert bob.texts() == ["one"]
    assert offset_of(mesh)["generation"] == 1
    fill(mesh, "two")
    assert mesh.poll("bob") == ["two"]
    assert offset_of(mesh).keys() == {"offset", "updated_at"}
    fill(mesh, "three")
    assert bob.run("poll", "--peek").ok()["position"].startswith("1:")
    assert bob.texts() == ["three"]
    assert offset_of(mesh)["generation"] == 1
    assert offset_of(mesh)["offset"] == os.path.getsize(mesh.paths.inbox("bob"))


def test_both_kinds_reading_at_once_lose_nothing(mesh: Mesh, agent: Make, bob: Agent) -> None:
    """While both kinds write; some may be shown by both, as the original locks no position."""
    mesh.serve()
    ann = agent("ann")
    writers = [
        ann.start("send", "--to", "bob", "--text", f"ours {number}", stdin=subprocess.DEVNULL)
        for number in range(3)
    ] + [mesh.start("client", *sending("bob", f"theirs {number}")) for number in range(3)]
    shown: list[str] = []
    deadline = time.monotonic() + 60
    while len(set(shown)) < 6 and time.monotonic() < deadline:
        theirs = mesh.start("client", "poll", "--session", "bob")
        shown += bob.texts()
        shown += mesh.texts(mesh.result(theirs)["messages"])
    for writer in writers:
        writer.communicate(timeout=60)
    assert sorted(set(shown)) == [f"{who} {n}" for who in ("ours", "theirs") for n in range(3)]
    assert set(bob.texts()) <= set(shown)  # theirs may have put the position back over ours
    assert bob.texts() == []


def sending(to: str, text: str) -> list[str]:
    """The words by which the seed's client sends."""
    return ["send", "--session", f"kira-{text[-1]}", "--to", to, "--text", text]


def test_a_position_that_is_just_being_rewritten_is_waited_for(mesh: Mesh, bob: Agent) -> None:
    """The original empties the file first; that is not the beginning of the inbox."""
    fill(mesh, "one", "two")
    held = mesh.hold("offset")
    poll = mesh.start("client", *held.words, "poll", "--session", "bob")
    held.reached()
    assert os.path.getsize(mesh.paths.offset("bob")) == 0

    def go_on(_seconds: float) -> None:
        held.release()
        mesh.wait_until(lambda: poll.poll() is not None)

    with Inbox(mesh.paths, "bob", sleep=go_on) as inbox:
        batch = inbox.read()
    assert (batch.records, batch.warning) == ([], "")
    assert mesh.texts(mesh.result(poll)["messages"]) == ["one", "two"]


def test_a_position_that_stays_unreadable_skips_nothing(mesh: Mesh, bob: Agent) -> None:
    """Its writer died between the two steps: everything is shown, with a word about it."""
    fill(mesh, "one", "two")
    held = mesh.hold("offset")
    poll = mesh.start("client", *held.words, "poll", "--session", "bob")
    held.reached()
    poll.kill()
    poll.wait()
    shown = bob.run("poll")
    assert mesh.texts(shown.ok()["messages"]) == ["one", "two"]
    assert "damaged" in shown.err
    assert bob.texts() == mesh.poll("bob") == []


# -- an inbox emptied by the original ---------------------------------------------------------


def reset_by(mesh: Mesh, session: str, *options: str) -> list[str]:
    """The words by which the seed's client empties an inbox, as it does at each start."""
    project = mesh.scratch / "reset"
    (project / ".intercom").mkdir(parents=True, exist_ok=True)
    (project / ".intercom" / "session.json").write_text(json.dumps({"session_id": session}))
    return [*options, "init", "--project", str(project)]


@pytest.mark.parametrize("point", ["reset", "offset", "after"])
def test_an_inbox_emptied_by_the_original_is_read_from_its_new_beginning(
    mesh: Mesh, bob: Agent, point: str
) -> None:
    """Seen with the old offset past the end, with none, or with the new one."""
    fill(mesh, "old one", "old two")
    assert bob.texts() == ["old one", "old two"]
    held = mesh.hold(point)
    reset = mesh.start("client", *reset_by(mesh, "bob", *held.words))
    if point == "after":
        assert mesh.result(reset)["session_id"] == "bob"
    else:
        held.reached()
    fill(mesh, "new")
    assert bob.texts() == ["new"]
    held.release()
    reset.wait(60)
    fill(mesh, "newer")
    # Where it had not touched the position yet, it then puts it to the beginning over ours.
    again = ["new"] if point == "reset" else []
    assert bob.texts() == [*again, "newer"]
    assert mesh.poll("bob") == []


def test_a_listener_goes_on_when_the_original_empties_its_inbox(
    mesh: Mesh, agent: Make, bob: Agent
) -> None:
    """Whatever the old positions said, what comes later is shown once, and read once."""
    mesh.serve()
    with mesh.listening(bob) as ours:
        for text in ("one", "two"):
            mesh.send("kira", "bob", text)
        assert mesh.hears(ours, "one", "two")
        mesh.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0)
        taken = mesh.client(*reset_by(mesh, "bob"))["session_id"]
        assert taken != "bob"  # it avoids a name that is published; without that list it would:
        Path(mesh.paths.inbox("bob")).open("w").close()
        Path(mesh.paths.offset("bob")).write_text('{"offset": 0, "reset_at": 1.5}')
        for text in ("three", "four"):
            agent("ann").run("send", "--to", "bob", "--text", text).ok()
        assert mesh.hears(ours, "three", "four")
        mesh.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0)
    assert mesh.texts(mesh.stored("bob")) == ["three", "four"]
    assert bob.texts() == []


# -- torn lines -------------------------------------------------------------------------------


def torn(mesh: Mesh) -> None:
    """Leave half a line of a writer of the seed's that was killed."""
    held = mesh.hold("append")
    writer = mesh.start("client", *held.words, "send", "--session", "kira", "--to", "bob")
    held.reached()
    writer.kill()
    writer.wait()


@pytest.mark.parametrize("with_hub", [True, False], ids=["a hub appends", "a command appends"])
def test_a_torn_line_of_a_killed_original_costs_nothing_but_itself(
    mesh: Mesh, agent: Make, bob: Agent, with_hub: bool
) -> None:
    """Whoever appends next ends it; both kinds of readers find what comes behind it."""
    fill(mesh, "before")
    torn(mesh)
    peek = bob.run("poll", "--peek").ok()
    assert (mesh.texts(peek["messages"]), peek.get("damaged")) == (["before"], None)
    if with_hub:
        mesh.serve()
    words = ("send", "--to", "bob", "--text", "behind")
    assert agent("ann").run(*words, INTERCOM_NO_SPAWN="1").ok()["state"] == "stored"
    shown = bob.run("poll", "--peek").ok()
    assert (mesh.texts(shown["messages"]), shown["damaged"]) == (["before", "behind"], 1)
    assert mesh.poll("bob") == ["before", "behind"]
    assert bob.texts() == []


def test_an_original_reader_that_stands_in_a_torn_line_misses_nothing(
    mesh: Mesh, agent: Make, bob: Agent
) -> None:
    """It reads over the end of the file; nothing that it stands behind is ever cut away."""
    fill(mesh, "before")
    torn(mesh)
    assert mesh.poll("bob") == ["before"]
    mesh.serve()
    agent("ann").run("send", "--to", "bob", "--text", "behind").ok()
    assert mesh.poll("bob") == ["behind"]
    assert bob.texts() == []


# -- who leads --------------------------------------------------------------------------------


def ended(process: subprocess.Popen[bytes]) -> str:
    """Wait for a hub that is not to lead; what it says, for it must end well."""
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return err.decode()


def test_where_the_original_leads_ours_says_so_and_our_commands_use_it(
    mesh: Mesh, agent: Make
) -> None:
    """By the pid that it published, whatever a dead hub of ours wrote into the lock file."""
    dead = mesh.serve()
    dead.kill()
    dead.wait()
    leader = mesh.lead()
    assert f"pid {leader.pid}" in ended(mesh.daemon())
    assert agent("ann").run("init").ok()["transport"] == "hub"
    assert agent("ann").run("send", "--to", "bob", "--text", "x").ok()["status"] == "sent"
    assert mesh.published()["hub_pid"] == leader.pid
    assert leader.poll() is None


def test_where_ours_leads_the_original_ends_and_its_client_uses_ours(mesh: Mesh) -> None:
    """Neither socket nor list of ours is touched by the attempt."""
    leader = mesh.serve()
    before = os.stat(mesh.paths.socket).st_ino
    assert "not leading" in ended(mesh.start("hub"))
    assert os.stat(mesh.paths.socket).st_ino == before
    assert mesh.published()["hub_pid"] == leader.pid
    assert mesh.send("kira", "bob", "x")["status"] == "sent"


def test_of_any_number_of_both_kinds_that_start_at_once_one_leads(mesh: Mesh) -> None:
    """The others end well; the one who is left is the one who is found."""
    hubs = [mesh.daemon() if number % 2 else mesh.start("hub") for number in range(6)]
    mesh.wait_until(lambda: sum(hub.poll() is None for hub in hubs) == 1)
    leader = next(hub for hub in hubs if hub.poll() is None)
    assert [hub.returncode for hub in hubs if hub is not leader] == [0] * 5
    mesh.wait_until(lambda: mesh.published().get("hub_pid") == leader.pid)
    assert mesh.talker().register("ann")["type"] == "welcome"


# -- the original takes files away ------------------------------------------------------------


def test_a_cleanup_of_stale_files_leaves_a_live_hub_alone(mesh: Mesh, bob: Agent) -> None:
    """It finds the socket answering and the lock held."""
    hub = mesh.serve()
    with mesh.listening(bob) as ours:
        assert mesh.client("cleanup", "--stale")["status"] == "stale_cleaned"
        mesh.send("kira", "bob", "x")
        assert mesh.hears(ours, "x")
        assert mesh.published()["hub_pid"] == hub.pid


def test_a_cleanup_of_stale_files_makes_room_after_a_killed_hub(mesh: Mesh, agent: Make) -> None:
    """The next command starts another."""
    hub = mesh.serve()
    hub.kill()
    hub.wait()
    assert mesh.client("cleanup", "--stale")["status"] == "stale_cleaned"
    assert not os.path.exists(mesh.paths.lock)
    assert not os.path.exists(mesh.paths.socket)
    assert agent("ann").run("send", "--to", "bob", "--text", "x").ok()["status"] == "sent"


def test_a_socket_that_the_original_client_deletes_is_there_again_while_it_tries(
    mesh: Mesh, agent: Make, bob: Agent
) -> None:
    """It found the dead one, our hub came, then it deleted ours: its message still goes through.

    It has patience for a second and a half, and our hub looks every second; here it has more,
    for a machine that is busy.
    """
    dead = mesh.serve()
    dead.kill()
    dead.wait()
    held = mesh.hold("unlink")
    words = ["send", "--session", "kira", "--to", "bob", "--text", "late"]
    sender = mesh.start("client", "--patience", "20", *held.words, *words)
    held.reached()
    hub = mesh.serve()
    with mesh.listening(bob) as ours:
        held.release()
        assert mesh.result(sender)["status"] == "sent"
        assert mesh.hears(ours, "late")
        assert agent("ann").run("send", "--to", "bob", "--text", "later").ok()["live"] == 1
        assert mesh.hears(ours, "later")
    assert hub.poll() is None
    assert mesh.published()["hub_pid"] == hub.pid


def test_a_cleanup_of_everything_under_our_hub_is_survived(
    mesh: Mesh, agent: Make, bob: Agent
) -> None:
    """The hub leaves, the listener finds the next one, and what is sent from then on arrives."""
    hub = mesh.serve()
    with mesh.listening(bob) as ours:
        mesh.send("kira", "bob", "before")
        assert mesh.hears(ours, "before")
        mesh.client("cleanup")
        assert hub.wait(60) == 0
        mesh.wait_until(lambda: "bob" in mesh.active())
        assert mesh.published()["hub_pid"] != hub.pid
        assert agent("ann").run("send", "--to", "bob", "--text", "after").ok()["live"] == 1
        assert mesh.hears(ours, "after")
        mesh.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0)  # it has said so
    assert bob.texts() == []


def test_a_hub_that_has_lost_its_lock_file_leaves_its_successors_files_alone(
    mesh: Mesh, agent: Make
) -> None:
    """After a cleanup an original hub takes over at once; ours goes without touching it."""
    hub = mesh.serve()
    mesh.client("cleanup")
    successor = mesh.lead()
    assert hub.wait(60) == 0
    assert mesh.published()["hub_pid"] == successor.pid
    assert agent("ann").run("send", "--to", "bob", "--text", "x").ok()["status"] == "sent"
    assert "kira" in mesh.talker().register("kira")["payload"]["peers"]  # an original's welcome
    assert successor.poll() is None


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_after_the_original_hub_the_next_command_starts_ours(
    mesh: Mesh, agent: Make, bob: Agent, how: int
) -> None:
    """It unlinks lock and socket, or leaves both; the messages stay."""
    hub = mesh.lead()
    mesh.send("kira", "bob", "one")
    hub.send_signal(how)
    hub.wait()
    assert agent("ann").run("send", "--to", "bob", "--text", "two").ok()["level"]
    assert mesh.published()["hub_pid"] == bob.hub_pid() != hub.pid
    assert bob.texts() == ["one", "two"]


def test_an_original_hub_that_unlinks_our_lock_file_costs_no_message(
    mesh: Mesh, agent: Make, bob: Agent
) -> None:
    """It lets go of the lock first, and unlinks it when ours has it: ours makes room."""
    held = mesh.hold()
    slow = mesh.lead(*held.words)
    slow.terminate()
    held.reached()
    hub = mesh.serve()
    ann = agent("ann")
    with mesh.listening(bob) as ours:
        assert ann.run("send", "--to", "bob", "--text", "one").ok()["state"] == "stored"
        held.release()
        slow.wait(60)
        assert ann.run("send", "--to", "bob", "--text", "two").ok()["state"] == "stored"
        assert hub.wait(60) == 0
        assert ann.run("send", "--to", "bob", "--text", "three").ok()["state"] == "stored"
        assert mesh.hears(ours, "one", "two", "three")
        mesh.wait_until(lambda: mesh.published().get("hub_pid") == bob.hub_pid() != hub.pid)
    assert mesh.texts(mesh.stored("bob")) == ["one", "two", "three"]
