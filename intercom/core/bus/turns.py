"""Work that waits for answers, written as generators.

A piece of work yields the name of an answer and goes on with it. Answers may come before they
are waited for, if they were announced.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
#: What yields names of answers, gets the answers, and has a result.
Step = Generator[Hashable, Any, T]
Work = Step[None]


class Turns:
    """Who waits for what."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[tuple[Work, Callable[[], None]]]] = {}
        self._early: dict[Hashable, list[Any]] = {}

    @property
    def pending(self) -> int:
        """Answers that are waited for."""
        return len(self._waiting)

    def expect(self, name: Hashable) -> None:
        """An answer will be waited for; it is kept if it comes before."""
        self._early[name] = []

    def start(self, work: Work, done: Callable[[], None]) -> bool:
        """Begin; whether it is through. If not, ``done`` is called once it is."""
        return self._go_on(work, None, done)

    def answer(self, name: Hashable, value: Any = None) -> None:
        """Here is an answer; whoever waits for it goes on at once."""
        waiting = self._waiting.pop(name, None)
        if waiting is None:
            if name in self._early:
                self._early[name].append(value)
            return
        for work, done in waiting:
            if self._go_on(work, value, done):
                done()

    def _go_on(self, work: Work, value: Any, done: Callable[[], None]) -> bool:
        while True:
            try:
                name = work.send(value)
            except StopIteration:
                return True
            early = self._early.pop(name, None)
            if not early:
                self._waiting.setdefault(name, []).append((work, done))
                return False
            value = early[0]
