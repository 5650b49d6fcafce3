"""Passing over messages unread, and saying so to whoever sent them. Standard library only.

The position moves first, noted as ``skipped``, so that nothing is said that did not happen;
then the messages are listed among the dead letters, and each sender who is known on the
channel gets one notice, a ``chat`` from ``hub`` in its inbox. Nothing is deleted.
"""

from __future__ import annotations

import time

from intercom.client.blocking import new_id
from intercom.errors import IntercomError, StalePosition
from intercom.names import HUB, check_session
from intercom.paths import ChannelPaths
from intercom.records import Position, Record
from intercom.spool.calls import FileCalls
from intercom.spool.deadletters import DeadLetters, Letter
from intercom.spool.files import Inbox
from intercom.spool.known import is_known
from intercom.spool.locking import Busy
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire import envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: Tells epoch seconds.
    Clock = Callable[[], float]

#: A notice names so many ids.
MAX_IDS = 20
#: Seconds to wait for the inbox of a sender who is to be told.
NOTICE_TIMEOUT = 0.5
#: How often the list of dead letters is tried while another writes it, and seconds between.
LIST_TRIES, LIST_PAUSE = 40, 0.05
#: How often it is begun again where another reader has emptied the inbox meanwhile.
TRIES = 3


class Skipped(NamedTuple):
    """What was passed over.

    :ivar number: how many messages.
    :ivar position: where reading goes on.
    :ivar problem: what could not be noted or told, or an empty string.
    """

    number: int
    position: Position
    problem: str = ""


def skip(
    paths: ChannelPaths,
    session: str,
    upto: Position | None = None,
    *,
    clock: Clock = time.time,
) -> Skipped:
    """Pass over what lies unread, up to a position, or all that is complete at the moment.

    :param clock: epoch seconds.
    :raise StalePosition: ``upto`` is no position of this inbox.
    :raise SpoolError: nothing was passed over.
    """
    with Inbox(paths, session) as inbox:
        for left in reversed(range(TRIES)):
            try:
                passed, stands = _pass(inbox, upto)
                break
            except StalePosition:
                if upto is not None or not left:
                    raise
    problems = [_bury(paths, session, passed, clock), *_tell(paths, session, passed, clock())]
    return Skipped(len(passed), stands, "\n  ".join(filter(None, problems)))


def _pass(inbox: Inbox, upto: Position | None) -> tuple[list[Record], Position]:
    """Move the position: past which messages, and where it stands now."""
    start, passed, end = _unread(inbox, upto)
    before = inbox.read(None, 0).start
    if before.generation != start.generation:
        raise StalePosition("the inbox was emptied meanwhile")
    stands = inbox.commit(end, state="skipped")
    # Another reader of the session may have been quicker with some of them.
    return [record for record in passed if record.start >= before.offset], stands


def end_of(inbox: Inbox) -> Position:
    """Behind the last complete line of an inbox."""
    batch = inbox.read()
    while not batch.at_end:
        batch = inbox.read(batch.next)
    return batch.next


def _unread(inbox: Inbox, upto: Position | None) -> tuple[Position, list[Record], Position]:
    """What lies behind the stored position: where that is, the messages, and where they end."""
    passed: list[Record] = []
    batch = inbox.read()
    start = batch.start
    while True:
        for record in batch.records:
            if upto is not None and record.end > upto.offset:
                return start, passed, upto
            passed.append(record)
        if batch.at_end or (upto is not None and batch.next.offset >= upto.offset):
            return start, passed, batch.next if upto is None else upto
        batch = inbox.read(batch.next)


def _bury(paths: ChannelPaths, session: str, passed: list[Record], clock: Clock) -> str:
    """List them among the dead letters; return why that was not possible."""
    letters = [Letter("skipped", session, record.line) for record in passed]
    dead = DeadLetters(paths, clock=clock)
    for _ in range(LIST_TRIES):
        try:
            dead.add(letters)
        except Busy:
            time.sleep(LIST_PAUSE)
        except (IntercomError, OSError) as error:
            return f"what was skipped could not be listed: {error}"
        else:
            return ""
    return "what was skipped could not be listed: another program keeps dead.ndjson locked"


# -- notices ----------------------------------------------------------------------------------


def _tell(paths: ChannelPaths, session: str, passed: list[Record], now: float) -> Iterator[str]:
    """Leave each known sender one notice; say whom it could not be left."""
    by_sender: dict[str, list[str]] = {}
    for record in passed:
        said = envelope.identify(record.line)
        if said is not None:
            by_sender.setdefault(said.sender, []).append(said.message_id)
    calls = FileCalls()
    for sender, ids in by_sender.items():
        if sender == session or not _may_be_told(paths, calls, sender):
            continue
        message_id = new_id()
        try:
            line = notice(paths.name, message_id, session, sender, ids, now)
            with Inbox(paths, sender) as inbox:
                inbox.append(line, sender=HUB, message_id=message_id, timeout=NOTICE_TIMEOUT)
        except IntercomError as error:
            yield f"{sender!r} could not be told of what was skipped: {error.text}"


def _may_be_told(paths: ChannelPaths, calls: FileCalls, sender: str) -> bool:
    """Whether this is a session of the channel: nothing is written to strangers, nor to a hub."""
    try:
        return is_known(paths, calls, check_session(sender))
    except (IntercomError, OSError, UnicodeError):
        return False


def notice(
    channel: str, message_id: str, session: str, sender: str, ids: list[str], now: float
) -> bytes:
    """Write the notice that messages of ``sender`` to ``session`` were passed over.

    :param ids: theirs, in the order in which they stood there.
    """
    at = envelope.format_timestamp(now)
    which = ", ".join(ids[:MAX_IDS])
    more = f" and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
    messages = "message" if len(ids) == 1 else "messages"
    were = "was" if len(ids) == 1 else "were"
    text = (
        f"{len(ids)} {messages} of yours to {session!r} {were} passed over unread at {at}: "
        f"{which}{more}"
    )
    told = {
        "code": "SKIPPED",
        "session": session,
        "count": len(ids),
        "ids": ids[:MAX_IDS],
        "at": at,
    }
    return envelope.make(
        type="chat",
        message_id=message_id,
        from_session=HUB,
        to_session=sender,
        channel=channel,
        payload={"text": text, "notice": told},
        timestamp=at,
        reply_to=ids[0] if len(ids) == 1 else None,
    )
