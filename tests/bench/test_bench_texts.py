"""Texts that prove themselves, and the ledger of those that are due."""

from __future__ import annotations

import pytest
from gauge.texts import SHORTEST, Arrivals, Broken, Ledger, Texts


@pytest.mark.parametrize("size", [SHORTEST, 200])
def test_texts_are_found_however_their_bytes_are_cut(size: int) -> None:
    """In any framing: what stands between two texts does not matter."""
    texts = Texts(size)
    wanted = [(sender, sequence) for sequence in range(3) for sender in (7, 12345)]
    written = [texts.write(*one).encode() for one in wanted]
    assert {len(text) for text in written} == {size}
    stream = b'{"text":"' + b'"}\n{"type":"cursor"}\n{"text":"'.join(written) + b'"}\n'
    for step in range(1, 2 * size, 7):
        arrivals = Arrivals(size)
        pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
        assert [one for piece in pieces for one in arrivals.feed(piece)] == wanted


def test_a_ledger_knows_what_each_receiver_is_due() -> None:
    """A sender that serves three receivers in turn counts on through all of them."""
    ledger = Ledger({0: 1, 1: 0}, 3)
    for sender, sequence in ((0, 1), (1, 0), (0, 4), (1, 3)):
        ledger.enter(sender, sequence)
    with pytest.raises(Broken, match="text 7 was due, and 5"):
        ledger.enter(0, 5)
    with pytest.raises(Broken, match="stranger"):
        ledger.enter(2, 0)
