"""How the commands show messages: as all do (``intercom.showing``), with chance from the system."""

from __future__ import annotations

import os

from intercom.showing.blocks import Block, Known, Page, Ways, render
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
