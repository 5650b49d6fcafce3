"""Characters that a pi-subagents client leaves at: mended in texts and labels, refused in ids."""

from __future__ import annotations

import json

import pytest
from mesh_hub import Hub
from mesh_members import Intercom, Lines, Subagents, member

BELLS = "bell \a, next line \u0085, tab\t, line\n, null \0, delete \x7f"
MENDED = "bell \ufffd, next line \ufffd, tab\t, line\n, null \ufffd, delete \ufffd"
ATTACHED = {"type": "file", "name": "n\n\a", "content": BELLS, "language": "\x01"}
#: Those who may say such things.
senders = pytest.mark.parametrize("one", ["intercom", "lines"])


@senders
def test_texts_and_labels_are_mended_on_the_way_and_stored_as_they_were(hub: Hub, one: str) -> None:
    a, b = member(hub, one), Subagents(hub)
    assert a.send(b.id, "m1", BELLS, attachments=[ATTACHED], others={"odd": BELLS}) == "delivered"
    (heard,) = b.hears("m1")
    assert heard.text == MENDED
    mended = {"name": "n\ufffd\ufffd", "content": MENDED, "language": "\ufffd"}
    assert heard.attachments == [{**ATTACHED, **mended}]
    # what travels as JSON text in an attachment loses nothing
    assert heard.others == {"odd": BELLS}
    payload = json.loads(hub.inbox(b.id).read_bytes())["payload"]
    assert (payload["text"], payload["attachments"][0]) == (BELLS, ATTACHED)


@senders
@pytest.mark.parametrize("other", ["intercom", "lines"])
def test_the_others_get_them_as_they_were(hub: Hub, one: str, other: str) -> None:
    a, b = member(hub, one), member(hub, other)
    assert a.send(b.id, "m1", BELLS, attachments=[ATTACHED], others={"odd": BELLS}) == "delivered"
    (heard,) = b.hears("m1")
    assert (heard.text, heard.attachments, heard.others) == (BELLS, [ATTACHED], {"odd": BELLS})


def test_labels_of_a_session_are_left_out_or_mended(hub: Hub) -> None:
    hub.join("ada", session={"name": "A\tda", "status": "\a", "cwd": "/a\nb", "model": ""})
    b = Subagents(hub)
    row = next(one for one in b.client.list() if one["id"] == "ada")
    assert (row["cwd"], row["model"]) == ("/a\ufffdb", "unknown")
    assert not {"name", "status"} & row.keys()


@pytest.mark.parametrize("bad", ["m\x01", "m\x85", "m\n"])
@senders
def test_an_unclean_message_id_is_refused_before_anything_is_stored(
    hub: Hub, one: str, bad: str
) -> None:
    a, b = member(hub, one), Subagents(hub)
    word = a.send(b.id, bad)
    assert word not in ("delivered", "waits")
    assert not hub.inbox(b.id).exists()
    assert a.send(b.id, "m2") == "delivered"
    assert b.ids("m2") == ["m2"]


@senders
def test_an_answer_to_an_unclean_id_is_not_lost_without_a_word(hub: Hub, one: str) -> None:
    a, b = member(hub, one), Subagents(hub)
    word = a.send(b.id, "m1", reply_to="r\a")
    assert a.send(b.id, "m2") == "delivered"
    assert b.ids("m2") == (["m1", "m2"] if word == "delivered" else ["m2"])


def test_a_session_with_an_unclean_id_is_neither_seen_nor_heard(hub: Hub) -> None:
    """By a pi-subagents client; an NDJSON client knows it by another name, and can answer."""
    odd = Intercom(hub, "odd\a")
    b, c = Subagents(hub), Lines(hub)
    assert b.sees() == {b.id, c.id}
    assert odd.send(b.id, "m1") == "INVALID_MESSAGE"
    assert odd.send(c.id, "m2") == "delivered"
    (heard,) = c.hears("m2")
    assert c.sees() == {heard.sender, b.id, c.id}
    assert c.send(heard.sender, "m3") == "delivered"
    assert odd.ids("m3") == ["m3"]
    odd.leave()
    assert b.hears() == []
    assert b.client.arrived == []
