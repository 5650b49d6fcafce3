"""How wide text is on a terminal, and where a line may be folded."""

from __future__ import annotations

import unicodedata

from intercom.showing.text import JOINERS, MARKS

_AS_EMOJI = "\ufe0f"


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
    return character in JOINERS or unicodedata.category(character) in MARKS


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
