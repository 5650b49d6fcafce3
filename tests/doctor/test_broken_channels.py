"""Channels that are broken in one way each: the cause is named, and cured where that is said."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client import claims
from intercom.client.doctor import inboxes
from intercom.records import Entry, Position
from intercom.spool import journal
from intercom.spool.calls import FileCalls
from intercom.spool.format import Keep, Mark, dump_meta, dump_offset, head_of
from intercom.wire.envelope import MAX_LINE

Clinic = Any  # see conftest.py
Break = Callable[[Clinic], None]
HOUR = 3600.0


def put(clinic: Clinic, name: str, data: bytes, age: float = 0.0) -> Path:
    """Write a file of the channel."""
    path = Path(clinic.file(name))
    path.write_bytes(data)
    path.chmod(0o600)
    os.utime(path, (clinic.world.now - age,) * 2)
    return path


def offset(clinic: Clinic, at: int, generation: int = 1) -> None:
    """Write bob's position."""
    put(clinic, "offset_bob.json", dump_offset(Position(generation, at), "bob", clinic.world.now))


def append(clinic: Clinic, data: bytes) -> None:
    """Write bytes to bob's inbox."""
    with clinic.file("inbox_bob.ndjson").open("ab") as file:
        file.write(data)


def offset_damaged(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    put(clinic, "offset_bob.json", b'{"offset": ')


def offset_past_end(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    offset(clinic, 100_000)


def offset_inside_line(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    offset(clinic, len(clinic.line("1")) + 5)


def generations_disagree(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    offset(clinic, 0, generation=3)


def generation_older(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    put(clinic, "meta_bob.json", dump_meta("bob", 4))
    offset(clinic, len(clinic.line("1")) + 1)


def meta_damaged(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    put(clinic, "meta_bob.json", b"[]")


def emptying_unfinished(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    data = clinic.file("inbox_bob.ndjson").read_bytes()
    put(clinic, "meta_bob.json", dump_meta("bob", 1, Mark(2, len(data), head_of(data))))


def keep_left(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    put(clinic, ".keep_bob", clinic.line("1") + b"\n")


def position_without_inbox(clinic: Clinic) -> None:
    offset(clinic, 500)
    clinic.file("inbox_bob.ndjson").unlink()


def inbox_missing(clinic: Clinic) -> None:
    clinic.file("inbox_bob.ndjson").unlink()


def torn_tail(clinic: Clinic) -> None:
    clinic.leave("1")
    append(clinic, clinic.line("2")[:40])


def temporary_files(clinic: Clinic) -> None:
    put(clinic, ".tmp-abc", b"x", age=2 * HOUR)
    put(clinic, ".tmp-young", b"x")


def stale_socket(clinic: Clinic) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(clinic.paths.socket)


def unpublished_sockets(clinic: Clinic) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(clinic.file(".hub0123")))


def stale_peers(clinic: Clinic) -> None:
    put(clinic, "peers.json", json.dumps({"hub_pid": 1, "active_sessions": ["bob"]}).encode())


def stale_pointer(clinic: Clinic) -> None:
    put(clinic, "hub.sock.at", b"/somewhere/else\n")


def forgotten_aside(clinic: Clinic) -> None:
    made = int((clinic.world.now - 2 * HOUR) * 1e9)
    data = clinic.line("1") + b"\n"
    put(clinic, f"forgotten_carl.{len(data)}.{made}.ndjson", data)


def secret_open(clinic: Clinic) -> None:
    put(clinic, "token_bob", b"0" * 32).chmod(0o644)


def directory_open(clinic: Clinic) -> None:
    Path(clinic.paths.directory).chmod(0o755)


def power_cut(clinic: Clinic) -> None:
    """The inbox lacks a message that the journal of an earlier boot holds."""
    clinic.leave("1", "2")
    path, line = clinic.file("inbox_bob.ndjson"), clinic.line("2")
    start = path.read_bytes().index(line)
    os.truncate(path, start)
    offset(clinic, start)
    entry = Entry(1, "bob", line, "ann", "msg_2", b"", "disk")
    book = journal.Journal(clinic.paths, FileCalls(), "boot-of-yesterday")
    book.turn(full=False)
    book.write([journal.dump(entry, 1, start)])
    book.close()


CURED: dict[str, tuple[str, Break]] = {
    "offset-damaged": ("warning", offset_damaged),
    "offset-past-end": ("warning", offset_past_end),
    "offset-inside-line": ("warning", offset_inside_line),
    "generations-disagree": ("warning", generations_disagree),
    "generations-disagree ": ("warning", generation_older),
    "meta-damaged": ("warning", meta_damaged),
    "emptying-unfinished": ("warning", emptying_unfinished),
    "keep-left": ("warning", keep_left),
    "position-without-inbox": ("warning", position_without_inbox),
    "inbox-missing": ("note", inbox_missing),
    "torn-tail": ("warning", torn_tail),
    "temporary-files": ("note", temporary_files),
    "stale-socket": ("note", stale_socket),
    "unpublished-sockets": ("note", unpublished_sockets),
    "stale-peers": ("note", stale_peers),
    "stale-pointer": ("note", stale_pointer),
    "forgotten-aside": ("note", forgotten_aside),
    "secret-open": ("warning", secret_open),
    "directory-open": ("warning", directory_open),
    "power-cut": ("warning", power_cut),
}
#: What mail that waits is called: of other causes only these may be found beside the one.
BESIDE = {"unread-without-reader", "unread-for-stranger"}


@pytest.mark.parametrize("name", CURED)
def test_one_cause_is_named_and_cured(clinic: Clinic, name: str) -> None:
    """It is found alone, nothing is changed by looking, and it is gone after the cure."""
    code, (severity, harm) = name.strip(), CURED[name]
    harm(clinic)
    before = clinic.snapshot()
    found = clinic.found()
    assert clinic.snapshot() == before
    assert found.keys() - BESIDE == {code}
    assert found[code].severity == severity
    assert found[code].cure is not None
    assert found[code].file
    unread = [] if code == "power-cut" else clinic.unread()

    cured = clinic.cure()

    assert cured.done
    assert not cured.failed
    assert code not in {one.code for one in cured.findings}
    assert set(unread) <= set(clinic.unread())
    again = clinic.cure()
    assert not again.done


def test_a_cured_power_cut_gives_the_message_back(clinic: Clinic) -> None:
    """The journal is applied before any position is judged."""
    power_cut(clinic)
    clinic.cure()
    assert clinic.unread() == [clinic.line("2")]


def test_a_position_is_not_judged_before_recovery(clinic: Clinic) -> None:
    """What was lost in a power cut makes a position look as if the inbox was reset."""
    power_cut(clinic)
    offset(clinic, 2 * len(clinic.line("1")) + 2)
    assert "offset-past-end" not in clinic.found()
    clinic.cure()
    assert clinic.unread() == []


def test_an_emptying_that_died_half_way_is_finished(clinic: Clinic) -> None:
    """What was to stay of the inbox lies aside, and comes back."""
    clinic.leave("1", "2")
    inbox = clinic.file("inbox_bob.ndjson")
    data, stays = inbox.read_bytes(), clinic.line("2") + b"\n"
    keep = Keep(len(stays), hashlib.blake2b(stays, digest_size=16).hexdigest())
    put(clinic, ".keep_bob", stays)
    put(clinic, "meta_bob.json", dump_meta("bob", 1, Mark(2, len(data), head_of(data), keep)))
    offset(clinic, len(data) - len(stays))
    os.truncate(inbox, 0)
    assert clinic.found().keys() == {"emptying-unfinished"}
    cured = clinic.cure()
    assert cured.done == ["the position of 'bob' is byte 0 of generation 2 now"]
    assert not clinic.file(".keep_bob").exists()
    assert clinic.unread() == [clinic.line("2")]


def test_a_position_without_inbox_passes_over_nothing_afterwards(clinic: Clinic) -> None:
    """The first messages of the inbox to come are read, however long they are."""
    position_without_inbox(clinic)
    clinic.cure()
    clinic.leave("1", "2", "3", "4")
    assert len(clinic.unread()) == 4


def test_a_torn_line_that_lacked_only_its_end_is_a_message(clinic: Clinic) -> None:
    """Then nothing is left to say; of one in pieces its place is named as bad."""
    append(clinic, clinic.line("1"))
    found = clinic.found()["torn-tail"]
    assert found.spans == ((0, len(clinic.line("1"))),)
    assert not {"torn-tail", "bad-lines"} & {one.code for one in clinic.cure().findings}
    assert clinic.unread() == [clinic.line("1")]
    append(clinic, b'{"id": "half')
    start = len(clinic.line("1")) + 1
    bad = {one.code: one for one in clinic.cure().findings}["bad-lines"]
    assert bad.spans == ((start, start + len(b'{"id": "half') + 1),)


def test_a_line_under_way_is_not_torn(clinic: Clinic) -> None:
    """Whoever holds the lock is writing it."""
    torn_tail(clinic)
    with clinic.file("inbox_bob.ndjson").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = clinic.found()
    assert "torn-tail" not in found
    assert "keeps the inbox of 'bob' locked" in found["inbox-locked"].text
    assert "fuser" in found["inbox-locked"].remedy


# -- what is named, and left to people --------------------------------------------------------


def bad_lines(clinic: Clinic) -> None:
    clinic.leave("1")
    append(clinic, b"no message\n" * 7)


def long_lines(clinic: Clinic) -> None:
    append(clinic, b'{"id":"' + b"x" * MAX_LINE + b'"}\n')


def repeated(clinic: Clinic) -> None:
    clinic.leave("1", "2")
    append(clinic, clinic.line("1") + b"\n")


def clock_ahead(clinic: Clinic) -> None:
    clinic.leave("1", age=-2 * HOUR)


def forgotten_unread(clinic: Clinic) -> None:
    made = int((clinic.world.now - 2 * HOUR) * 1e9)
    put(clinic, f"forgotten_carl.0.{made}.ndjson", clinic.line("1") + b"\n")


def journal_left(clinic: Clinic) -> None:
    book = journal.Journal(clinic.paths, FileCalls(), clinic.world.boot())
    book.turn(full=False)
    book.write([b""])
    book.close()


def sync_failed(clinic: Clinic) -> None:
    put(clinic, "journal.failed", b"")


def log_large(clinic: Clinic) -> None:
    os.truncate(put(clinic, "hub.log", b""), 100 << 20)


def link(clinic: Clinic) -> None:
    clinic.file("offset_ann.json").symlink_to("offset_bob.json")


def occupied(clinic: Clinic) -> None:
    Path(clinic.paths.socket).mkdir()


def trail_damaged(clinic: Clinic) -> None:
    put(clinic, "trail_bob.ndjson", b'{"at": 1.0, "state"\nxyz\n')


def project_gone(clinic: Clinic) -> None:
    wanted = claims.Claim("bob", "tree", str(clinic.world.project) + "-gone", (1, 1), 1.0)
    hold = claims.take(clinic.paths, wanted)
    assert hold is not None
    hold.close()


def settings_unreadable(clinic: Clinic) -> None:
    put(clinic, "channel.json", b"{")


def settings_unusable(clinic: Clinic) -> None:
    put(clinic, "channel.json", b'{"durability": "rubber"}')


def settings_unknown(clinic: Clinic) -> None:
    put(clinic, "channel.json", b'{"colour": "red"}')


def stranger(clinic: Clinic) -> None:
    clinic.leave("1", session="bobb", age=HOUR)


NAMED: dict[str, tuple[str, Break]] = {
    "bad-lines": ("warning", bad_lines),
    "long-lines": ("warning", long_lines),
    "repeated-messages": ("note", repeated),
    "clock-ahead": ("warning", clock_ahead),
    "forgotten-unread": ("warning", forgotten_unread),
    "journal-left": ("note", journal_left),
    "sync-failed": ("warning", sync_failed),
    "log-large": ("note", log_large),
    "file-unsafe": ("problem", link),
    "socket-occupied": ("problem", occupied),
    "trail-damaged": ("note", trail_damaged),
    "project-gone": ("note", project_gone),
    "settings-unreadable": ("problem", settings_unreadable),
    "settings-unusable": ("problem", settings_unusable),
    "settings-unknown": ("note", settings_unknown),
    "unread-for-stranger": ("warning", stranger),
}


@pytest.mark.parametrize("code", NAMED)
def test_one_cause_is_named_and_left_alone(clinic: Clinic, code: str) -> None:
    """It is found, with what to do about it; a cure does not touch it."""
    severity, harm = NAMED[code]
    harm(clinic)
    before = clinic.snapshot()
    found = clinic.found()
    # A link in the place of a small file also keeps that inbox from being read.
    assert found.keys() - BESIDE - {"inbox-unreadable"} == {code} - BESIDE
    assert found[code].severity == severity
    assert found[code].remedy or severity == "note"
    cured = clinic.cure()
    assert not cured.done
    assert clinic.snapshot() == before


def test_bad_lines_are_counted_and_placed(clinic: Clinic) -> None:
    """All of them are counted, the first five have their bytes named; passed over is a note."""
    bad_lines(clinic)
    found = clinic.found()["bad-lines"]
    start = len(clinic.line("1")) + 1
    assert found.count == 7
    assert found.spans == tuple((start + 11 * n, start + 11 * (n + 1)) for n in range(5))
    assert found.session == "bob"
    clinic.read()
    assert clinic.found()["bad-lines"].severity == "note"


def test_the_second_of_two_is_named(clinic: Clinic) -> None:
    """The same id of another sender, or with another content, is another message."""
    repeated(clinic)
    append(clinic, clinic.line("2").replace(b'"ann"', b'"eve"') + b"\n")
    append(clinic, clinic.line("2").replace(b'"text":"2"', b'"text":"3"') + b"\n")
    line = len(clinic.line("1")) + 1
    assert clinic.found()["repeated-messages"].spans == ((2 * line, 3 * line),)


def test_mail_without_a_reader_ages(clinic: Clinic) -> None:
    """At first it is worth a note, later a warning, with count and age."""
    clinic.leave("old", age=31 * 60 + 5)
    clinic.leave("young")
    later = clinic.found()["unread-without-reader"]
    assert later.severity == "warning"
    assert "2 messages unread, the oldest 31 min old; never read" in later.text
    clinic.read(count=1)
    sooner = clinic.found()["unread-without-reader"]
    assert sooner.severity == "note"
    assert "1 message unread" in sooner.text
    assert "last read 0 s ago" in sooner.text


def test_a_mistyped_name_is_recognised(clinic: Clinic) -> None:
    """Whoever wrote to a name that nobody has probably meant another."""
    stranger(clinic)
    assert "was 'bob' meant?" in clinic.found()["unread-for-stranger"].text


def test_a_long_inbox_is_read_from_behind(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the last so many bytes, from the beginning of a line."""
    clinic.leave(*map(str, range(50)))
    append(clinic, b"bad\n")
    monkeypatch.setattr(inboxes, "MOST_BYTES", 1000)
    found = clinic.found()
    assert found["bad-lines"].count == 1
    assert found["unread-without-reader"].text.count("more than ") == 1
    assert found["unread-without-reader"].count < 10


def test_odd_files_are_findings_and_no_traceback(clinic: Clinic) -> None:
    """Pipes and directories with the names of files, names that are no text, endless JSON."""
    os.mkfifo(clinic.file("inbox_pipe.ndjson"))
    clinic.file("meta_ann.json").unlink()
    os.mkfifo(clinic.file("meta_ann.json"))
    clinic.file("inbox_directory.ndjson").mkdir()
    odd = os.fsencode(clinic.paths.directory) + b"/inbox_\xff.ndjson"
    os.close(os.open(odd, os.O_CREAT | os.O_WRONLY, 0o600))
    with open(odd, "wb") as file:
        file.write(clinic.line("1") + b"\n" + b"[" * 200_000 + b"\n")
    put(clinic, "name_bob.json", b"[" * 1000)
    put(clinic, "trail_bob.ndjson", b"[" * 100_000 + b"\n")
    put(clinic, "offset_bob.json", b'{"offset": 1e400}')
    before = clinic.found()
    assert {"file-unsafe", "inbox-unreadable", "bad-lines", "offset-damaged"} <= before.keys()
    json.dumps([one.fields() for one in before.values()])
    assert not clinic.cure().failed
