"""Where a session really stands in its inbox, whatever its small files say. Pure.

Damage never loses a message silently: where the true position cannot be known, reading
begins earlier, so that messages may be seen twice. The rules, from ``docs/protocol``:

* no offset file: the beginning of the current generation;
* an offset of an older generation: the beginning of the current one;
* an offset past the end: somebody has reset the inbox; the beginning of a generation
  that is raised by one (whoever next holds the exclusive lock writes that down);
* an offset that stands within a line: the beginning of that line;
* an offset without a generation (written by the original programs) counts as current.
"""

from __future__ import annotations

from intercom.errors import StalePosition
from intercom.records import Position
from intercom.spool.format import LARGEST, Damaged, Mark, Meta, Stored
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Tells the last record boundary at or before a byte of the inbox.
    Boundary = Callable[[int], int]


class Resolution(NamedTuple):
    """The true state of an inbox's position.

    :ivar position: where reading goes on; its generation is the current one.
    :ivar raised: the generation is raised by this resolution and not yet on disk.
    :ivar emptied: a mark was found whose emptying had happened; to be finished.
    :ivar warning: what was wrong with the stored position, or an empty string.
    """

    position: Position
    raised: bool = False
    emptied: bool = False
    warning: str = ""


def resolve(
    stored: Stored | Damaged | None,
    meta: Meta | Damaged | None,
    size: int,
    boundary: Boundary,
    head: Callable[[int], str],
) -> Resolution:
    """Work out the true position from what the small files say.

    :param stored: the offset file's content, None if there is none.
    :param meta: the meta file's content, None if there is none.
    :param size: the inbox's size in bytes, 0 if there is none.
    :param boundary: see :data:`Boundary`; asked only for places inside the file.
    :param head: what a mark would remember of that many first bytes of the inbox.
    """
    emptied = False
    generation = 1
    if isinstance(meta, Meta):
        emptied = meta.mark is not None and was_emptied(meta.mark, size, head)
        generation = meta.mark.to if emptied and meta.mark is not None else meta.generation
    if isinstance(stored, Stored) and stored.generation is not None:
        generation = max(generation, stored.generation)
    start = Position(generation, 0)
    if stored is None:
        return Resolution(start, emptied=emptied)
    if isinstance(stored, Damaged):
        warning = f"the offset file is damaged ({stored}); reading from the beginning"
        return Resolution(start, emptied=emptied, warning=warning)
    if stored.generation is not None and stored.generation < generation:
        return Resolution(start, emptied=emptied)
    if stored.offset > size:
        warning = f"the inbox was reset: it ends at byte {size}, before the stored offset"
        raised = Position(raise_generation(generation), 0)
        return Resolution(raised, raised=True, emptied=emptied, warning=warning)
    place = boundary(stored.offset)
    warning = ""
    if place != stored.offset:
        warning = f"the stored offset {stored.offset} stands inside a line that begins at {place}"
    return Resolution(Position(generation, place), emptied=emptied, warning=warning)


def was_emptied(mark: Mark, size: int, head: Callable[[int], str]) -> bool:
    """Whether the emptying that a mark announces took place before its writer died.

    A file as long as before or longer that still begins as it did was not emptied; one
    that others have appended to since then begins differently.
    """
    return size < mark.size or head(mark.size) != mark.head


def raise_generation(generation: int) -> int:
    """The generation after a reset or compaction."""
    return min(generation + 1, LARGEST)


def place(start: Position, generation: int, size: int, boundary: Boundary) -> Position:
    """Where a read that asks for ``start`` begins.

    Of another generation, or past the end: the current generation's beginning. Inside a
    line: that line's beginning.
    """
    if start.generation != generation or not 0 <= start.offset <= size:
        return Position(generation, 0)
    return Position(generation, boundary(start.offset))


def advance(stored: Position, wanted: Position, size: int, boundary: Boundary) -> Position:
    """Decide what a commit of ``wanted`` stores; a position behind ``stored`` changes nothing.

    :param stored: the true position, in the current generation.
    :raise StalePosition: another generation, no record boundary, or past the end.
    """
    problem = ""
    if wanted.generation != stored.generation:
        problem = f"the inbox is in generation {stored.generation}, not {wanted.generation}"
    elif not 0 <= wanted.offset <= size:
        problem = f"the inbox ends at byte {size}, not at {wanted.offset}"
    elif boundary(wanted.offset) != wanted.offset:
        problem = f"byte {wanted.offset} is inside a line"
    if problem:
        raise StalePosition(
            problem,
            remedy="read again from the stored position: intercom poll",
            details={"generation": stored.generation, "offset": stored.offset},
        )
    return max(stored, wanted)
