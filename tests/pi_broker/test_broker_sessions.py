"""Sessions that take over from one another, and the order in which the others hear of things."""

from __future__ import annotations

import contextlib
import socket

from pi_broker_process import BrokerProcess
from pi_connection import at_once
from pi_frames_client import message, packed, register_frame

# -- order between connections


def test_a_message_is_written_before_its_sender_is_told(broker: BrokerProcess) -> None:
    with broker.join("ada") as ada, broker.join("bob") as bob:
        for number in range(100):
            assert ada.send("bob", f"m{number}")["delivery"] == "socket_delivered"
            assert at_once(bob) == ["message"]


def test_the_others_hear_that_a_session_left_before_it_is_closed(broker: BrokerProcess) -> None:
    with broker.join("ada") as ada:
        for number in range(10):
            with broker.join(f"b{number}") as leaver:
                ada.take("session_joined")
                leaver.socket.shutdown(socket.SHUT_WR)
                leaver.ended()
                assert at_once(ada) == ["session_left"]


def test_mail_comes_in_one_order_whoever_is_faster(broker: BrokerProcess) -> None:
    """What was queued comes before what is sent while its receiver comes back."""
    with broker.join("ada") as ada:
        names = [f"m{number}" for number in range(200)]
        frames = [{"type": "send", "to": "bob", "message": message(name)} for name in names]
        with broker.join("bob") as bob:
            bob.unregister()
            bob.health()
        ada.write(*frames[:100])
        for name in names[:100]:
            assert ada.outcome(name)["delivery"] == "queued"
        with broker.connect() as bob:
            bob.write(register_frame("bob"))
            ada.write(*frames[100:])
            for name in names:
                assert bob.take("message")["message"]["id"] == name
            for name in names[100:]:
                assert ada.outcome(name)["type"] == "delivered"
            assert bob.mail() == []


# -- taking over


def test_a_session_that_is_taken_over_again_and_again_never_leaves(broker: BrokerProcess) -> None:
    with broker.join("ada") as ada:
        crowd = [broker.join("bob")]
        ada.take("session_joined")
        epochs = set()
        for _ in range(30):
            crowd.append(broker.join("bob"))
            epochs.add(ada.take("session_joined")["session"]["endpointEpoch"])
            assert ada.ids() == ["ada", "bob"]
        for old in crowd[:-1]:
            old.ended()
            old.close()
        assert ada.ids() == ["ada", "bob"]
        assert ada.arrived == []
        assert len(epochs) == 30


def test_who_was_replaced_speaks_for_nobody(broker: BrokerProcess) -> None:
    """Whether what it says is read before or after it was replaced, or never."""
    with broker.join("ada") as ada:
        for number in range(8):
            old = broker.join("bob")
            ada.take("session_joined")
            with broker.connect() as new:
                new.write(register_frame("bob", session={"status": "new"}))
                new.take("registered")
                with contextlib.suppress(OSError):
                    said = {"type": "send", "to": "ada", "message": message(f"m{number}")}
                    leave = {"type": "unregister"}
                    old.write_bytes(packed({"type": "presence", "status": "old"}, said, leave))
                old.ended()
                old.close()
                ada.take("session_joined")
                assert [row.get("status") for row in ada.list()] == [None, "new"]
                assert ada.arrived == [], "nothing of what it said is heard"
                new.unregister()
                ada.take("session_left", sessionId="bob")


def test_registers_at_the_same_time_leave_one_session(broker: BrokerProcess) -> None:
    with broker.join("ada") as ada:
        crowd = [broker.connect() for _ in range(20)]
        for one in crowd:
            one.write(register_frame("bob"))
        for one in crowd:
            one.take("registered")
        assert ada.ids() == ["ada", "bob"]
        assert ada.send("bob", "m1")["delivery"] == "socket_delivered"
        *replaced, last = crowd
        for one in replaced:
            one.ended()
        assert last.mail() == ["m1"]


def test_drawn_ids_are_each_others_strangers(broker: BrokerProcess) -> None:
    crowd = [broker.join() for _ in range(20)]
    ids = [row["id"] for row in crowd[0].list()]
    assert len(set(ids)) == 20
    assert crowd[1].send(ids[7][:13], "m1")["delivery"] == "socket_delivered"
    assert crowd[7].mail() == ["m1"]
