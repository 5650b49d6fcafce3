"""Order of file and answer, timeouts, damaged files, ids of any length, directories by links."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from pi_broker_process import BrokerProcess, until

LONG = "long:" + "i" * 295
OWN = {"extensions": [{"namespace": "x", "ownerEligible": True}]}


def test_files_of_asks_come_and_go_before_the_sender_is_told(broker: BrokerProcess) -> None:
    with broker.join("ada") as ada, broker.join("bob") as bob:
        for number in range(40):
            file = broker.asks / f"m{number}.json"
            ada.ask("bob", f"m{number}")
            assert file.exists()
            bob.reply("ada", f"r{number}", f"m{number}")
            assert not file.exists()


def test_an_ask_times_out_and_the_next_send_finds_that_first(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(PI_INTERCOM_ASK_TIMEOUT_MS="3e3").start()
    with broker.join("ada") as ada, broker.join("bob") as bob:
        ada.ask("bob", "m1")
        assert bob.ask("ada", "q1")["code"] == "E_MUTUAL_ASK"
        created = json.loads((broker.asks / "m1.json").read_bytes())["createdAt"]
        # The hub reads another clock, in whole milliseconds: let it be over by any.
        until(lambda: time.time() * 1000 > created + 3100, "the time does not pass")
        assert bob.ask("ada", "q1")["type"] == "delivered"
        assert [one.name for one in broker.asks.iterdir()] == ["q1.json"]
        assert bob.reply("ada", "r1", "m1")["code"] == "E_REPLY_TARGET"


def test_ids_of_three_hundred_characters_do_for_asks_and_mail(broker: BrokerProcess) -> None:
    with broker.join("ada") as ada, broker.join(LONG) as bob:
        assert ada.ask(LONG, LONG)["type"] == "delivered"
        (file,) = broker.asks.iterdir()
        written = json.loads(file.read_bytes())
        assert written["messageId"] == LONG
        assert written["target"]["sessionId"] == LONG
        bob.receipt(LONG)
        bob.unregister()
        bob.health()
        assert ada.send(LONG, "m1")["delivery"] == "queued"
    broker.restart()
    with broker.join("ada") as ada, broker.join(LONG) as bob:
        assert bob.take("message")["message"]["id"] == "m1"
        assert bob.reply("ada", "r" + LONG, LONG)["type"] == "delivered"
        assert ada.take("message")["message"]["replyTo"] == LONG
        assert list(broker.asks.iterdir()) == []


def test_ids_that_are_alike_are_not_the_same(broker: BrokerProcess) -> None:
    """Case, forms of a letter, white space, and characters that a file name has not."""
    ids = ["bob", "BOB", "bob ", "b\u00f6b", "bo\u0308b", "b/b", "b%2Fb", "..", "*", "hub", "all"]
    ids += ["b\0b", "b\nb", "\U0001f600", "x" * 299 + "1", "x" * 299 + "2"]
    clients = {one: broker.join(one) for one in ids}
    for client in clients.values():
        client.unregister()
        client.health()
    with broker.join("ada") as ada:
        for number, one in enumerate(ids):
            assert ada.send(one, f"m{number}")["delivery"] == "queued", one
        for number, one in enumerate(ids):
            with broker.join(one) as client:
                assert client.mail() == [f"m{number}"], one


def test_a_damaged_state_falls_back_to_the_one_before(broker: BrokerProcess) -> None:
    file = broker.state_file("x")
    backup = file.with_name(f"{file.name}.bak")
    ada = broker.join("ada", session=OWN)
    epoch = ada.take("extension_owner", ownerId="ada")["ownerEpoch"]
    said = {"type": "extension_state_commit", "namespace": "x", "ownerEpoch": epoch}
    for revision, payload in enumerate(["one", "two"]):
        ada.write({**said, "expectedRevision": revision, "payload": payload})
        assert ada.take("extension_state_result")["committed"] is True
    assert json.loads(backup.read_bytes())["payload"] == "one"
    assert broker.stop() == 0
    broker.hang_up()
    file.write_bytes(file.read_bytes().replace(b'"two"', b'"too"'))
    broker.start()
    ada = broker.join("ada", session=OWN)
    assert ada.take("extension_state")["payload"] == "one"
    epoch = ada.take("extension_owner")["ownerEpoch"]
    ada.write({**said, "ownerEpoch": epoch, "expectedRevision": 1, "payload": "new"})
    result = ada.take("extension_state_result")
    assert (result["committed"], result["revision"]) == (True, 2)
    # the damaged one has not replaced the good one
    assert json.loads(backup.read_bytes())["payload"] == "one"
    assert json.loads(file.read_bytes())["payload"] == "new"


def test_one_directory_by_several_paths_is_one_identity(broker: BrokerProcess) -> None:
    real = broker.root / "project"
    real.mkdir()
    (broker.root / "link").symlink_to(real)
    here = {"name": "Robert", "cwd": f"{broker.root}/link/"}
    with broker.join("ada") as ada:
        with broker.join("bob", session=here) as bob:
            bob.unregister()
            bob.health()
        assert ada.send("bob", "m1")["delivery"] == "queued"
        with broker.join("new", session={"name": "robert", "cwd": f"{real}/."}) as heir:
            assert heir.take("message")["message"]["id"] == "m1"
        elsewhere = {"name": "Robert", "cwd": f"{broker.root}/gone/../project2"}
        with broker.join("two", session=elsewhere) as other:
            other.unregister()
            other.health()
        assert ada.send("two", "m2")["delivery"] == "queued"
        cleaned = {"name": "Robert", "cwd": f"{broker.root}/project2/"}
        with broker.join("six", session=cleaned) as heir:
            assert heir.mail() == ["m2"], "what is not there is compared by its cleaned path"
