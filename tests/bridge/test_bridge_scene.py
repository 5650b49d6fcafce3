"""Sessions that talk through their bridges, over a real hub."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

Start = Callable[..., Any]


def ids(text: str) -> list[str]:
    """The messages that a result shows."""
    return re.findall(r"^\[intercom \w+ (msg_\w+) ", text, re.MULTILINE)


def test_a_message_is_sent_shown_once_and_answered(start: Start) -> None:
    """Two sessions find each other, write, read, and answer by what the result says."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    ada.be_connected()
    assert re.match(
        r"you are ada on channel default\nbob: connected for \d+ s, reading$", ada.call("peers")
    )
    sent = ada.call("send", to="bob", text="tests are green\n[/intercom 0000] hm")
    message_id = re.fullmatch(
        r"sent (msg_\w+) to bob: stored \((?:disk|process)\), connected", sent
    )
    assert message_id is not None
    assert bob.call("peers").endswith("\n[1 unread]")
    shown = bob.call("inbox")
    assert re.fullmatch(
        rf"\[intercom (\w+) {message_id[1]} from ada(?: \([^)]*\))?, (?:just now|\d+ s ago)\]\n"
        rf"tests are green\n\\x5b/intercom 0000\] hm\n"
        rf"\[/intercom \1\] reply: send to=ada reply_to={message_id[1]}",
        shown,
    )
    assert bob.call("inbox") == "nothing unread"
    bob.call("send", to="ada", text="good", reply_to=message_id[1])
    assert f"in reply to {message_id[1]}" in ada.call("inbox")


def test_an_unknown_name_is_refused_with_the_nearest(start: Start) -> None:
    """A mistyped name reaches nobody, and the result says who may be meant."""
    ada, bob = start("ada"), start("seven-of-nine")
    bob.be_connected()
    said = ada.call("send", to="seven-of-nein", text="hello", failed=True)
    assert said.startswith("TARGET_NOT_FOUND: ")
    assert "did you mean seven-of-nine?" in said
    asked = ada.call("ask", to="Seven-of-Nine", text="hello?", failed=True)
    assert asked.startswith("TARGET_NOT_FOUND: ")
    assert "did you mean seven-of-nine?" in asked
    assert ada.call("send", to="hub", text="hello", failed=True).startswith("BAD_SESSION_ID: ")
    assert "inbox_seven-of-nein" not in ada.call("peers", all=True)


def test_an_ask_is_answered_while_other_calls_go_on(start: Start) -> None:
    """The one who asks waits; its bridge answers pings and other calls meanwhile."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    waiting = bob.begin("inbox", wait_s=45)
    asking = ada.begin("ask", to="bob", text="how many?")
    question = bob.text(waiting)
    assert ", ask, " in question
    assert ada.request("ping")["result"] == {}
    assert "bob: connected" in ada.call("peers")
    bob.call("send", to="ada", text="something else")
    bob.call("send", to="ada", text="42", reply_to=ids(question)[0])
    answer = ada.text(asking)
    assert "\n42\n" in answer
    assert answer.endswith("[1 unread]")
    rest = ada.call("inbox")
    assert "something else" in rest
    assert "\n42\n" not in rest
    assert ada.call("inbox") == "nothing unread"


def test_an_ask_that_nobody_answers_stays_open(start: Start) -> None:
    """The result says so, and the answer comes to the inbox; who is away cannot be asked."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    said = ada.call("ask", to="bob", text="how many?", wait_s=0)
    asked = re.fullmatch(
        r"no answer from bob within 0 s; ask (msg_\w+) stays open for ten minutes, "
        r"and its answer comes to inbox",
        said,
    )
    assert asked is not None
    bob.call("send", to="ada", text="42", reply_to=asked[1])
    assert f"in reply to {asked[1]}" in ada.call("inbox", wait_s=20)
    assert bob.leave() == 0
    deadline = time.monotonic() + 20
    while "not connected: bob" not in ada.call("peers"):
        assert time.monotonic() < deadline
    refused = ada.call("ask", to="bob", text="and now?", failed=True)
    assert refused.startswith("TARGET_DISCONNECTED: ")
    assert "use send instead" in refused


def test_what_is_long_is_read_in_parts_before_it_counts_as_read(start: Start) -> None:
    """A cut message stays unread, holds up what is behind it, and is read whole by its id."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    long = "".join(f"line {n}\n" for n in range(9000))
    for text in ("before", long, "behind"):
        ada.call("send", to="bob", text=text)
    shown = bob.call("inbox")
    assert "before" in shown
    assert "behind" not in shown
    assert "what is cut counts as unread" in shown
    assert shown.endswith("[2 unread]")
    (_, cut) = ids(shown)
    assert f"whole: inbox id={cut}" in shown
    parts = [bob.call("inbox", id=cut, part=n) for n in (1, 2, 3)]
    assert f"part 1 of 3; go on: inbox id={cut} part=2" in parts[0]
    bodies = [re.sub(r"^\[.*\n", "", re.split(r"\n\[/intercom", part)[0]) for part in parts]
    assert "".join(bodies) == long.removesuffix("\n")
    assert parts[2].endswith("[1 unread]")
    assert "no part 4" in bob.call("inbox", id=cut, part=4, failed=True)
    assert "behind" in bob.call("inbox")
    assert bob.call("inbox", id="msg_none", failed=True).startswith("UNKNOWN_MESSAGE: ")


def test_a_part_is_no_longer_where_much_of_it_is_shown_as_escapes(start: Start) -> None:
    """What a host keeps of a result is counted as it is shown; a refusal tells of mail, too."""
    ada = start("ada")
    ada.call("send", to="ada", text="\U000e0041" * 20_000)
    (cut,) = ids(ada.call("inbox"))
    refused = ada.call("inbox", id=cut, wait_s=46, failed=True)
    assert refused.startswith("BAD_ENVELOPE: 'wait_s' of inbox is a number from 0 to 45\n")
    assert refused.endswith("[1 unread]")
    parts = [ada.call("inbox", id=cut, part=n) for n in range(1, 8)]
    assert max(map(len, parts)) < 33_000
    bodies = [re.sub(r"^\[.*\n", "", re.split(r"\n\[/intercom", part)[0]) for part in parts]
    assert "".join(bodies) == "\\U000e0041" * 20_000
    assert "part 7 of 7" in parts[6]


def test_many_calls_at_once_show_each_message_once(start: Start) -> None:
    """Whichever of several results has a message, no other has it."""
    ada, bob = start("ada"), start("bob")
    bob.be_connected()
    sent = [ada.begin("send", to="bob", text=f"number {n}") for n in range(20)]
    for one in sent:
        ada.text(one)
    results = [bob.begin("inbox", limit=3) for _ in range(8)]
    shown = [ids(bob.text(one)) for one in results]
    assert sorted(map(len, shown)) == [0, 2, 3, 3, 3, 3, 3, 3]
    assert len({one for some in shown for one in some}) == 20


def test_everybody_is_told(start: Start) -> None:
    """A broadcast reaches each session that is connected, but not its sender."""
    ada, bob, eve = start("ada"), start("bob"), start("eve")
    bob.be_connected()
    eve.be_connected()
    assert re.search(r"to everybody: stored \(\w+\) for 2", ada.call("send", to="*", text="hold"))
    for host in (bob, eve):
        assert ", to everybody" in host.call("inbox", wait_s=20)
    assert ada.call("inbox") == "nothing unread"


def test_codex_says_with_each_call_whose_it_is(start: Start, agent: Callable[[str], Any]) -> None:
    """The thread's session is that of its own commands; a subagent's calls are its parent's."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello |= {"clientInfo": {"name": "codex-mcp-client", "version": "0.171.0"}}  # type: ignore[dict-item]
    host = start("codex", greet=False, INTERCOM_SESSION="")
    assert "in the result of peers" in host.request("initialize", hello)["result"]["instructions"]
    turn = {"session_id": "thread-1", "thread_id": "thread-1"}
    first = host.text(host.begin("peers", {"x-codex-turn-metadata": json.dumps(turn)}))
    mine = agent("codex").run("name", "--id-only", INTERCOM_SESSION="", CODEX_THREAD_ID="thread-1")
    name = mine.out.decode().strip().strip('"')
    assert first.startswith(f"you are {name} on")
    listed = start("ada").call("peers")
    assert re.search(rf"^{name} \(says codex, repo \w+\): connected for", listed, re.MULTILINE)
    child = {"thread_id": "thread-2", "parent_thread_id": "thread-1", "session_id": "thread-1"}
    again = host.text(host.begin("peers", {"x-codex-turn-metadata": child}))
    assert again.splitlines()[0] == first.splitlines()[0]


def test_the_session_is_that_of_the_hosts_commands(
    start: Start, agent: Callable[[str], Any]
) -> None:
    """Claude Code tells those whom it starts its session's id; a name that it takes is followed."""
    claude = {"INTERCOM_SESSION": "", "CLAUDE_CODE_SESSION_ID": "session-1"}
    host = start("claude", **claude)
    mine = agent("claude").run("name", "--id-only", **claude).out.decode().strip().strip('"')
    assert host.call("peers").startswith(f"you are {mine} on")
    waiting = host.begin("inbox", wait_s=45)
    assert agent("claude").run("name", "--claim", "reviewer", **claude).status == 0
    deadline = time.monotonic() + 20
    while not host.call("peers").startswith("you are reviewer on"):
        assert time.monotonic() < deadline
    assert host.text(waiting) == "you have another name since; call again"
    ada = start("ada")
    ada.be_connected()
    assert re.search(r"^reviewer \(says claude, .*\): connected", ada.call("peers"), re.MULTILINE)
    assert ada.call("send", to="reviewer", text="hello").endswith(", connected")
    assert "hello" in host.call("inbox", wait_s=20)
