"""Whether the program that started us still lives. Standard library only."""

from __future__ import annotations

import os

from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Orphaned(Exception):
    """The program that started us has ended: what we would still show, nobody sees."""


#: The process that adopts those whose parent has ended, in every process namespace.
_INIT = 1


class Parent:
    """The process that started us, told from the one that adopts us when it ends.

    Asking costs one system call, and no signal can be missed. Whoever was started without a
    parent, by init or behind a shell that had ended already, has none to lose.
    """

    def __init__(self, ask: Callable[[], int] = os.getppid) -> None:
        self._ask = ask
        self._pid = ask()

    def is_gone(self) -> bool:
        """Whether we had a parent, and it has ended."""
        return self._pid != _INIT and self._ask() != self._pid

    def check(self) -> None:
        """Make sure that it has not.

        :raise Orphaned: it has.
        """
        if self.is_gone():
            raise Orphaned
