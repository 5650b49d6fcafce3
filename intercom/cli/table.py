"""The options of ``send``, ``poll`` and ``mcp``, and those that every verb takes: a row each.

Both readers of command lines are made of these rows: click's commands
(:mod:`intercom.cli.options`), and the quick one for plain lines (:mod:`intercom.cli.quick`).
"""

from __future__ import annotations

import os

from intercom.levels import LEVELS
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Kind(NamedTuple):
    """How the value of an option is written.

    :ivar name: ``text``, ``flag``, ``choice``, ``directory``, ``seconds`` or ``whole``.
    :ivar read: makes a value of a word; raises ValueError, in plain words, if it is none.
    :ivar choices: the words of which it is one; ``least``: the lowest number.
    """

    name: str
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    least: int = 0


class Option(NamedTuple):
    """One row.

    :ivar name: what the value is called in the program.
    :ivar word: how it is written on the command line.
    :ivar default: what holds where it is not written.
    :ivar constant: the value that the word alone stands for; None if one has to follow.
    :ivar shows_default: whether the help does.
    :ivar names_session: whether a shell can complete it to a session.
    :ivar several: whether it may be repeated; the value is a tuple. :ivar hidden: from the help.
    """

    name: str
    word: str
    help: str
    metavar: str | None = None
    kind: Kind = Kind("text")
    default: Any = None
    constant: Any = None
    shows_default: bool = False
    names_session: bool = False
    several: bool = False
    hidden: bool = False


class Argument(NamedTuple):
    """The word that may stand behind a verb by itself.

    :ivar words: those that are sure to mean something.
    """

    name: str
    metavar: str
    words: tuple[str, ...]


class Verb(NamedTuple):
    """A verb that can be read quickly.

    :ivar work: the module whose ``work`` does it.
    """

    options: tuple[Option, ...]
    argument: Argument | None
    work: str


def _one_of(*words: str) -> Kind:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return Kind("choice", read, words)


def _directory(text: str) -> str:
    if not (os.path.isdir(text) and os.access(text, os.R_OK)):
        raise ValueError(f"{text!r} is no directory that can be read")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not abs(seconds) < float("inf"):
        raise ValueError(f"{text!r} is no number of seconds")
    if seconds < 0:
        raise ValueError(f"{text} is less than 0")
    return seconds


def whole(least: int) -> Kind:
    """A whole number that is not too small."""

    def read(text: str) -> int:
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise ValueError(f"{text!r} is no whole number")
        if int(text) < least:
            raise ValueError(f"{text} is less than {least}")
        return int(text)

    return Kind("whole", read, least=least)


TEXT = Kind("text")
FLAG = Kind("flag", bool)
SECONDS = Kind("seconds", _seconds)

#: What every verb takes, before it and behind it.
COMMON = (
    Option("base", "--dir", "Where channels live; or INTERCOM_DIR.", "DIR"),
    Option("channel", "--channel", "The channel; or INTERCOM_CHANNEL.", "NAME"),
    Option(
        "project_dir",
        "--project-dir",
        "The project; by default what is around here.",
        kind=Kind("directory", _directory),
    ),
    Option(
        "format",
        "--format",
        "How results are printed; or INTERCOM_FORMAT. Default: text on a terminal.",
        kind=_one_of("text", "json"),
    ),
    Option("format", "--json", "As --format json.", constant="json"),
)

SESSION = Option(
    "session",
    "--session",
    "Who speaks; default: INTERCOM_SESSION, or your own name.",
    "ID",
    names_session=True,
)
FROM = Option(
    "place",
    "--from",
    "Begin at the end, at the beginning of what is there, or at a message.",
    "now|start|ID",
)

SEND = (
    SESSION,
    Option(
        "to",
        "--to",
        "The recipient; everybody by default.",
        "ID",
        default="*",
        names_session=True,
    ),
    Option("text", "--text", "The text; your shell sees it first.", "TEXT"),
    Option("file", "--file", "Take the text from this file.", "FILE"),
    Option("json_payload", "--json-payload", "Further members of the payload.", "OBJECT"),
    Option("reply_to", "--reply-to", "The message that this one answers.", "ID"),
    Option("message_id", "--id", "The message's id, to send it again safely.", "ID"),
    Option("strict", "--strict", "Refuse a recipient that nobody ever was.", kind=FLAG),
    Option(
        "durability",
        "--durability",
        "How safe before it is called stored; by default as the channel has it.",
        kind=_one_of(*LEVELS),
    ),
)

POLL = (
    SESSION,
    Option(
        "wait",
        "--wait",
        "Wait so long for a message if there is none.",
        "SECONDS",
        kind=SECONDS,
        default=0.0,
    ),
    Option("peek", "--peek", "Show without counting as read.", kind=FLAG),
    Option(
        "limit",
        "--limit",
        "Show at most so many.",
        "N",
        kind=whole(1),
        default=50,
        shows_default=True,
    ),
    Option("full", "--full", "Show long messages whole where text is no terminal's.", kind=FLAG),
    FROM,
)

#: The options of ``mcp``.
MCP = (SESSION,)

DAEMON = (
    Option(
        "durability",
        "--durability",
        "How safe a message is before its sender is told 'stored'; default: disk.",
        kind=_one_of(*LEVELS),
    ),
    Option(
        "idle_exit",
        "--idle-exit",
        "End after this time without any connection, or never, which is the default.",
        "SECONDS",
    ),
    Option("on_demand", "--on-demand", "", kind=FLAG, hidden=True),
    Option(
        "listen",
        "--listen",
        "Listen at a Twisted endpoint, too (tcp:7654:interface=127.0.0.1); may be repeated. "
        "Who connects from outside the file system must show the channel's key.",
        "ENDPOINT",
        default=(),
        several=True,
    ),
    Option(
        "pi",
        "--pi",
        "Be found where pi-intercom and pi-subagents look for their broker; see pi-broker.",
        kind=FLAG,
    ),
)

#: What can be read quickly.
QUICK = {
    "send": Verb(SEND, Argument("dash", "[-]", ("-",)), "intercom.cli.sending"),
    "poll": Verb(POLL, None, "intercom.cli.polling"),
    "daemon": Verb(DAEMON, None, "intercom.cli.serving"),
    "mcp": Verb(MCP, None, "intercom.cli.bridging"),
}
