"""Python's garbage collector, for a process that is a hub and nothing else."""

from __future__ import annotations

import gc

#: New containers, more than were freed again, before the youngest are looked through; how many
#: of these before the middle ones are, and of those before all. Python's 700 are reached every
#: few messages, though reference counts free nearly all that a message leaves behind: what is
#: left for the collector is what closed connections and failures hold in circles.
_THRESHOLDS = 20_000, 20, 50


def relax() -> None:
    """Have it look seldom; at once, since loading a program makes nothing but what stays."""
    gc.set_threshold(*_THRESHOLDS)


def freeze() -> None:
    """Have it never look again at what exists now: modules, classes, the parts of a hub.

    Called when a hub is ready. One look through all of that takes longer than a hundred
    messages; a tenth to a fifth of the time of a busy hub went there (docs/performance).
    """
    gc.freeze()
