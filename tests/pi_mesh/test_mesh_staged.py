"""A message that waits in replace mode when the hub ends."""

from __future__ import annotations

import signal

import pytest
from mesh_hub import Hub


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_waits_in_replace_mode_survives(own_hub: Hub, end: signal.Signals) -> None:
    """Of a thread only the last does. What is delivered does not come again."""
    wu = own_hub.subagents("wu-staging")
    vi = own_hub.subagents("vi-staging", status="idle")
    for name, thread in (("m1", "t"), ("m2", "other"), ("m3", "t")):
        fields = {"delivery": "queue", "queueMode": "replace", "threadId": thread}
        assert wu.send("vi-staging", name, **fields)["type"] == "delivery_queued"
    assert vi.mail() == []
    log = own_hub.channel_directory / "pi_staged.ndjson"
    assert log.exists()
    own_hub.restart(end)
    vi = own_hub.subagents("vi-staging", status="idle")
    assert sorted(frame["message"]["id"] for frame in vi.mail()) == ["m2", "m3"]
    assert not log.exists()
    own_hub.restart()
    assert own_hub.subagents("vi-staging", status="idle").mail() == []
