"""Limits of replace mode and of sizes, frames as they come, and the order of what is heard."""

from __future__ import annotations

import json
import time
from typing import Any

from mesh_hub import Hub
from mesh_subagents_client import update
from pi_broker_process import until
from pi_connection import at_once
from pi_frames_client import MAX_FRAME, message, packed

#: So long a message waits for the next of its thread.
WAITS_S = 1.5
FULL = "Replace-mode delivery queue is full; retry after pending updates are delivered."


def in_thread(thread: str, **fields: Any) -> dict[str, Any]:
    return {"delivery": "queue", "queueMode": "replace", "threadId": thread, **fields}


# -- replace mode


def test_a_hundred_of_a_sender_wait_and_the_next_is_refused(hub: Hub) -> None:
    """All of it is said before the first has waited long enough; if it was not, once more."""
    for attempt in range(20):
        vi_id = f"vi-hundred-{attempt}"
        wu, vi = hub.subagents(f"wu-hundred-{attempt}"), hub.subagents(vi_id, status="idle")
        other = hub.subagents(f"xi-hundred-{attempt}")
        began = time.monotonic()
        waiting = [
            wu.send(vi_id, f"m{number}", **in_thread(f"t{number}"))["type"] for number in range(100)
        ]
        refused = wu.send(vi_id, "m100", **in_thread("t100"))
        # another's are not counted, and to replace one takes no room; what does not wait is sent
        beside = other.send(vi_id, "x0", **in_thread("t100"))
        again = wu.send(vi_id, "m101", **in_thread("t50"))
        if time.monotonic() - began < WAITS_S:
            break
    assert waiting == ["delivery_queued"] * 100
    assert (refused["type"], refused["reason"]) == ("delivery_failed", FULL)
    assert (beside["type"], again["type"]) == ("delivery_queued", "delivery_queued")
    assert wu.send(vi_id, "m102")["type"] == "delivered"
    found = []
    while len(found) < 102:
        found.append(vi.take("message")["message"]["id"])
    expected = {f"m{number}" for number in range(100)} - {"m50"} | {"m101", "m102", "x0"}
    assert set(found) == expected
    assert vi.mail() == []
    # there is room again
    assert wu.send(vi_id, "m103", **in_thread("t"))["type"] == "delivery_queued"


def test_a_thousand_wait_in_all(hub: Hub) -> None:
    """Of eleven hundred that come before the first of them has waited long enough."""
    senders = [hub.subagents(f"sender-{number}") for number in range(11)]
    hub.subagents("vi-thousand", status="idle")
    for round_ in range(20):
        names = [f"m{round_}-{number}" for number in range(100)]
        frames = [
            {"type": "send", "to": "vi-thousand", "message": message(name, "", **in_thread(name))}
            for name in names
        ]
        began = time.monotonic()
        for client in senders:
            client.write(*frames)
        answers = [one.outcome(name) for one in senders for name in names]
        if time.monotonic() - began < WAITS_S:
            break
        time.sleep(2 * WAITS_S)  # too slow: there was room again; once more when all have left
    refused = [one["reason"] for one in answers if one["type"] != "delivery_queued"]
    assert refused == [FULL] * 100


def test_one_that_replaces_all_the_time_is_heard(hub: Hub) -> None:
    """A thread never waits much longer than its first message would have."""
    wu, vi = hub.subagents("wu-busy-one"), hub.subagents("vi-busy-one", status="idle")
    count = 0

    def heard() -> bool:
        nonlocal count
        wu.send("vi-busy-one", f"m{count}", **in_thread("t"))
        count += 1
        return bool(vi.mail())

    until(heard, "nothing of it comes")
    assert count > 1


# -- sizes


def test_a_message_too_large_in_the_form_of_its_receiver_is_refused(hub: Hub) -> None:
    """Whether it would be staged or not; one that is a little smaller is delivered."""
    wu, vi = hub.subagents("wu-large"), hub.subagents("vi-large", status="idle")
    wu.send("vi-large", "m0")
    frame = vi.take("message")
    for fields in (in_thread("t"), {}):
        whole = {**frame, "message": message("m1", "", **fields)}
        room = MAX_FRAME - len(json.dumps(whole, separators=(",", ":")))
        over = wu.send("vi-large", "m1", "x" * (room + 1), **fields)
        reason = f"Intercom message too large ({MAX_FRAME + 1} bytes; max {MAX_FRAME})"
        assert (over["type"], over["reason"]) == ("delivery_failed", reason)
        fits = wu.send("vi-large", "m2", "x" * (room - 1000), **fields)
        assert fits["type"] == ("delivery_queued" if fields else "delivered")
        assert len(vi.take("message")["message"]["content"]["text"]) == room - 1000


def test_a_publication_that_a_subscriber_cannot_be_told_of_changes_nothing(hub: Hub) -> None:
    """Beside the text its frame holds who publishes; a long name makes it too much."""
    wu = hub.subagents("wu-publishing", name="n" * 300_000)
    vi = hub.subagents("vi-publishing", topics=False, subscriptions=[{"topic": "t"}])
    text = "x" * 400_000
    said = wu.listing(action="publish", topic=update("t", text))
    assert said["error"].startswith("Intercom message too large (")
    assert said["sessions"] == []
    (row,) = (one for one in wu.list() if one["id"] == "wu-publishing")
    assert "topics" not in row
    assert vi.mail() == []
    # the short form says the text once, and that fits
    vi.close()
    short = hub.subagents("yo-publishing", subscriptions=[{"topic": "t"}])
    assert [one["delivered"] for one in wu.publish("t", text)] == [True]
    assert short.take("message")["message"]["content"]["text"] == text


def test_a_listing_that_is_too_large_says_so_and_comes_in_parts(hub: Hub) -> None:
    names = [letter * 600_000 for letter in "ab"]
    for number, name in enumerate(names):
        hub.subagents(f"large-{number:03d}", name=name)
    old = hub.subagents("wu-listing", topics=False)
    said = old.listing()
    assert said["sessions"] == []
    assert said["error"].startswith("Intercom message too large (")
    new = hub.subagents("vi-listing")
    assert [row.get("name") for row in new.list()] == [*names, None, None]
    old.write({"type": "send", "to": "vi-listing", "message": message("m1")})
    assert old.outcome("m1")["type"] == "delivered"


# -- frames and their order


def test_any_cut_will_do_and_what_is_no_frame_ends_that_connection_only(hub: Hub) -> None:
    wu, vi = hub.subagents("wu-cutting"), hub.subagents("vi-cutting")
    data = packed(
        *({"type": "send", "to": "vi-cutting", "message": message(f"m{n}")} for n in range(3))
    )
    for at in range(len(data)):
        wu.write_bytes(data[at : at + 1])
    assert [wu.outcome(f"m{n}")["type"] for n in range(3)] == ["delivered"] * 3
    bad = [bytes(4), (MAX_FRAME + 1).to_bytes(4), b"\0\0\0\3{x}", b"\0\0\0\2[]", b"\0\0\0\x0a"]
    bad[-1] += b'{"type":1}'
    for number, garbage in enumerate(bad):
        other = hub.subagents(f"bad-{number:04d}")
        other.write_bytes(packed({"type": "presence", "status": "here"}) + garbage)
        assert other.ended() == []
        assert wu.take("session_left")["sessionId"] == f"bad-{number:04d}"
    assert [one["message"]["id"] for one in vi.mail()] == ["m0", "m1", "m2"]


def test_a_message_is_written_before_its_sender_is_told(hub: Hub) -> None:
    wu, vi = hub.subagents("wu-ordering"), hub.subagents("vi-ordering")
    for number in range(50):
        assert wu.send("vi-ordering", f"m{number}")["type"] == "delivered"
        assert at_once(vi) == ["message"]
    vi.subscribe("t")
    for _ in range(20):
        wu.publish("t", "x", "blocker")
        assert at_once(vi) == ["message"]


def test_it_is_so_for_one_that_has_just_registered(hub: Hub) -> None:
    """Its inbox is read just then."""
    wu = hub.subagents("wu-welcoming")
    for number in range(40):
        vi = hub.subagents(f"vi-new-{number}")
        assert wu.send(f"vi-new-{number}", "m")["type"] == "delivered"
        assert "message" in at_once(vi)


def test_nobody_is_too_fast_or_too_many(hub: Hub) -> None:
    """These clients' own broker has no such limits."""
    crowd = [hub.subagents(f"session-{number}", topics=False) for number in range(150)]
    assert len(crowd[0].list()) == 150
    wu = hub.subagents("wu-crowding", topics=False)
    wu.write(*({"type": "list", "requestId": f"fast {n}"} for n in range(600)))
    for number in range(600):
        wu.take("sessions", requestId=f"fast {number}")
    hub.join("ada")
    assert wu.send("ada", "m1")["type"] == "delivered"
