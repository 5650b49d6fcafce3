"""Every error says what to do next, and what it says can be done."""

from __future__ import annotations

import ast
import errno
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from intercom.cli import group, remedies
from intercom.errors import CLOSING_CODES, EXIT_CODES, RETRYABLE_CODES, IntercomError

ROOT = Path(__file__).resolve().parents[2]
#: What stands where the source puts in a path, a name or a number.
BLANK = "X"
#: Programs of the system that a remedy may name, and what a setting of ours is called.
OTHERS = r"\b(?:cat|chmod|df|fuser|kill|ls|mv|rm|ulimit) [-\w/.~'\"]"
SETTING = r"--(?:dir|session|channel|name|strict)\b|\bINTERCOM_\w+|\bXDG_CONFIG_HOME\b|\bPI_\w+"


def text_of(node: ast.expr) -> str:
    """A text in the source, with blanks where it is put together when it runs."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, (text_of(node.body), text_of(node.orelse))))
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".again"):
        return " ".join(["intercom", *map(text_of, node.args)])
    return BLANK


def remedies_in_source() -> Iterator[tuple[str, str]]:
    """Every remedy that the source gives an error, with its place."""
    for path in sorted((ROOT / "intercom").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            found: list[ast.expr] = []
            if isinstance(node, ast.Call):
                found = [word.value for word in node.keywords if word.arg == "remedy"]
            elif isinstance(node, ast.Assign):
                names = [ast.unparse(target) for target in node.targets]
                found = [node.value] if any(name.endswith("remedy") for name in names) else []
            for value in found:
                text = text_of(value)
                if text.strip(f" {BLANK}"):
                    yield f"{path.relative_to(ROOT)}:{value.lineno}", text


IN_SOURCE = list(remedies_in_source())
SAID = IN_SOURCE + [(f"REMEDIES[{code}]", text) for code, text in remedies.REMEDIES.items()]
#: What a bridge says, an agent reads, which calls tools by their arguments and types nothing.
TO_TYPE = [one for one in SAID if not one[0].startswith("intercom/bridge/")]


def commands_in(text: str) -> list[list[str]]:
    """The commands of ours that a remedy tells to give, as words."""
    found = re.findall(r"\bintercom ((?:--?\w|[a-zX{])[^;,()]*)", text)
    return [re.split(r"\s+", one.rstrip(" .:")) for one in found]


def test_the_source_has_remedies_and_they_are_found() -> None:
    """Else the tests below would pass by looking at nothing."""
    assert len(IN_SOURCE) > 25
    assert any(commands_in(text) for _place, text in IN_SOURCE)


@pytest.mark.parametrize(("place", "text"), TO_TYPE, ids=[place for place, _text in TO_TYPE])
def test_a_remedy_names_something_to_type(place: str, text: str) -> None:
    """A command of ours or the system's, an option, or a variable."""
    assert commands_in(text) or re.search(f"{OTHERS}|{SETTING}", text), text


@pytest.mark.parametrize(("place", "text"), SAID, ids=[place for place, _text in SAID])
def test_the_commands_that_a_remedy_names_exist(place: str, text: str) -> None:
    """With their options, as far as they are spelled out."""
    for words in commands_in(text):
        check(group.intercom, words)


def check(command: click.Command, words: list[str]) -> None:
    """Follow a command line through groups, and look for its options."""
    options = {name: option for option in command.params for name in option.opts}
    options |= {name: option for option in command.params for name in option.secondary_opts}
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--help":
            break
        if word.startswith("-"):
            assert word in options, f"{command.name} has no {word}"
            option = options[word]
            if not (isinstance(option, click.Option) and (option.is_flag or option.count)):
                words = words[1:]
        elif isinstance(command, click.Group) and word != BLANK:
            verb = command.get_command(click.Context(command), word)
            assert verb is not None, f"there is no verb {word!r}"
            check(verb, words)
            break


def test_what_a_hub_says_of_itself_has_a_remedy() -> None:
    """It speaks without the command line's help, to a terminal or into its last words."""
    bare = []
    looked = 0
    for part in ("hub", "election", "settings"):
        for path in sorted((ROOT / "intercom" / part).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "CannotCreate",
                    "BadConfig",
                    "UnsafePlace",
                ):
                    looked += 1
                    if "remedy" not in [word.arg for word in node.keywords]:
                        bare.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert looked > 10
    assert not bare


def codes() -> set[str]:
    """Every code that the protocol page explains, or the program knows."""
    page = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `([A-Z_]+)` \| \d+ \|", page, re.MULTILINE))
    assert len(listed) > 20
    return listed | set(EXIT_CODES) | CLOSING_CODES | RETRYABLE_CODES


@pytest.mark.parametrize("code", sorted(codes()))
def test_every_code_has_a_remedy_of_last_resort(code: str) -> None:
    """For refusals of the hub come with a code and a sentence only."""
    assert remedies.remedy_for(IntercomError("no", code=code)) == remedies.REMEDIES[code]


def test_an_error_s_own_remedy_comes_first() -> None:
    """And a code that only a newer hub knows has one, too."""
    assert remedies.remedy_for(IntercomError("no", code="TIMEOUT", remedy="wait")) == "wait"
    said = remedies.remedy_for(IntercomError("no", code="FROM_THE_FUTURE"))
    check(group.intercom, commands_in(said)[0])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "full"), "df -h"),
        (OSError(errno.EACCES, "no", "/a b"), "ls -ld '/a b'"),
        (OSError(errno.EMFILE, "many"), "ulimit -n"),
        (OSError(errno.EBADF, "bad"), "intercom poll > FILE"),
    ],
)
def test_what_the_system_refuses_has_a_remedy(error: OSError, said: str) -> None:
    """Which names the file where there is one."""
    assert said in remedies.remedy_of_system(error)
