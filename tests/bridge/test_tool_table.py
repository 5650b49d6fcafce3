"""What a model is told of the tools, and what it may say to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from intercom.bridge.place import caller_of
from intercom.bridge.tools import ASK, INBOX, PEERS, SEND, TOOLS, BadArguments, Tool
from intercom.bridge.words import instructions, with_unread


def test_the_table_is_terse() -> None:
    """Every model pays for it, in every session."""
    listed = [tool.listed() for tool in TOOLS.values()]
    for one in listed:
        del one["_meta"]
    assert len(json.dumps(listed)) < 3200
    assert len(instructions("nyota-uhura", "default").split()) < 150
    assert [one["name"] for one in listed] == ["send", "inbox", "ask", "peers"]


def test_the_two_that_every_session_needs_are_always_loaded() -> None:
    loaded = [name for name, tool in TOOLS.items() if tool.meta.get("anthropic/alwaysLoad")]
    assert loaded == ["send", "inbox"]
    assert [name for name, tool in TOOLS.items() if tool.hints["readOnlyHint"]] == [
        "inbox",
        "peers",
    ]


@pytest.mark.parametrize(
    ("tool", "given", "taken"),
    [
        (SEND, {"to": "a", "text": " "}, {"to": "a", "text": " "}),
        (SEND, {"to": "a", "text": "b", "reply_to": None}, {"to": "a", "text": "b"}),
        (INBOX, {}, {}),
        (INBOX, {"wait_s": 45, "limit": 1.0}, {"wait_s": 45.0, "limit": 1}),
        (INBOX, {"wait_s": "2.5", "limit": "50"}, {"wait_s": 2.5, "limit": 50}),
        (INBOX, {"id": "x", "part": 2}, {"id": "x", "part": 2}),
        (ASK, {"to": "a", "text": "b", "wait_s": 0}, {"to": "a", "text": "b", "wait_s": 0.0}),
        (PEERS, {"all": True}, {"all": True}),
    ],
)
def test_arguments_that_are_taken(tool: Tool, given: dict[str, Any], taken: object) -> None:
    assert tool.check(given) == taken


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        (SEND, [], "an object"),
        (SEND, {}, "needs 'to'"),
        (SEND, {"to": "a", "text": ""}, "'text' of send is empty"),
        (SEND, {"to": 5, "text": "b"}, "'to' of send is a string"),
        (SEND, {"to": "a", "text": "b", "urgent": True}, "takes no 'urgent'; it takes to, text"),
        (INBOX, {"wait_s": 46}, "from 0 to 45$"),
        (INBOX, {"wait_s": -1}, "from 0 to 45"),
        (INBOX, {"wait_s": True}, "a number"),
        (INBOX, {"wait_s": "soon"}, "a number"),
        (INBOX, {"wait_s": "nan"}, "a number"),
        (INBOX, {"limit": 1.5}, "a whole number"),
        (INBOX, {"limit": 51}, "from 1 to 50"),
        (INBOX, {"part": 0}, "of at least 1"),
        (PEERS, {"all": "yes"}, "true or false"),
    ],
)
def test_arguments_that_are_not(tool: Tool, given: object, said: str) -> None:
    with pytest.raises(BadArguments, match=said):
        tool.check(given)


@pytest.mark.parametrize(
    ("told", "caller"),
    [
        ({"thread_id": "t", "session_id": "s"}, "t"),
        ('{"thread_id": "t"}', "t"),
        ({"session_id": "s"}, "s"),
        ({"thread_id": "t2", "parent_thread_id": "t", "session_id": "t"}, "t"),
        ({"thread_id": "t3", "parent_thread_id": "t2", "session_id": "t"}, "t"),
        ({"thread_id": "t2", "parent_thread_id": "t"}, "t"),
        ({"thread_id": "t2", "parent_thread_id": None, "session_id": "t2"}, "t2"),
        ({"thread_id": "a\nb"}, ""),
        ({"thread_id": 5}, ""),
        ("{", ""),
        ("[" * 100_000, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_whose_call_codex_says_it_is(told: object, caller: str) -> None:
    assert caller_of({"x-codex-turn-metadata": told}) == caller
    assert caller_of({}) == ""


def test_a_result_ends_with_what_waits() -> None:
    assert with_unread("text\n", 2) == "text\n[2 unread]"
    assert with_unread("", 2) == "[2 unread]"
    assert with_unread("text\n", 0) == "text"
    assert with_unread("text", None) == "text"
