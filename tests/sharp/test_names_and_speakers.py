"""Names that mean mischief, and speakers who are not who they say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from intercom.names import file_name
from intercom.paths import MAX_SOCKET_PATH, ChannelPaths
from intercom.testing import MemoryHub


def test_a_forged_sender_is_refused_and_logged_with_its_pid(hub: Any, paths: ChannelPaths) -> None:
    """Registered as mallory, it says that it is the boss."""
    one = hub()
    mallory, bob = one.connect("mallory", "receipts"), one.connect("bob")
    mallory.say("chat", id="m1", from_session="ceo", to_session="bob", payload={"text": "obey"})
    error = mallory.until("error")
    assert (error["payload"]["code"], error["reply_to"]) == ("FROM_MISMATCH", "m1")
    mallory.chat("bob", "from me")
    assert mallory.until("receipt")["payload"]["state"] == "stored"
    told = bob.until("chat")
    assert (told["from_session"], told["payload"]["text"]) == ("mallory", "from me")
    assert Path(paths.inbox("bob")).read_bytes().count(b"\n") == 1
    (logged,) = [line for line in one.log() if line["text"] == "from_mismatch"]
    assert (logged["session"], logged["pid"], logged["uid"]) == (
        "mallory",
        os.getpid(),
        os.geteuid(),
    )


def test_a_second_claimant_of_a_name_is_refused_and_its_holder_hears_on(hub: Any) -> None:
    """Whoever holds it keeps it, and gets what is meant for it."""
    one = hub()
    ceo, ada = one.connect("ceo"), one.connect("ada")
    thief = one.connect()
    thief.say("register", from_session="ceo", payload={"features": ["takeover"], "takeover": True})
    assert thief.until("error")["payload"]["code"] == "SESSION_COLLISION"
    ada.chat("ceo", "a secret")
    assert ceo.until("chat")["payload"]["text"] == "a secret"
    assert thief._reader.readline() == b"", "the hub has closed it, having said nothing else"


def test_one_connection_has_one_name_however_many_it_asks_for() -> None:
    """Three thousand claims; one is granted, and nothing is left when it goes."""
    hub = MemoryHub()
    greedy = hub.client("name-0", features=["receipts"])
    for n in range(1, 3000):
        greedy.say({"type": "register", "id": f"r{n}", "from_session": f"name-{n}"})
    codes = [line["payload"]["code"] for line in greedy.heard("error")]
    assert codes == ["ALREADY_REGISTERED"] * 2999
    assert hub.registry.sessions == ("name-0",)
    assert hub.client("ada").lines[0]["payload"]["peers"] == ["name-0"]
    greedy.hang_up()
    assert hub.registry.sessions == ("ada",)
    assert hub.client("name-1").lines[0]["payload"]["peers"] == ["ada"]


#: Addresses that are names, whatever they look like ...
NAMES = ("../../x", "a/b", "/etc/passwd", ".", "..", ".hidden", "CON", "nul.txt", "Ⅷ")
NAMES += ("ｆｕｌｌ", "a%2Fb", "~root", "-rf", "*.ndjson", "x" * 128, "é" * 128, "peers", "😀")
#: ... and such as are none.
NO_NAMES: tuple[Any, ...] = ("x\0y", "a\nb", "x" * 300, ["l"], {}, None, 5, True, "", "hub")


def test_no_address_leads_out_of_the_channel(hub: Any, paths: ChannelPaths, stored: Any) -> None:
    """What is a name has an inbox of its own in the channel; all else is refused."""
    one = hub("--durability", "process")
    around = [Path(paths.base), Path(paths.base).parent]
    before = [sorted(os.listdir(place)) for place in around]
    ada, bob = one.connect("ada", "receipts"), one.connect("bob")
    for name in NAMES:
        ada.chat(name, f"to {name}")
        assert ada.until("receipt", "error")["payload"]["state"] == "stored", name
    for name in NO_NAMES:
        ada.say("chat", id="m", to_session=name, payload={"text": "x"})
        error = ada.until("receipt", "error")
        assert error["payload"]["code"] in ("BAD_SESSION_ID", "BAD_ENVELOPE"), name
    ada.say("chat", id="all", payload={"text": "no address at all: to everybody"})
    assert bob.until("chat")["id"] == "all"
    for name in NAMES:
        assert stored(name) == [f"to {name}"]
        assert os.path.dirname(paths.inbox(name)) == paths.directory
    inboxes = {name for name in os.listdir(paths.directory) if name.startswith("inbox_")}
    expected = {f"inbox_{file_name(name)}.ndjson" for name in (*NAMES, "bob")}
    assert expected <= inboxes <= expected | {"inbox_ada.ndjson", "inbox_hub.ndjson"}
    after = [sorted(os.listdir(place)) for place in around]
    assert after[0] == before[0]
    assert not [name for name in after[1] if name in ("x", "b", "passwd")]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("a.b", "ab"), ("!!!", "default"), ("Prod", "prod"), ("../up", "up"), ("x" * 90, "x" * 90)],
)
def test_a_channel_that_is_not_called_what_was_typed_is_named(
    intercom: Any, paths: ChannelPaths, typed: str, meant: str
) -> None:
    """Two spellings may meet, but nobody is surprised by it."""
    sent = intercom("send", "--to", "bob", "--text", "x", "--channel", typed)
    sent.ok()
    assert (f"'{typed}' is called '{meant}'" in sent.err) == (typed != meant)
    assert os.path.exists(ChannelPaths(paths.base, meant).inbox("bob"))
    assert set(os.listdir(paths.base)) == {"default", meant}
    assert len(intercom("poll", "--channel", meant, session="bob").ok()["messages"]) == 1


def test_a_place_too_deep_for_a_socket_has_its_hub_nevertheless(
    hub: Any, intercom: Any, paths: ChannelPaths, stored: Any
) -> None:
    """A socket's path has a limit, a channel's has not."""
    deep = ChannelPaths(os.path.join(paths.base, "d" * 60), "c" * 90)
    deep.prepare()
    assert len(deep.file("hub.sock")) > MAX_SOCKET_PATH >= len(deep.socket)
    one = hub(where=deep)
    where = ("--dir", deep.base, "--channel", deep.name)
    sent = intercom("send", "--to", "bob", "--text", "deep down", *where).ok()
    assert (sent["status"], sent["state"]) == ("sent", "stored")
    assert stored("bob", deep) == ["deep down"]
    one.stop()
    assert not os.path.exists(deep.socket)
