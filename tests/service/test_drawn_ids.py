"""The ids that a hub gives to its own lines."""

from __future__ import annotations

import re
from itertools import islice

from intercom.hub.parts import drawn_ids


def test_ids_are_all_different_however_many_are_drawn() -> None:
    """They are cut from randomness that is fetched in bulk, and none of it is used twice."""
    drawn = list(islice(drawn_ids(), 2000))
    assert len(set(drawn)) == 2000
    assert all(re.fullmatch("msg_[0-9a-f]{12}", one) for one in drawn)
    assert set(drawn).isdisjoint(islice(drawn_ids(), 2000))
