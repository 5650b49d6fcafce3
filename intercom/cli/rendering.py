"""How the commands show messages: as all do (``intercom.showing``), with chance from the system."""

from __future__ import annotations

import os

from intercom.showing.blocks import Block, Known, Page, Ways, render
from intercom.showing.words import age
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def draw(digits: int) -> str:
    """Draw so many hexadecimal digits."""
    return os.urandom((digits + 1) // 2).hex()[:digits]


def messages(
    found: Sequence[Mapping[str, Any]],
    now: float,
    page: Page,
    known: Sequence[Known] = (),
    ways: Ways | None = None,
) -> Block:
    """Messages in their frames; see :func:`intercom.showing.blocks.render`."""
    return render(found, now, draw, known=known, page=page, ways=ways)


def aged(line: bytes, envelope: dict[str, Any], now: float) -> bytes:
    """A message as JSON with its ``age`` behind all that it says itself.

    Models read it, and cannot tell how long ago a timestamp is. A message that has such a
    field, or no readable timestamp, stays as it is.
    """
    written = age(envelope.get("timestamp"), now)
    if not written or "age" in envelope:
        return line
    return line.rstrip()[:-1] + f',"age":"{written}"}}'.encode()
