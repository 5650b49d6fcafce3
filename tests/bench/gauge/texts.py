"""Texts that prove themselves: who sent them and which they are stands at both ends.

A text is ``[mark|filler|mark]`` with ``mark`` = sender number, colon, sequence number. It
holds nothing that JSON, or any framing of text, would write in another way. So whatever
the protocol around it, texts are found in the bytes that come from a socket by looking
for the filler, which all of one run share: what stands before and behind it must be the
two halves of one text. Standard library only, and fast: this runs beside what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

_SENDER, _SEQUENCE = 5, 9
_MARK = _SENDER + 1 + _SEQUENCE
_WORDS = "pack my box with five dozen liquor jugs and say nothing of it to anybody, please; "
#: Bytes of a text beside its filler.
_AROUND = 2 * (_MARK + 2)
#: A shorter filler might be met by chance.
SHORTEST = _AROUND + 16


class Broken(Exception):
    """A server did not do what every server must; its figures would be worth nothing."""


def _filler(size: int) -> str:
    if size < SHORTEST:
        raise ValueError(f"a text has at least {SHORTEST} characters, not {size}")
    room = size - _AROUND
    return (_WORDS * (room // len(_WORDS) + 1))[:room]


class Texts:
    """Writes the texts of one run.

    :param size: characters, and bytes, of each.
    """

    def __init__(self, size: int) -> None:
        self._middle = f"|{_filler(size)}|"

    def write(self, sender: int, sequence: int) -> str:
        """The text number ``sequence`` of a sender."""
        mark = f"{sender:0{_SENDER}d}:{sequence:0{_SEQUENCE}d}"
        return f"[{mark}{self._middle}{mark}]"


class Arrivals:
    """Finds the texts of one run in what a connection receives, however it is cut.

    :param size: as given to :class:`Texts`.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._middle = f"|{_filler(size)}|".encode()
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Take the next bytes; return sender and sequence of each text that they complete.

        A text whose filler is damaged is not found, and so missed in its sequence.

        :raise Broken: the two ends of a text do not match.
        """
        data = self._rest + data
        parts = data.split(self._middle)
        found: list[tuple[int, int]] = []
        before = parts[0]
        for index in range(1, len(parts)):
            behind = parts[index]
            if index == len(parts) - 1 and len(behind) <= _MARK:
                # Its end has not come: begin with this text the next time.
                self._rest = before[-_MARK - 1 :] + self._middle + behind
                return found
            mark = before[-_MARK:]
            if before[-_MARK - 1 : -_MARK] != b"[" or behind[: _MARK + 1] != mark + b"]":
                raise Broken(f"a text arrived damaged: {before[-40:]!r} ... {behind[:40]!r}")
            found.append((int(mark[:_SENDER]), int(mark[_SENDER + 1 :])))
            before = behind[_MARK + 1 :]
        self._rest = before[-self._size :]
        return found


class Ledger:
    """What one receiver must get of each sender: each once, in order, none left out.

    :param first: the sequence number of each sender's first text for this receiver.
    :param step: from one to the next; a sender that serves several receivers in turn
        counts on through all of them.
    """

    def __init__(self, first: Mapping[int, int], step: int) -> None:
        self._due = dict(first)
        self._step = step

    def enter(self, sender: int, sequence: int) -> None:
        """Note an arrival.

        :raise Broken: it is not the one that is due.
        """
        due = self._due.get(sender)
        if sequence == due:
            self._due[sender] = sequence + self._step
            return
        if due is None:
            raise Broken(f"text {sequence} of sender {sender} came to a stranger")
        what = "came again or late" if sequence < due else "came, so that one is lost or damaged"
        raise Broken(f"sender {sender}: text {due} was due, and {sequence} {what}")
