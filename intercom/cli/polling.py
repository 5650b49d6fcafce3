"""The work of ``intercom poll``, however its command line was read."""

from __future__ import annotations

import itertools
import time

from intercom.cli import output
from intercom.cli.haul import Haul, Left, count_left, fetch
from intercom.client import readers
from intercom.client.readers import Seat
from intercom.errors import BadUsage, IntercomError
from intercom.paths import ChannelPaths
from intercom.plain import nullcontext, suppress
from intercom.records import Position
from intercom.showing import words
from intercom.spool.files import Inbox
from intercom.spool.turns import Holder, turn_of
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from intercom.cli.scope import Given, Scope
    from intercom.client.elsewhere import Waiting

#: Seconds between two looks at the file: from the first to the second, doubling.
LOOK_FIRST, LOOK_LAST = 0.005, 0.05
#: One that waits gives up after so many seconds in which somebody else could always read:
#: that is no other poll, which has the turn for moments.
GIVE_UP = 2.0
#: The place at which nothing lies unread: ``resuming.NOW``, which is not loaded for it.
_END = "now"


class _Found(NamedTuple):
    """What a poll has to tell.

    :ivar skipped: how many messages were passed over to begin where it was asked to.
    :ivar reading: who has the turn, None if it is ours or nobody's.
    :ivar elsewhere: where else something waits, if there is nothing here.
    :ivar at: epoch seconds, for the ages of messages.
    """

    haul: Haul
    left: Left
    skipped: int
    reading: Holder | None
    elsewhere: list[Waiting]
    own: str
    at: float


def work(
    given: Given,
    *,
    session: str | None,
    wait: float,
    peek: bool,
    limit: int,
    full: bool,
    place: str | None,
) -> int | None:
    """Show what lies unread; see the command's help.

    :return: a status where it was shown and yet something failed.
    :raise IntercomError: it could not be shown.
    """
    if peek and place == _END:
        text = "--from now passes messages over, and --peek leaves them: say one"
        raise BadUsage(text, remedy="see: intercom poll --help")
    deadline = time.monotonic() + wait
    scope = given.scope()
    own, is_known = scope.reader(session)
    with (
        Seat(scope.paths, own, "intercom poll", time.time())
        if is_known and not peek
        else nullcontext() as seat,
        Inbox(scope.paths, own, fence=seat.check if seat else None) as inbox,
    ):
        if seat is not None:
            _make_known(inbox)
        fetcher = _Fetcher(scope, own, inbox, limit, place, peek)
        haul, reading = _wait(inbox, fetcher, seat, deadline)
        text = "" if scope.as_json else _text(given, scope.paths, own, session, haul, full)
        if peek:
            reading = turn_of(scope.paths, own)
        found = _complete(fetcher, haul, reading)
        if scope.as_json:
            output.write(_json(found, scope.paths.name, place))
        else:
            hints = "".join(f"{hint}\n" for hint in _hints(given, found, peek, session, place))
            output.write_text(text + hints)
        if peek:
            _note_shown(inbox, haul)
        elif seat is not None and reading is None:
            return _count_as_read(inbox, seat, haul)
    return None


def _make_known(inbox: Inbox) -> None:
    """Be known to senders; that the disk is full does not keep us from showing what is there."""
    try:
        inbox.enrol()
    except IntercomError as error:
        if error.code != "DISK_FULL":
            raise


class _Fetcher:
    """Reads what there is to show, the first time from where it was asked to begin.

    :ivar skipped: how many messages were passed over for that.
    """

    def __init__(
        self,
        scope: Scope,
        own: str,
        inbox: Inbox,
        limit: int,
        place: str | None,
        peek: bool,
    ) -> None:
        self.paths, self.own, self.inbox = scope.paths, own, inbox
        self.skipped = 0
        self._limit = limit
        self._place = place
        self._peek = peek

    def __call__(self) -> Haul:
        place, self._place, start = self._place, None, None
        if place is not None:
            from intercom.client import resuming  # seldom needed, and not for nothing

            resumed = resuming.resume(self.paths, self.own, place, skip=not self._peek)
            self.skipped, start = resumed.skipped, resumed.start
            if resumed.problem:
                output.note(resumed.problem)
        return fetch(self.inbox, self._limit, start)


def _wait(
    inbox: Inbox, read: Callable[[], Haul], seat: Seat | None, deadline: float
) -> tuple[Haul, Holder | None]:
    """Read what is there; if that is nothing, look again when the file changes.

    The turn is ours while we read, and stays so if something was found. While we wait it is
    anybody's, so of several that wait one finds what comes.

    :return: what was found, and who has the turn if somebody else keeps it.
    """
    pause, seen = LOOK_FIRST, -1
    haul = Haul(Position(0, 0))
    busy_since: float | None = None
    while True:
        size = inbox.size()
        other = None if size == seen or seat is None else seat.take()
        if other is None and size != seen:
            haul, seen, pause, busy_since = read(), size, LOOK_FIRST, None
        now = time.monotonic()
        if other is not None:
            busy_since = now if busy_since is None else busy_since
            if now >= deadline or now - busy_since >= GIVE_UP:
                return Haul(inbox.read(None, 0).start), other
        elif haul.lines or now >= deadline:
            return haul, None
        elif seat is not None:
            seat.give_back()
        time.sleep(max(0.0, min(pause, deadline - now)))
        pause = min(pause * 2, LOOK_LAST)


def _complete(fetcher: _Fetcher, haul: Haul, reading: Holder | None) -> _Found:
    """Add what lies behind it, or elsewhere."""
    whole = not haul.more and (bool(haul.lines) or reading is None)
    left = Left() if whole else count_left(fetcher.inbox, haul.position)
    elsewhere = []
    if not haul.lines and not left.number:
        from intercom.client.elsewhere import waiting_elsewhere  # where nothing was found

        elsewhere = waiting_elsewhere(fetcher.paths, fetcher.own)
    return _Found(haul, left, fetcher.skipped, reading, elsewhere, fetcher.own, time.time())


def _note_shown(inbox: Inbox, haul: Haul) -> None:
    """Let senders know that these were shown; looking works without, as in a sandbox."""
    if haul.lines:
        with suppress(IntercomError):
            inbox.shown(haul.position)


def _count_as_read(inbox: Inbox, seat: Seat, haul: Haul) -> int | None:
    """Commit, if nobody else has the turn by now: then there is nothing of ours to commit."""
    try:
        if seat.take() is None:
            inbox.commit(haul.position)
    except IntercomError as error:  # the result has been said; there is no second one
        output.note(f"these messages will be shown again: {error.text}")
        return error.exit_code
    return None


def _text(
    given: Given,
    paths: ChannelPaths,
    own: str,
    session: str | None,
    haul: Haul,
    full: bool,
) -> str:
    """The messages for people and models; the haul then ends with the last that is shown."""
    if not haul.messages:
        return ""
    from intercom.cli import rendering  # where there is something to show, and to answer
    from intercom.cli.answering import known, ways
    from intercom.showing.blocks import MODEL_BUDGET, MODEL_LIMIT

    page = output.page() if full else output.page(MODEL_LIMIT, MODEL_BUDGET)
    haul.end_with_cut(page)
    facts = known(paths, own, haul.lines, haul.messages)
    block = rendering.messages(haul.messages, time.time(), page, facts, ways(given, session))
    haul.end_behind(block.shown)
    return block.text


def _json(found: _Found, channel: str, place: str | None) -> bytes:
    """The result for programs."""
    haul, left = found.haul, found.left
    fields: dict[str, Any] = {
        "count": len(haul.lines),
        "unread": left.number,
        "session": found.own,
        "channel": channel,
        "position": _written(haul.position),
    }
    extra = {
        "newest_age": words.age(left.newest, found.at) if left.number else "",
        "next": left.next_id if place else None,
        "skipped": found.skipped,
        "damaged": haul.damaged,
        "reading": readers.fields(found.reading) if found.reading else None,
        "elsewhere": [
            {
                "channel": one.paths.name,
                "unread": one.number,
                "command": _command_there(one, found.own),
            }
            for one in found.elsewhere
        ],
    }
    fields |= {name: value for name, value in extra.items() if value}
    messages = map(words.aged, haul.lines, haul.messages, itertools.repeat(found.at))
    return output.to_json(fields, messages=b"[" + b",".join(messages) + b"]") + b"\n"


def _hints(
    given: Given, found: _Found, peek: bool, session: str | None, place: str | None
) -> list[str]:
    """What else there is to say, and what may be done next."""
    haul, left = found.haul, found.left
    own = ["--session", session] if session else []
    said = []
    if found.skipped:
        said.append(f"{words.counted(found.skipped, 'message')} skipped")
    if found.reading is not None:
        said.append(f"{readers.described(found.reading)} reads here now")
    elif not haul.messages:
        said.append("nothing unread")
    if haul.damaged:
        said.append(f"{words.counted(haul.damaged, 'damaged line')} passed over")
    if haul.cut:
        past = _written(haul.places[-1][1])
        whole = given.again("poll", "--full", "--limit", "1", *own)
        skip = given.again("ack", "--skip", past, *own)
        if peek and len(haul.messages) > 1:  # those before it were shown, and are not skipped
            skip = f"{given.again('ack', _written(haul.position), *own)} && {skip}"
        said.append(f"cut, and so not counted as read; see it whole: {whole}; or skip it: {skip}")
    more = left.number - 1 if haul.cut else left.number
    if more:
        written = words.age(left.newest, found.at)
        newest = f", the newest {written}" if written else ""
        said.append(f"{more} {'unread' if found.reading and not haul.lines else 'more'}{newest}")
        if place and left.next_id and not haul.cut:
            on = given.again("poll", "--from", left.next_id, *own)
            said.append(f"go on from there: {on}")
    if peek and len(haul.messages) > haul.cut:
        done = given.again("ack", _written(haul.position), *own)
        said.append(f"not counted as read; when done: {done}")
    return said + _elsewhere(found)


def _elsewhere(found: _Found) -> list[str]:
    """Where else something waits for this name."""
    if not found.elsewhere:
        return []
    from intercom.showing.text import label  # seldom needed, and not for nothing

    return [
        f"{words.counted(one.number, 'message')} for {label(found.own)} "
        f"in channel {one.paths.name!r}: {_command_there(one, found.own)}"
        for one in found.elsewhere
    ]


def _command_there(there: Waiting, own: str) -> str:
    """How to see what waits in another channel."""
    import shlex  # for what is said only

    return f"{there.paths.command} poll {shlex.join(['--session', own])}"


def _written(position: Position) -> str:
    """A position as ``intercom ack`` takes it."""
    return f"{position.generation}:{position.offset}"
