"""Asking a channel's files how far messages have come, without a hub and without writing."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from intercom.client import inquiry
from intercom.client.inquiry import Inquiry, Told
from intercom.client.offline import store_offline
from intercom.client.outbox import compose
from intercom.client.standing import Standing
from intercom.errors import HubUnavailable
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.files import Inbox
from intercom.wire import envelope

SENT = 1_000_000.0


def line(message_id: str, sender: str = "ada", to: str = "bob", text: str = "hello") -> bytes:
    """A message as its sender writes it."""
    return envelope.make(
        type="chat",
        message_id=message_id,
        from_session=sender,
        to_session=to,
        channel="default",
        payload={"text": text},
        timestamp=envelope.format_timestamp(SENT),
    )


class Files:
    """Writes the files of a channel as hub and commands do."""

    def __init__(self, paths: ChannelPaths) -> None:
        self.paths = paths

    def append(self, inbox: str, *lines: bytes) -> list[tuple[str, int, int, int]]:
        """Put lines into an inbox; where each stands in generation 1."""
        places = []
        with open(self.paths.inbox(inbox), "ab") as file:
            for one in lines:
                start = file.tell()
                file.write(one + b"\n")
                places.append((inbox, 1, start, file.tell()))
        return places

    def stored(self, message_id: str, places: Any, sender: str = "ada", **more: Any) -> None:
        """Note in the history that a message was stored."""
        fields = {"at": SENT + 1, "id": message_id, "from": sender}
        fields |= {"digest": "00" * 16, "level": "disk", "to": places}
        self._note("history.ndjson", fields | more)

    def refused(self, message_id: str, *why: tuple[str, str, str], sender: str = "ada") -> None:
        """Note in the history that a message was refused."""
        fields = {"at": SENT + 1, "id": message_id, "from": sender, "refused": why}
        self._note("history.ndjson", fields)

    def pushed(self, inbox: str, start: int, end: int, at: float) -> None:
        """Note in the history that lines were pushed."""
        self._note("history.ndjson", {"at": at, "pushed": [inbox, 1, start, end]})

    def trail(self, inbox: str, state: str, start: int, end: int, at: float) -> None:
        """Note what happened to an inbox."""
        fields = {"at": at, "state": state, "generation": 1, "start": start, "end": end}
        self._note(os.path.basename(self.paths.trail(inbox)), fields)

    def dead(self, message_id: str, why: str, inbox: str = "bob", **more: Any) -> None:
        """List a dead letter."""
        fields = {"at": SENT + 9, "why": why, "inbox": inbox, "id": message_id, "from": "ada"}
        self._note("dead.ndjson", fields | {"timestamp": None, "message": None} | more)

    def position(self, inbox: str, offset: int, generation: int | None = 1) -> None:
        """Say how far an inbox is read; an original program knows no generations."""
        fields: dict[str, Any] = {"offset": offset, "updated_at": SENT}
        if generation is not None:
            fields |= {"generation": generation, "session": inbox}
        Path(self.paths.offset(inbox)).write_text(json.dumps(fields))
        os.utime(self.paths.offset(inbox), (SENT + 50, SENT + 50))

    def _note(self, name: str, fields: dict[str, Any]) -> None:
        with open(self.paths.file(name), "a") as file:
            # compact, as the history's reader looks for it
            file.write(json.dumps(fields, separators=(",", ":")) + "\n")


@pytest.fixture
def files(paths: ChannelPaths) -> Files:
    """A channel's files."""
    return Files(paths)


def one(found: list[Told]) -> Told:
    """The only message that was found."""
    assert len(found) == 1
    return found[0]


def bob(paths: ChannelPaths, message_id: str = "m1") -> Standing:
    """How far a message has come with bob."""
    return one(Inquiry(paths).about(message_id)).recipients["bob"]


def test_every_state_and_its_time(files: Files, paths: ChannelPaths) -> None:
    """From the history, the trail and the position; in the order in which they come about."""
    place = files.append("bob", line("m1"))[0]
    end = place[3]
    files.stored("m1", [place])
    told = one(Inquiry(paths).about("m1"))
    assert told[:3] == ("m1", "ada", SENT)
    assert told.recipients == {"bob": Standing("stored", {"stored": SENT + 1}, "disk")}
    files.pushed("bob", 0, end, SENT + 2)
    assert bob(paths).state == "pushed"
    files.trail("bob", "shown", 0, end, SENT + 3)
    assert bob(paths).state == "shown"
    files.trail("bob", "read", 0, end, SENT + 4)
    assert bob(paths).state == "shown"  # the position is what counts
    files.position("bob", end)
    times = {"stored": SENT + 1, "pushed": SENT + 2, "shown": SENT + 3, "read": SENT + 4}
    assert bob(paths) == Standing("read", times, "disk")


def test_what_an_original_program_read_was_read_before_its_offset_was_written(
    files: Files, paths: ChannelPaths
) -> None:
    """It notes nothing else."""
    place = files.append("bob", line("m1"))[0]
    files.stored("m1", [place])
    files.position("bob", place[3], generation=None)
    found = bob(paths)
    assert (found.state, found.times["read"], found.before) == ("read", None, SENT + 50)


def test_what_was_skipped_is_not_read(files: Files, paths: ChannelPaths) -> None:
    """By the trail; where that is lost, by the dead letters."""
    first, second = files.append("bob", line("m1"), line("m2"))
    files.stored("m1", [first])
    files.stored("m2", [second])
    files.position("bob", second[3])
    files.trail("bob", "skipped", 0, first[3], SENT + 4)
    files.dead("m2", "skipped")
    assert bob(paths).times == {"stored": SENT + 1, "skipped": SENT + 4}
    assert bob(paths, "m2").times == {"stored": SENT + 1, "skipped": SENT + 9}


def test_recipients_of_several_lines_and_refusals_come_together(
    files: Files, paths: ChannelPaths
) -> None:
    """A busy inbox came later; one was never written; one refusal was made good."""
    first = files.append("bob", line("m1", to="*"))
    files.refused("m1", ("kim", "DISK_FULL", "no room"), ("lee", "INBOX_LOCKED", "busy"))
    files.stored("m1", first)
    files.stored("m1", files.append("lee", line("m1", to="*")), at=SENT + 2)
    found = one(Inquiry(paths).about("m1")).recipients
    assert {name: standing.state for name, standing in found.items()} == {
        "bob": "stored",
        "kim": "refused",
        "lee": "stored",
    }
    assert (found["kim"].code, found["kim"].text) == ("DISK_FULL", "no room")
    assert found["lee"].times["stored"] == SENT + 2


def test_one_id_of_several_senders(files: Files, paths: ChannelPaths) -> None:
    """Ids are unique per sender only; all are told, or the one that is asked for."""
    first, second = files.append("bob", line("m1"), line("m1", sender="eve"))
    files.stored("m1", [first])
    files.stored("m1", [second], sender="eve")
    assert [told.sender for told in Inquiry(paths).about("m1")] == ["ada", "eve"]
    assert one(Inquiry(paths).about("m1", "eve")).sender == "eve"
    assert Inquiry(paths).about("m1", "joe") == []


def test_a_client_s_own_append_is_found_in_the_inboxes(paths: ChannelPaths) -> None:
    """No history has it, since no hub ever ran; and its id may be written in several ways."""
    for message_id in ("m1", 'q"\u65e5', "m10"):
        letter = compose(paths, "ada", "bob", {"text": message_id}, message_id=message_id)
        store_offline(paths, letter, HubUnavailable("none"))
    with Inbox(paths, "bob") as inbox:
        end = inbox.read().records[0].end
        inbox.commit(Position(1, end))
    told = one(Inquiry(paths).about("m1"))
    assert told.sent_at is not None
    assert told.recipients["bob"].state == "read"
    assert bob(paths, 'q"\u65e5') == Standing("stored", {"stored": None})
    assert Inquiry(paths).about("m") == []


def test_a_line_across_the_pieces_in_which_a_file_is_read(
    files: Files, paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found at its place, whole; an unfinished line is no message."""
    monkeypatch.setattr("intercom.client.inquiry._PIECE", 64)
    places = files.append("bob", *[line(f"m{n}", text="x" * 100) for n in range(5)])
    with open(paths.inbox("bob"), "ab") as file:
        file.write(line("torn"))
    files.position("bob", places[3][2])
    states = [bob(paths, f"m{n}").state for n in range(5)]
    assert states == ["read", "read", "read", "stored", "stored"]
    assert Inquiry(paths).about("torn") == []


def test_a_message_moves_when_its_inbox_is_emptied(files: Files, paths: ChannelPaths) -> None:
    """What was read is gone, what was not stands elsewhere, in another generation."""
    read, unread = files.append("bob", line("m1"), line("m2"))
    files.stored("m1", [read])
    files.stored("m2", [unread])
    files.trail("bob", "read", 0, read[3], SENT + 4)
    Path(paths.inbox("bob")).write_bytes(line("m2") + b"\n")
    files.position("bob", 0, generation=2)
    assert bob(paths).times["read"] == SENT + 4
    assert bob(paths, "m2") == Standing("stored", {"stored": SENT + 1}, "disk")
    cut = {"state": "cut", "generation": 1, "read": read[3], "stays": []}
    Path(paths.trail("bob")).write_text(json.dumps(cut) + "\n")
    found = bob(paths)
    assert (found.state, found.before) == ("read", SENT + 50)
    Path(paths.trail("bob")).unlink()
    found = bob(paths)
    assert (found.state, found.gone) == ("stored", True)


def test_no_level_is_told_that_the_place_cannot_give(
    files: Files, paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history has what was asked for."""
    place = files.append("bob", line("m1"))[0]
    files.stored("m1", [place])
    for reachable in ("process", "disk"):
        monkeypatch.setattr(inquiry, "file_level", lambda _path, level=reachable: level)
        assert bob(paths).level == reachable


def test_a_message_that_an_original_program_wiped_out(files: Files, paths: ChannelPaths) -> None:
    """Its reset raises no generation: that line is gone, and the next is not taken for it."""
    gone = files.append("bob", line("m1"))[0]
    files.stored("m1", [gone])
    Path(paths.inbox("bob")).write_bytes(line("m2") + b"\n")
    files.position("bob", gone[3])
    files.trail("bob", "read", 0, gone[3], SENT + 4)
    found = bob(paths)
    assert (found.state, found.gone) == ("stored", True)


def test_what_expired_is_said_to_be(files: Files, paths: ChannelPaths) -> None:
    """It was dropped from its inbox unread; even where only the dead letters know it."""
    files.stored("m1", [("bob", 1, 0, 100)])
    files.position("bob", 0, generation=2)
    files.dead("m1", "expired")
    files.dead("m2", "expired", inbox="kim")
    assert bob(paths).state == "expired"
    assert one(Inquiry(paths).about("m2")).recipients["kim"].state == "expired"


def test_damaged_files_are_read_as_far_as_they_can_be(files: Files, paths: ChannelPaths) -> None:
    """Half a line, a line of another form, no JSON: never an error, and the rest counts."""
    place = files.append("bob", line("m1"))[0]
    files.stored("m1", "nonsense")
    files.stored("m1", [["bob"]])
    files.stored("m1", [["bob", "x", None, []]])
    files.stored("m1", [place])
    for name in ("history.ndjson", "dead.ndjson", os.path.basename(paths.trail("bob"))):
        with open(paths.file(name), "ab") as file:
            file.write(b'[]\n{"why":"skipped"}\n\xff\n{"at":1,"id":"m1","from":"ada","to":[["bo')
    Path(paths.offset("bob")).write_bytes(b"{")
    assert bob(paths).state == "stored"


def test_nothing_is_written(files: Files, paths: ChannelPaths) -> None:
    """Asking leaves no trace, and needs no right to write."""
    place = files.append("bob", line("m1"))[0]
    files.stored("m1", [place, ["never-seen", 1, 0, 10]])
    before = {name: os.stat(paths.file(name)).st_mtime_ns for name in os.listdir(paths.directory)}
    assert len(one(Inquiry(paths).about("m1")).recipients) == 2
    after = {name: os.stat(paths.file(name)).st_mtime_ns for name in os.listdir(paths.directory)}
    assert after == before


def test_the_last_messages_of_a_sender(files: Files, paths: ChannelPaths) -> None:
    """The newest last, those of the history and those that it appended itself, each once."""
    for number in range(4):
        place = files.append("bob", line(f"m{number}"))[0]
        files.stored(f"m{number}", [place], at=SENT + number - 10)
    files.append("bob", line("other", sender="eve"))
    files.append("kim", line("own", to="kim"))
    found = Inquiry(paths).newest("ada", 3)
    assert [told.message_id for told in found] == ["m2", "m3", "own"]
    assert list(found[2].recipients) == ["kim"]
    assert Inquiry(paths).newest("nobody", 3) == []


def test_an_inbox_that_stays_locked_is_told_of_as_far_as_notes_go(
    files: Files, paths: ChannelPaths
) -> None:
    """Its position cannot be read then; the answer comes all the same, and claims nothing."""
    place = files.append("bob", line("m1"))[0]
    files.stored("m1", [place])
    files.position("bob", place[3])
    with open(paths.inbox("bob"), "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert bob(paths).state == "stored"
        files.trail("bob", "read", 0, place[3], SENT + 4)
        assert bob(paths).state == "read"


def test_a_long_history_is_searched_quickly(files: Files, paths: ChannelPaths) -> None:
    """Not every line is parsed: so many messages would take seconds."""
    with open(paths.file("history.1.ndjson"), "w") as file:
        for number in range(200_000):
            fields = {"at": SENT, "id": f"n{number}", "from": "eve", "digest": "00" * 16}
            fields |= {"level": "disk", "to": [["kim", 1, number, number + 1]]}
            file.write(json.dumps(fields, separators=(",", ":")) + "\n")
    files.stored("m1", files.append("bob", line("m1")))
    begun = time.process_time()
    assert bob(paths).state == "stored"
    assert time.process_time() - begun < 1.5
