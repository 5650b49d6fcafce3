"""Bridges when hubs die, sockets are denied, hosts leave, and others read the same inbox."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intercom.client import control
from intercom.client.claims import is_used
from intercom.spool.turns import reader_of

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h"}}
Start = Callable[..., Any]
Agent = Callable[[str], Any]
NO_SOCKETS = (
    sys.executable,
    str(Path(__file__).parents[1] / "transport" / "no_sockets.py"),
)


def until(condition: Callable[[], object]) -> None:
    """Wait for something that must become true."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def texts(shown: str) -> list[str]:
    """What the messages of a result say, one line each."""
    return re.findall(r"^\[intercom .*\n(.*)\n\[/intercom", shown, re.MULTILINE)


def test_a_hub_that_is_killed_is_replaced_and_waiting_goes_on(start: Start, agent: Agent) -> None:
    """The bridges come back by themselves; an inbox that waits shows what comes then."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    waiting = bob.begin("inbox", wait_s=45)
    first = agent("ada").hub_pid()
    os.kill(first, signal.SIGKILL)
    assert ada.call("send", to="bob", text="still there?").startswith("sent msg_")
    assert texts(bob.text(waiting)) == ["still there?"]
    until(lambda: "bob: connected" in ada.call("peers"))
    assert agent("ada").hub_pid() != first
    asking = ada.begin("ask", to="bob", text="and now?")
    question = bob.call("inbox", wait_s=30)
    about = re.search(r"reply_to=(msg_\w+)", question)
    assert about is not None
    bob.call("send", to="ada", text="yes", reply_to=about[1])
    assert texts(ada.text(asking)) == ["yes"]


def test_where_sockets_are_denied_the_files_are_used(start: Start, agent: Agent) -> None:
    """Nobody but the sandboxed one notices: it sends, reads, waits, lists, and asks."""
    bob = start("bob")
    bob.be_connected()
    ada = start("ada", through=NO_SOCKETS)
    sent = ada.call("send", to="bob", text="from the sandbox")
    assert re.match(
        r"sent msg_\w+ to bob: stored \(\w+\)\nwithout the hub, through the files", sent
    )
    assert texts(bob.call("inbox", wait_s=30)) == ["from the sandbox"]
    waiting = ada.begin("inbox", wait_s=45)
    bob.call("send", to="ada", text="hello")
    assert texts(ada.text(waiting)) == ["hello"]
    assert "bob: connected" in ada.call("peers")
    assert ada.call("send", to="bbo", text="hm", failed=True).startswith("TARGET_NOT_FOUND: ")
    asking = ada.begin("ask", to="bob", text="how many?", wait_s=40)
    question = bob.call("inbox", wait_s=30)
    assert ", ask, " in question
    about = re.search(r"reply_to=(msg_\w+)", question)
    assert about is not None
    bob.call("send", to="ada", text="42", reply_to=about[1])
    assert texts(ada.text(asking)) == ["42"]
    assert ada.call("inbox") == "nothing unread"
    refused = ada.call("ask", to="eve", text="anybody?", wait_s=40, failed=True)
    assert "TARGET" in refused


def test_where_no_hub_may_be_started_messages_go_on(start: Start) -> None:
    """What needs a hub says so; what does not works."""
    ada = start("ada", INTERCOM_NO_SPAWN="1")
    bob = start("bob", INTERCOM_NO_SPAWN="1")
    bob.call("peers")
    assert "stored" in ada.call("send", to="bob", text="no hub")
    assert texts(bob.call("inbox", wait_s=30)) == ["no hub"]
    for tool, arguments in (("ask", {"to": "bob"}), ("send", {"to": "*"})):
        said = ada.call(tool, text="hello", failed=True, **arguments)
        assert said.startswith("HUB_UNAVAILABLE: ")
        assert "a message to one session needs no hub" in said
    assert "could not be asked" in ada.call("peers")


def test_what_was_not_written_is_shown_again(start: Start) -> None:
    """A bridge that dies with results that its host never took has shown nothing of them."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    for number in range(45):
        ada.call("send", to="bob", text=f"{number} " + "x" * 2000)
    bob.deaf()
    for _ in range(4):
        bob.begin("inbox")  # more than a pipe holds
    until(lambda: bob.waits_to_write())
    bob.process.kill()
    bob.process.wait()
    taken = bob.written()
    again = start("bob")
    shown = [one.split()[0] for one in texts("\n".join(taken))]
    while (more := again.call("inbox")) != "nothing unread":
        shown += [one.split()[0] for one in texts(more)]
    assert shown == [str(number) for number in range(45)]


def test_a_second_bridge_of_a_session_takes_its_place(start: Start) -> None:
    """The newer is connected, the older goes on without; each message is shown by one."""
    ada, old = start("ada"), start("bob")
    old.be_connected()
    ada.call("send", to="bob", text="one")
    new = start("bob")
    new.be_connected()
    ada.call("send", to="bob", text="two")
    shown = texts(new.call("inbox", limit=1)) + texts(old.call("inbox", limit=1))
    assert shown == ["one", "two"]
    assert ada.call("send", to="bob", text="three").endswith(", connected")
    old.process.kill()
    assert texts(new.call("inbox", wait_s=20)) == ["three"]
    assert new.call("send", to="ada", text="fine").startswith("sent")
    waiting = new.begin("inbox", wait_s=40)
    assert ada.call("ask", to="bob", text="there?", wait_s=0).startswith("no answer")
    assert texts(new.text(waiting)) == ["there?"]


def test_a_poll_and_a_listen_of_the_same_session(start: Start, agent: Agent) -> None:
    """What a shell reads is not shown again; while it listens, the bridge stands aside."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    ada.call("send", to="bob", text="for the shell")
    assert agent("bob").texts() == ["for the shell"]
    assert bob.call("inbox") == "nothing unread"
    ada.call("send", to="bob", text="for the tool")
    assert texts(bob.call("inbox")) == ["for the tool"]
    assert agent("bob").texts() == []
    listener = agent("bob").start("listen", "--once")
    try:
        until(lambda: "(intercom listen) reads for this session now" in bob.call("inbox"))
        until(lambda: "bob: connected" in ada.call("peers"))
        ada.call("send", to="bob", text="for the listener")
        out, _err = listener.communicate(timeout=30)
    finally:
        listener.kill()
        listener.communicate()
    assert json.loads(out)["payload"]["text"] == "for the listener"
    ada.call("send", to="bob", text="and for the tool again")
    assert texts(bob.call("inbox", wait_s=20)) == ["and for the tool again"]


def test_a_bridge_ends_with_its_host(start: Start, agent: Agent) -> None:
    """Whatever it waits for, and however it is told; its session is gone from the channel."""
    ada, bob, eve = start("ada"), start("bob"), start("eve")
    bob.be_connected()
    eve.be_connected()
    bob.begin("inbox", wait_s=45)
    eve.begin("ask", to="ada", text="well?")
    assert texts(ada.call("inbox", wait_s=20)) == ["well?"]
    begun = time.monotonic()
    assert bob.leave() == 0
    eve.process.send_signal(signal.SIGTERM)
    assert eve.process.wait(20) == 0
    assert time.monotonic() - begun < 10
    until(lambda: "nobody else is connected" in ada.call("peers"))
    assert not is_used(agent("bob").paths, "bob")
    assert reader_of(agent("eve").paths, "eve") is None


def test_one_that_reads_no_more_ends_it_too(start: Start, agent: Agent) -> None:
    """Standard output is closed at the host's end."""
    agent("ada").run("hub", "start").ok()  # one that the bridge starts would come behind its end
    reading, writing = os.pipe()
    try:
        ada = start("ada", greet=False, stdout=writing)
        ada.ask("initialize", HELLO)
        assert os.read(reading, 1 << 16).startswith(b'{"jsonrpc":"2.0","id":1,"result":')
    finally:
        os.close(writing)
        os.close(reading)
    assert ada.process.wait(30) == 0


def test_the_end_takes_nothing_apart_that_threads_may_hold(agent: Agent) -> None:
    """Threads that block die with the process; to wait for a lock of theirs would never end."""
    witness = (
        "import os, sys; from intercom.cli.main import run\n"
        "class Witness:\n"
        "    def __del__(self): os.write(2, b'taken apart')\n"
        "sys.modules['witness'] = Witness()\n"
        "sys.argv[1:] = ['mcp']\n"
        "run()\n"
    )
    ada = agent("ada")
    ada.run("hub", "start").ok()
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    done = subprocess.run(
        [sys.executable, "-c", witness],
        input=json.dumps(opening).encode() + b"\n",
        capture_output=True,
        cwd=ada.project,
        env=ada.environ,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["id"] == 1


def test_calls_in_a_pipeline_are_answered_before_the_end(start: Start) -> None:
    """``printf ... | intercom mcp`` says what it has done."""
    ada = start("ada")
    calls = [ada.begin("send", to="ada", text="a note"), ada.begin("peers")]
    mail = ada.begin("inbox", wait_s=30)
    listed = ada.ask("tools/list")
    assert ada.leave() == 0
    assert len(ada.answer(listed)["result"]["tools"]) == 4
    assert ada.text(calls[0]).startswith("sent ")
    assert ada.text(calls[1]).startswith("you are ada")
    again = start("ada")
    assert texts(again.call("inbox")) == ["a note"]
    assert mail


def test_nothing_else_is_written_to_standard_output(start: Start, channel_dir: Path) -> None:
    """Garbage is answered line by line; a channel that cannot be had is said to the model."""
    ada = start("ada")
    ada.write(b"\xff\xfe\n{}\n" + b"[" * 3_000_000 + b"\n" + b"x" * 9_000_000 + b"\n")
    codes = [ada.line()["error"]["code"] for _ in range(4)]
    assert codes == [-32700, -32600, -32700, -32600]
    assert ada.call("inbox") == "nothing unread"
    (channel_dir / "taken").write_text("a file where the channel should be")
    said = start("bob", INTERCOM_CHANNEL="taken").call("peers", failed=True)
    assert "taken" in said
    said = start("bob", INTERCOM_TRANSPORT="pigeons").call("send", to="x", text="y", failed=True)
    assert said.startswith("BAD_CONFIG: ")


def test_a_message_that_is_too_large_is_refused_with_what_to_do(start: Start) -> None:
    """One that just fits is sent."""
    ada = start("ada")
    ada.call("peers")
    assert ada.call("send", to="ada", text="é" * 500_000).startswith("sent ")
    said = ada.call("send", to="ada", text="x" * (1 << 20), failed=True)
    assert said.startswith("LINE_TOO_LONG: ")
    assert "put the text into a file" in said


def test_beside_an_original_hub_the_files_are_read(start: Start, agent: Agent) -> None:
    """It knows no bridges, so they keep no connection; messages go through it all the same."""
    paths = agent("ada").paths
    paths.prepare()
    program = str(Path(__file__).parents[1] / "seed" / "original_hub.py")
    words = [sys.executable, "-S", program, "--dir", paths.base, "--channel", paths.name]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as hub:
        try:
            until(lambda: control.published(paths).get("hub_pid") == hub.pid)
            ada, bob = start("ada"), start("bob")
            bob.call("peers")
            assert re.match(
                r"sent msg_\w+ to bob: stored", ada.call("send", to="bob", text="hello")
            )
            assert texts(bob.call("inbox", wait_s=20)) == ["hello"]
            assert control.published(paths).get("hub_pid") == hub.pid
        finally:
            hub.kill()
