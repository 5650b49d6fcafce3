"""What a look at a channel brings to light. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

#: How bad a finding is, the best first: as it should be; worth knowing; something does not
#: work as its user expects, or will not; something does not work.
SEVERITIES = ("ok", "note", "warning", "problem")
OK, NOTE, WARNING, PROBLEM = SEVERITIES
#: A finding names so many places of a file.
MOST_SPANS = 5


class Cure(NamedTuple):
    """How a finding is cured.

    :ivar key: findings with the same one are cured by the same piece of work.
    :ivar work: does it, and tells each thing done in words; raises IntercomError or OSError.
    """

    key: str
    work: Callable[[], list[str]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    :ivar severity: one of :data:`SEVERITIES`.
    :ivar code: stable, for programs (docs/operations.md, "A look at everything").
    :ivar text: one sentence for people.
    :ivar remedy: what to do, a command where there is one; empty if nothing is to be done.
    :ivar file: where, or an empty string.
    :ivar spans: bytes of that file, ``(start, end)``, the first :data:`MOST_SPANS`.
    :ivar count: how many there are of what was found.
    :ivar session: whose inbox it is about, None if about none.
    :ivar cure: None where it is not safe to cure by itself.
    """

    severity: str
    code: str
    text: str
    remedy: str = ""
    file: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    count: int = 1
    session: str | None = None
    cure: Cure | None = None

    def fields(self) -> dict[str, Any]:
        """The finding for programs."""
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.text,
            "remedy": self.remedy,
            "file": self.file or None,
            "ranges": [list(span) for span in self.spans],
            "count": self.count,
            "session": self.session,
            "fixable": self.cure is not None,
        }


def worst(findings: Iterable[Finding]) -> str:
    """The severity of the worst of them, ``ok`` if there are none."""
    return max((one.severity for one in findings), key=SEVERITIES.index, default=OK)


def duration(seconds: float) -> str:
    """A length of time in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def counted(count: int, noun: str) -> str:
    """``1 line``, ``2 lines``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sized(size: int) -> str:
    """A number of bytes in MiB or GiB."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
