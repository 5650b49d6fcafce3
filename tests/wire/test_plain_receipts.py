"""The receipt of nearly every message is written past the encoder, and reads the same."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from intercom.messages import Receipt
from intercom.wire.ndjson import Encoder

NAMES = st.text(min_size=1, max_size=20)
NOW = "2026-11-30T00:00:00.000000+00:00"
ENCODER = Encoder("röom", lambda: "msg_0123456789ab", lambda: NOW, {})


@given(NAMES, NAMES, st.sampled_from(["memory", "process", "disk"]), st.integers(0, 9))
def test_it_is_what_the_encoder_would_write(
    session: str, message_id: str, level: str, recipients: int
) -> None:
    """Whatever names hold: quotes, escapes, any script."""
    receipt = Receipt(session, message_id, "stored", level, recipients, recipients // 2)
    expected = {
        "id": "msg_0123456789ab",
        "type": "receipt",
        "from_session": "hub",
        "to_session": session,
        "channel": "röom",
        "reply_to": message_id,
        "payload": {
            "state": "stored",
            "level": level,
            "recipients": recipients,
            "live": recipients // 2,
        },
        "timestamp": NOW,
    }
    written = ENCODER.encode(receipt)
    assert written == msgspec.json.encode(expected)
    assert json.loads(written) == expected
