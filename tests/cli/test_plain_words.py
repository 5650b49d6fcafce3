"""What a stranger trips over: empty and odd words, mistyped names, and what is said of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from intercom.cli import hub as hub_verbs
from intercom.cli.group import intercom
from intercom.client.callers import in_words
from intercom.errors import ProtocolError
from intercom.names import check_chosen, check_session
from intercom.showing.words import ago, counted

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]
UNNAMED = {"INTERCOM_SESSION": "", "INTERCOM_NO_SPAWN": "1"}


@pytest.fixture
def bob(agent: Make) -> Agent:
    """Somebody on the channel, without a hub."""
    made = agent("bob")
    made.environ |= {"INTERCOM_NO_SPAWN": "1", "XDG_STATE_HOME": str(made.project.parent)}
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["init", "--name", ""],
        ["name", "--claim", ""],
        ["poll", "--session", ""],
        ["ack", "--all", "--session", ""],
        ["send", "--to", "ann", "--text", "x", "--session", ""],
    ],
)
def test_an_empty_name_is_none(bob: Agent, words: list[str]) -> None:
    """It is not the name that one had before."""
    bob.run("init", "--name", "before", **UNNAMED).ok()
    ended = bob.run(*words, **UNNAMED)
    assert (ended.status, ended.result["code"]) == (65, "BAD_SESSION_ID")


def test_an_empty_variable_is_unset(bob: Agent) -> None:
    """As everywhere in shells."""
    bob.run("init", "--name", "before", **UNNAMED).ok()
    assert bob.run("poll", **UNNAMED).ok()["session"] == "before"


@pytest.mark.parametrize("name", ["-x", "--all", "a\u202eb", "a\u200bb", "\ufeffa"])
def test_names_that_we_take_can_be_typed_and_seen(bob: Agent, name: str) -> None:
    """Other clients may have them; what is proposed instead can be had."""
    assert check_session(name) == name
    with pytest.raises(ProtocolError):
        check_chosen(name)
    for words in (("init", "--name"), ("name", "--claim")):
        ended = bob.run(*words, name, **UNNAMED)
        assert (ended.status, ended.result["code"]) == (65, "BAD_SESSION_ID")
        said = shlex.split(ended.result["remedy"].partition(": ")[2])
        assert said[:3] == ["intercom", *words]
        assert bob.run(*said[1:], **UNNAMED).ok()["session_id"] == said[3]


def test_a_name_of_another_project_is_replaced_by_one_that_is_free(agent: Make) -> None:
    """Whose it is, is said; the remedy works as it stands."""
    api, web = agent("api"), agent("web")
    for one in (api, web):
        one.environ["XDG_STATE_HOME"] = str(one.project.parent)
    api.run("init", "--name", "shared", **UNNAMED).ok()
    ended = web.run("init", "--name", "shared", **UNNAMED)
    assert (ended.status, ended.result["code"]) == (77, "SESSION_COLLISION")
    assert str(api.project) in ended.result["message"]
    assert "name --all" not in ended.result["remedy"]
    first = shlex.split(ended.result["remedy"].partition(": ")[2].partition(";")[0])
    assert first == ["intercom", "init", "--name", "shared-2"]
    assert web.run(*first[1:], **UNNAMED).ok()["session_id"] == "shared-2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["poll", "--wait", "nan"], "'nan' is no number of seconds"),
        (["poll", "--wait", "inf"], "'inf' is no number of seconds"),
        (["poll", "--wait", "abc"], "'abc' is no number of seconds"),
        (["poll", "--wait=-1"], "-1 is less than 0"),
        (["listen", "--timeout", "inf"], "'inf' is no number of seconds"),
        (["listen", "--timeout", "nan"], "'nan' is no number of seconds"),
        (["poll", "--limit", "x"], "'x' is no whole number"),
        (["poll", "--limit", "1.5"], "'1.5' is no whole number"),
        (["poll", "--limit", "0"], "0 is less than 1"),
    ],
)
def test_numbers_are_refused_in_plain_words(bob: Agent, words: list[str], said: str) -> None:
    """With the status of a command line that is wrong."""
    ended = bob.run(*words)
    assert ended.status == 2
    assert ended.result["message"].endswith(said)


def test_reading_as_a_mistyped_name_makes_nobody_known(bob: Agent) -> None:
    """It is said whose name is like it, and strict senders still refuse it."""
    bob.run("poll").ok()
    for words in (("poll",), ("poll", "--wait", "0.01"), ("ack", "--all"), ("ack", "1:0")):
        ended = bob.run(*words, "--session", "bobb")
        assert ended.ok()["session"] == "bobb"
        assert "nobody on this channel ever used 'bobb'; did you mean 'bob'?" in ended.err
    assert bob.run("ack", "1:7", "--session", "bobb").result["code"] == "STALE_POSITION"
    assert bob.run("send", "--strict", "--to", "bobb", "--text", "x").status == 68
    assert bob.run("poll").err == ""


def test_who_was_written_to_is_read_and_then_known(bob: Agent) -> None:
    """An inbox is a sign that somebody is meant."""
    bob.run("send", "--to", "new", "--text", "x").ok()
    ended = bob.run("poll", "--session", "new")
    assert (ended.ok()["count"], ended.err) == (1, "")
    assert bob.run("poll", "--session", "new").ok()["count"] == 0
    bob.run("send", "--strict", "--to", "new", "--text", "y").ok()


@pytest.mark.parametrize("group", [[], ["hub"]])
def test_without_a_verb_the_verbs_are_shown(bob: Agent, group: list[str]) -> None:
    """Text: the help, as it is; JSON: an error."""
    bare = bob.run(*group, INTERCOM_FORMAT="text")
    assert (bare.status, bare.err) == (2, "")
    assert bare.out == bob.run(*group, "--help").out
    ended = bob.run(*group, INTERCOM_FORMAT="json")
    assert (ended.status, ended.result["message"]) == (2, "missing command")
    assert ended.result["remedy"] == f"see: {' '.join(['intercom', *group])} --help"


@pytest.mark.parametrize("group", [[], ["hub"]])
def test_no_line_of_help_is_cut(group: list[str]) -> None:
    """At 80 columns."""
    shown = CliRunner().invoke(intercom, [*group, "--help"], terminal_width=80).output
    assert "Commands:" in shown
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize("verb", ["cleanup", "version", "hub status", "hub logs"])
def test_a_verb_that_speaks_for_nobody_says_so(bob: Agent, verb: str) -> None:
    """And proposes no other option."""
    ended = bob.run(*verb.split(), "--session", "x")
    assert (ended.status, ended.result["message"]) == (2, f"{verb} takes no --session")
    assert (
        bob.run("--session", "x", "poll").result["message"] == "--session belongs behind the verb"
    )


def test_what_is_no_text_goes_as_a_path_to_the_same_recipient(bob: Agent, tmp_path: Path) -> None:
    """What is too long, too."""
    binary = tmp_path / "odd name.bin"
    for content, code in ((b"\xff\x00", "BAD_JSON"), (b"x" * (1 << 21), "LINE_TOO_LONG")):
        binary.write_bytes(content)
        ended = bob.run("send", "--to", "ann", "--file", str(binary))
        assert (ended.status, ended.result["code"]) == (65, code)
        said = shlex.split(ended.result["remedy"].partition(": ")[2])
        assert said == ["intercom", "send", "--to", "ann", "--text", str(binary)]
        assert bob.run(*said[1:]).ok()["envelope"]["to_session"] == "ann"
    ended = bob.run("send", "--to", "ann", "--text", os.fsdecode(b"\xff"))
    assert ended.result["remedy"].endswith("intercom send --to ann --text PATH")


def test_an_empty_id_is_left_out(bob: Agent) -> None:
    """The remedy says so."""
    ended = bob.run("send", "--to", "ann", "--text", "x", "--id", "")
    assert ended.status == 65
    assert ended.result["remedy"].startswith("leave --id out")


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":NaN}', "[1]", "{", '{"a":Infinity}'])
def test_a_payload_is_json_as_our_lines_hold_it(bob: Agent, text: str) -> None:
    """Refused before anything is sent."""
    ended = bob.run("send", "--to", "ann", "--text", "x", "--json-payload", text)
    assert (ended.status, ended.result["code"]) == (2, "USAGE")
    assert "--json-payload" in ended.result["message"]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("none", "commands without a terminal"),
        ("terminal:/dev/pts/3:120:9981", "terminal /dev/pts/3"),
        ("terminal:5:1:120:9981", "terminal 5:1"),
        ("tmux:/tmp/tmux-0/default,77:%0", "tmux pane %0"),
        ("zellij::4", "zellij pane 4"),
        ("claude:abc", "claude session abc"),
    ],
)
def test_callers_are_told_in_words(key: str, said: str) -> None:
    """No pid, no start time."""
    assert in_words(key) == said


def test_counts_and_ages_are_plain_english() -> None:
    """One of it is one."""
    assert (counted(1, "message"), counted(0, "message")) == ("1 message", "0 messages")
    assert [ago(s) for s in (-5, 0.5, 59, 60, 7300)] == [
        "just now",
        "just now",
        "59 s ago",
        "1 min ago",
        "2 h ago",
    ]


def test_one_message_is_told_as_one(bob: Agent) -> None:
    """Where it is forgotten, and where all is removed."""
    bob.run("send", "--to", "ann", "--text", "x").ok()
    text = bob.run("forget", "ann", "--format", "text").out.decode()
    assert text.endswith("ann is forgotten; 1 message was unread\n")
    bob.run("send", "--to", "eve", "--text", "x").ok()
    text = bob.run("cleanup", "--force", "--format", "text").out.decode()
    assert text.endswith("1 unread message removed with these\n")


@pytest.mark.parametrize(
    ("seconds", "words"), [(600, "10 min"), (1000, "1000 s"), (0.5, "0.5 s"), (86400, "1 d")]
)
def test_a_time_that_was_set_is_shown_as_it_was_set(seconds: float, words: str) -> None:
    assert hub_verbs._setting(seconds) == words
