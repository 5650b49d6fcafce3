"""A message that waits in replace mode when the hub ends."""

from __future__ import annotations

import os
import signal
import time

import pytest
from mesh_hub import Hub
from pi_broker_process import until

#: Half of the time that a message waits for the next of its thread.
SOON_S = 0.75


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_waits_in_replace_mode_survives(own_hub: Hub, end: signal.Signals) -> None:
    """Of a thread only the last does. What is delivered does not come again."""
    log = own_hub.channel_directory / "pi_staged.ndjson"
    for attempt in range(20):
        sender, receiver = f"wu-staging-{attempt}", f"vi-staging-{attempt}"
        wu, vi = own_hub.subagents(sender), own_hub.subagents(receiver, status="idle")
        began = time.monotonic()
        said = []
        for name, thread in (("m1", "t"), ("m2", "other"), ("m3", "t")):
            fields = {"delivery": "queue", "queueMode": "replace", "threadId": thread}
            said.append(wu.send(receiver, name, **fields)["type"])
        early, kept = vi.mail(), log.exists()
        os.kill(own_hub.pid, end)
        in_time = time.monotonic() - began < SOON_S  # else some may have waited long enough
        assert own_hub.ended() == (0 if end != signal.SIGKILL else -end)
        own_hub.hang_up()
        own_hub.start()
        if in_time:
            break
    assert said == ["delivery_queued"] * 3
    assert (early, kept) == ([], True)
    vi = own_hub.subagents(receiver, status="idle")
    assert sorted(frame["message"]["id"] for frame in vi.mail()) == ["m2", "m3"]
    until(lambda: not log.exists(), "what has been delivered is kept")
    own_hub.restart()
    assert own_hub.subagents(receiver, status="idle").mail() == []
