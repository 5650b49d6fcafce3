"""Messages as text, the same for people at a terminal and for models that read a result.

What a message says stands behind a bar at the left edge, every line of it, between a
head and a foot that carry a mark::

    [intercom 7f3a msg_cdb873a31c35 from api-agent, 3 min ago]
    | The endpoint /orders is ready.
    [/intercom 7f3a]

The mark is drawn for each text once all that it frames is known, and drawn again should
it occur there, so no sender can know it. Nothing that a sender chose reaches the left
edge, looks like a head or foot where it stands, moves a cursor, or turns text around:
control, format and bidirectional characters are written as their escapes, and so is the
bracket of what looks like a frame.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from intercom.records import LEVELS
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

BAR = "| "
#: Longest name or id that a head shows, in characters: as long as a session id can be.
MAX_LABEL = 128
#: Bytes of a body that are shown where a model pays for each; the rest can be asked for.
MODEL_LIMIT = 2048
#: More combining marks than this on one character only hide what is above and below it.
_MAX_MARKS = 8
#: Invisible, yet part of scripts and emoji: the two joiners.
_JOINERS = frozenset("\u200c\u200d")
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MARKS = frozenset({"Mn", "Me"})
_AS_EMOJI = "\ufe0f"
#: Letters by their category, blanks by their looks.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
#: What is our frame, or one in which hosts of agents put what they themselves say.
_FRAMES = re.compile(
    r"\[(?=[\s\u200c\u200d]*/?[\s\u200c\u200d]*intercom)"
    r"|<(?=\s*/?\s*(?:system-reminder|cross-session-message|hook_prompt|task-notification)\b)",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r'[\[\]<>"\\]')
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"

#: Draws so many hexadecimal digits.
Draw = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Page:
    """How text is laid out.

    :ivar width: columns at which lines are folded, None where nothing folds them.
    :ivar colour: whether heads and feet may be coloured; bodies never are.
    :ivar limit: bytes of a body that are shown, None for all of it.
    """

    width: int | None = None
    colour: bool = False
    limit: int | None = None


def escape(text: str) -> str:
    """Write what would not be seen, or would change how the rest is seen, as its escape."""
    if text.isascii() and text.isprintable():
        return text
    pieces, marks = [], 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARKS else 0
        hidden = category in _ESCAPED and character not in _JOINERS
        if hidden or character in _FILLERS or marks > _MAX_MARKS:
            character = character.encode("unicode_escape").decode()
        pieces.append(character)
    return "".join(pieces)


def label(name: object) -> str:
    """A name or id within a line of ours: bare if it is one plain word, else in quotes.

    What it consists of cannot end the quotes, nor open or close a bracket.
    """
    text = str(name)
    if len(text) > MAX_LABEL:
        text = text[: MAX_LABEL - 1] + "…"
    if text and all(c.isalnum() or c in "._-" for c in text) and not _FILLERS & set(text):
        return text
    quoted = escape(_BRACKETS.sub(_as_escape, text))
    return '"' + "".join(f"\\u{ord(c):04x}" if c in _JOINERS else c for c in quoted) + '"'


def counted(count: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _as_escape(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def age(timestamp: object, now: float) -> str:
    """How long ago a message says that it was written; without a zone it is UTC.

    Empty where it does not say so readably.
    """
    try:
        moment = datetime.fromisoformat(str(timestamp))
        seconds = now - moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, OSError):
        return ""
    if -60 < seconds < 1:
        return "just now"
    if seconds < 0:
        return "dated in the future"
    return ago(seconds)


def aged(line: bytes, envelope: dict[str, Any], now: float) -> bytes:
    """A message as JSON with its ``age`` behind all that it says itself.

    Models read it, and cannot tell how long ago a timestamp is. A message that has such a
    field, or no readable timestamp, stays as it is.
    """
    written = age(envelope.get("timestamp"), now)
    if not written or "age" in envelope:
        return line
    return line.rstrip()[:-1] + f',"age":"{written}"}}'.encode()


def ago(seconds: float) -> str:
    """A moment that lies so far back, in its largest unit."""
    return f"{lasting(seconds)} ago" if seconds >= 1 else "just now"


def lasting(seconds: float) -> str:
    """A length of time in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


# -- messages ---------------------------------------------------------------------------------


def messages(
    envelopes: Sequence[dict[str, Any]], now: float, page: Page, draw: Draw | None = None
) -> str:
    """Messages in their order, each in its frame, all with the same mark.

    :param now: epoch seconds, for their ages.
    """
    heads = [_head(one, now) for one in envelopes]
    texts = [_text(one) for one in envelopes]
    bodies = [_body(text, page) for text in texts]
    mark = _mark([*bodies, *(part for head in heads for part in head)], draw or _draw)
    dim, bold, plain = (_DIM, _BOLD, _PLAIN) if page.colour else ("", "", "")
    lines = []
    for (which, sender, about), text, body in zip(heads, texts, bodies, strict=True):
        lines.append(
            f"{dim}[intercom {mark} {which} from {plain}{bold}{sender}{plain}{dim}{about}]{plain}"
        )
        if body:
            lines.append(body)
        size = _size(text)
        cut = ""
        if page.limit is not None and size > page.limit:
            cut = f" cut: {page.limit} of {size} bytes are shown"
        lines.append(f"{dim}[/intercom {mark}]{cut}{plain}")
    return "".join(line + "\n" for line in lines)


def fits(envelope: dict[str, Any], limit: int | None) -> bool:
    """Whether a message is shown whole under a limit."""
    return limit is None or _size(_text(envelope)) <= limit


def _draw(digits: int) -> str:
    return os.urandom((digits + 1) // 2).hex()[:digits]


def _mark(shown: Sequence[str], draw: Draw) -> str:
    """Draw what occurs nowhere in the texts; longer each time that it does."""
    digits = 4
    while True:
        mark = draw(digits)
        if not any(mark in text for text in shown):
            return mark
        digits += 1


def _head(envelope: dict[str, Any], now: float) -> tuple[str, str, str]:
    """Which message, from whom, and what else there is to say of it."""
    written = age(envelope.get("timestamp"), now)
    about = ["", written] if written else [""]
    if envelope.get("to_session") in ("*", "all"):
        about.append("to everybody")
    if envelope.get("type", "chat") != "chat":
        about.append(f"type {label(envelope['type'])}")
    if envelope.get("reply_to"):
        about.append(f"in reply to {label(envelope['reply_to'])}")
    sender = label(envelope.get("from_session", "unknown"))
    return label(envelope.get("id", "")), sender, ", ".join(about)


def _size(text: str) -> int:
    """The bytes of a body that is shown whole."""
    return len(text) if text.isascii() else len(text.encode())


def _text(envelope: dict[str, Any]) -> str:
    """What a message says, safe to show; its own line feeds are the only ones."""
    payload = dict(envelope.get("payload") or {})
    text = payload.pop("text", "")
    payload.pop("strict", None)  # said to the hub, as is the level
    if payload.get("durability") in LEVELS:
        del payload["durability"]
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    lines = text.removesuffix("\n").split("\n") if text else []
    if payload:
        lines.append("+ " + json.dumps(payload, ensure_ascii=False))
    return "\n".join(_line(line) for line in lines)


def _line(line: str) -> str:
    """Make a line of a body safe: tabs as spaces, a final carriage return dropped."""
    return _FRAMES.sub(_as_escape, escape(line.removesuffix("\r").expandtabs(4)))


def _body(text: str, page: Page) -> str:
    """What a message says, behind the bar; not more than the limit allows."""
    if page.limit is not None:
        text = text.encode()[: page.limit].decode("utf-8", "ignore")
    if not text:
        return ""
    lines = text.split("\n")
    if page.width is not None:
        room = max(16, page.width - len(BAR))
        lines = [piece for line in lines for piece in fold(line, room)]
    return "\n".join(BAR + line for line in lines)


# -- width ------------------------------------------------------------------------------------


def fold(line: str, width: int) -> list[str]:
    """Cut a line into pieces that a terminal shows in ``width`` columns each, at least one.

    Never between a character and what combines with it, unless that alone is too wide.
    """
    pieces: list[str] = []
    start = used = 0  # of the piece that is being cut: where it begins, its columns
    apart = before = 0  # where it may end, and its columns up to there
    joined = False
    for at, character in enumerate(line):
        size = columns(character)
        if not (joined or _combines(character)):
            apart, before = at, used
        joined = character == "\u200d"
        while used + size > width and at > start:
            if apart == start:  # too wide by itself
                apart, before = at, used
            pieces.append(line[start:apart])
            start, used, before = apart, used - before, 0
        used += size
    pieces.append(line[start:])
    return pieces


def _combines(character: str) -> bool:
    """Whether it is shown together with the character before it."""
    return character in _JOINERS or unicodedata.category(character) in _MARKS


def columns(character: str) -> int:
    """How many columns a character takes at most, as far as terminals agree."""
    if character.isascii():
        return 1
    if character == _AS_EMOJI:
        return 1  # it makes the character before it wide
    if _combines(character):
        return 0
    if unicodedata.category(character) in ("Cn", "Co"):  # unknown here, and perhaps wide
        return 2
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
