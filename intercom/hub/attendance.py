"""Who is connected, whatever is spoken: numbers, room, and how long nobody was here."""

from __future__ import annotations


class Attendance:
    """Counts the connections of one hub.

    :param most: so many are served at the same time.
    :param now: when the hub began.
    """

    def __init__(self, most: int, now: float) -> None:
        self._most = most
        self._here: set[int] = set()
        self._last = 0
        self._empty_since = now

    def __len__(self) -> int:
        return len(self._here)

    def number(self) -> int:
        """A number that no connection ever had."""
        self._last += 1
        return self._last

    def arrive(self) -> int:
        """A connection was made; its number."""
        number = self.number()
        self._here.add(number)
        return number

    def leave(self, number: int, now: float) -> None:
        """A connection is gone. Idempotent."""
        if number in self._here:
            self._here.discard(number)
            if not self._here:
                self._empty_since = now

    def room(self) -> int:
        """How many more are served; below 0 there are too many."""
        return self._most - len(self._here)

    def restart(self, now: float) -> None:
        """The hub serves from now on."""
        self._empty_since = now

    def idle_for(self, now: float) -> float:
        """Seconds since the last connection left, or the start; 0.0 while any is here."""
        return 0.0 if self._here else now - self._empty_since
