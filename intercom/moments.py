"""``datetime`` for commands that start fast: its compiled part, without the one in Python.

Standard library only.
"""

from __future__ import annotations

from intercom.tuples import TYPE_CHECKING

__all__ = ["UTC", "datetime"]

if TYPE_CHECKING:
    from datetime import UTC, datetime
else:
    try:
        from _datetime import datetime, timezone
    except ImportError:  # an interpreter that has no compiled part
        from datetime import datetime, timezone

    UTC = timezone.utc  # noqa: UP017  the constant of this name is of the part in Python
