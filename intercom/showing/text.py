r"""Text of strangers, made harmless to look at: for terminals, and for models.

Three steps, each on top of the one before:

* :func:`escape` writes what is not seen, or changes how the rest is seen, as its escape:
  control, format and bidirectional characters, line separators, blank letters, invisible
  marks, piles of marks.
* :func:`neutral` also writes the bracket of what looks like a frame of ours, or like a tag of
  an agent's host, as ``\x5b`` or ``\x3c``. Full-width and other compatibility forms count as
  what they look like, marks for nothing; letters of other alphabets that look alike do not.
* :func:`label` makes one word of a name, within a line of ours.
"""

from __future__ import annotations

from intercom.plain import cache
from intercom.showing.hosts import TAGS
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    import re

#: Longest name or id that a line of ours shows, in characters: as long as a session id can be.
MAX_LABEL = 128
#: More combining marks than this on one character only hide what is above and below it.
_MAX_MARKS = 8
#: Invisible, yet part of scripts and emoji: the two joiners, between characters beyond ASCII.
JOINERS = frozenset("\u200c\u200d")
#: Choose whether a character is drawn as text or as an emoji; keycaps are made of ASCII ones.
_STYLES = frozenset("\ufe0e\ufe0f")
_KEYS = frozenset("0123456789#*")
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
MARKS = frozenset({"Mn", "Me"})
#: Letters by their category, blanks by their looks.
FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
#: Marks by their category that nobody sees, but for the two styles and U+E0100 to U+E01EF.
_UNSEEN = frozenset(
    map(chr, (0x34F, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE0E)))
)
_OPENING = "[<\uff3b\uff1c"
#: What may stand between and on letters without making another word of them: joiners, marks.
_OVER = r"\u200c\u200d\u0300-\u036f\ufe0e\ufe0f"
_GAP = rf"[\s{_OVER}]*+"
_WORD = rf"[\w{_OVER}\-\u2010-\u2015\u2212\ufe58\ufe63\uff0d]{{1,64}}+"
#: Whatever may turn out to be a frame: a bracket, perhaps a slash, and a word.
_FRAME = (
    rf"([\[\uff3b<\uff1c])({_GAP}(?:[/\uff0f]{_GAP})?+)({_WORD})"
    r"|([<\uff1c])([|\uff5c][^\s<>]{1,64}?)([|\uff5c][>\uff1e])"
)
_JOINTS = dict.fromkeys(map(ord, "_\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
_BRACKETS = "[]<>\uff3b\uff3d\uff1c\uff1e"


@cache
def _frame() -> re.Pattern[str]:
    import re  # plain text needs none, and it takes a while to load

    return re.compile(_FRAME)


def escape(text: str) -> str:
    """Write what would not be seen, or would change how the rest is seen, as its escape."""
    if text.isascii() and text.isprintable():
        return text
    from unicodedata import category as category_of

    pieces = []
    marks, before = 0, ""
    for at, character in enumerate(text):
        category = category_of(character)
        marks = marks + 1 if category in MARKS else 0
        if character in JOINERS:
            hidden = not _joins(before, text[at + 1 : at + 2])
        elif character in _STYLES:
            hidden = before in _STYLES or not (_is_beyond(before) or before in _KEYS)
        else:
            hidden = category in _ESCAPED or _is_unseen(character) or marks > _MAX_MARKS
        pieces.append(character.encode("unicode_escape").decode() if hidden else character)
        before = character
    return "".join(pieces)


def _joins(before: str, after: str) -> bool:
    """Whether a joiner between these two does what joiners are for."""
    return _is_beyond(before) and _is_beyond(after) and not {before, after} & JOINERS


def _is_beyond(character: str) -> bool:
    """Whether it is a character beyond ASCII."""
    return bool(character) and not character.isascii()


def _is_unseen(character: str) -> bool:
    """Whether it takes no ink although its category is that of letters or marks."""
    return character in FILLERS or character in _UNSEEN or "\U000e0100" <= character <= "\U000e01ef"


def neutral(text: str, tab: int | None = None) -> str:
    """Make what a sender wrote safe to show; its own line feeds are the only ones.

    In Unicode's composed form (NFC). A carriage return before a line feed is dropped.

    :param tab: columns of a tab, which becomes spaces; None leaves tabs as they are.
    """
    lines = [_line(line.removesuffix("\r"), tab) for line in text.split("\n")]
    said = "\n".join(lines)
    if not any(bracket in said for bracket in _OPENING):
        return said
    return _frame().sub(_disarmed, said)


def _line(line: str, tab: int | None) -> str:
    if tab is not None:
        line = line.expandtabs(tab)
    if line.isascii() and line.isprintable():
        return line
    from unicodedata import normalize

    # Composed only when there are few marks in a row: many would be sorted for minutes.
    return normalize("NFC", "\t".join(map(escape, line.split("\t"))))


def _disarmed(found: re.Match[str]) -> str:
    """What was found, with its bracket as an escape if it is a frame."""
    bracket, between, word, opening, inside, closing = found.groups()
    if opening is not None:
        return _as_escape(opening) + inside + closing
    folded = _folded(word)
    if bracket in "[\uff3b":
        is_frame = folded.startswith("intercom")
    else:
        is_frame = folded.translate(_JOINTS).startswith(TAGS)
    return (_as_escape(bracket) if is_frame else bracket) + between + word


def _folded(word: str) -> str:
    """What a word looks like, in lower case."""
    if word.isascii():
        return word.lower()
    from unicodedata import category, normalize

    plain = (c for c in normalize("NFKD", word) if c not in JOINERS and category(c) not in MARKS)
    return "".join(plain).casefold()


def _as_escape(bracket: str) -> str:
    return f"\\x{ord(bracket):02x}" if bracket.isascii() else f"\\u{ord(bracket):04x}"


def label(name: object) -> str:
    """A name or id within a line of ours: bare if it is one plain word, else in quotes.

    What it consists of cannot end the quotes, nor open or close a bracket.
    """
    text = str(name)
    if len(text) > MAX_LABEL:
        text = text[: MAX_LABEL - 1] + "…"
    if text and all(c.isalnum() or c in "._-" for c in text) and not FILLERS & set(text):
        return text
    quoted = escape("".join(_as_escape(c) if c in _BRACKETS + '"\\' else c for c in text))
    return '"' + "".join(_as_escape(c) if c in JOINERS else c for c in quoted) + '"'


def is_sayable(name: str) -> bool:
    """Whether a name can be written in a command that is to be repeated, as it is."""
    return (
        0 < len(name) <= MAX_LABEL
        and escape(name) == name
        and not {*_BRACKETS, *JOINERS} & set(name)
    )
