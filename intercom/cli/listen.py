"""``intercom listen``: what lies unread, then whatever comes, a line a message."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import click

from intercom.cli import options, output, rendering
from intercom.cli.answering import known, ways
from intercom.cli.haul import count_left
from intercom.cli.remedies import remedy_for
from intercom.cli.sending import sentence
from intercom.client import resuming
from intercom.client.listening import Listener
from intercom.client.outbox import Letter, Outcome
from intercom.client.parent import Orphaned, Parent
from intercom.client.readers import Seat
from intercom.client.tokens import own_token
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.showing.blocks import Ways
from intercom.showing.words import age, aged, counted
from intercom.spool.files import Inbox
from intercom.wire import envelope

#: Of more than so many unread messages it is said first how many there are.
MANY = 50
#: What a line of standard input looks like.
ORDER = 'standard input takes lines like {"action":"send","to":"NAME","text":"..."}'


class _Printer:
    """Prints messages to standard output, and everything else to standard error."""

    def __init__(self, as_json: bool, paths: ChannelPaths, own: str, ways: Ways) -> None:
        self._as_json = as_json
        self._paths, self._own, self._ways = paths, own, ways

    def show(self, line: bytes, message: dict[str, Any]) -> None:
        """Print one message and flush it."""
        if self._as_json:
            output.write(aged(line, message, time.time()) + b"\n")
            return
        facts = known(self._paths, self._own, [line], [message])
        block = rendering.messages([message], time.time(), output.page(), facts, self._ways)
        output.write_text(block.text)

    def report(self, letter: Letter | None, result: Outcome | IntercomError) -> None:
        """Say on standard error what became of a line of standard input: one line."""
        if not self._as_json:
            self._tell(letter, result)
            return
        if isinstance(result, Outcome):
            fields = result.fields()
        else:
            fields = result.details | {
                "status": "error",
                "code": result.code,
                "message": result.text,
                "remedy": remedy_for(result),
            }
        if letter is not None:
            fields["envelope"] = json.loads(letter.line)
        with contextlib.suppress(OSError):
            output.write(output.to_json(fields) + b"\n", output.STDERR)

    def _tell(self, letter: Letter | None, result: Outcome | IntercomError) -> None:
        """Say it in words."""
        if isinstance(result, IntercomError):
            output.note(f"{result.text}\n  {remedy_for(result) if letter else ORDER}")
        elif letter is not None:
            output.note(sentence(result, letter).rstrip())

    def note(self, text: str) -> None:
        """Say something about the listening itself."""
        output.note(text)


@click.command
@options.session_option
@click.option("--fresh/--no-fresh", default=False, help="Skip what lies unread, or not.")
@options.from_option
@click.option("--once", is_flag=True, help="End after the first message, or messages.")
@click.option("--timeout", type=options.Seconds(), metavar="SECONDS", help="End after this.")
@click.option("--takeover", is_flag=True, help="Read instead of whoever does, even if stopped.")
@click.option("--keep", is_flag=True, help="Go on when the program that started this has ended.")
@click.pass_context
def listen(
    ctx: click.Context,
    session: str | None,
    fresh: bool,
    place: str | None,
    once: bool,
    timeout: float | None,
    takeover: bool,
    keep: bool,
) -> None:
    """Show messages that lie unread, then each as it comes, one flushed line a message.

    Goes on through restarts of the hub. Lines on standard input are sent:
    {"action":"send","to":ID,"text":TEXT,"payload":OBJECT,"reply_to":ID}; what
    became of each is one JSON line on standard error.
    One at a time listens for a session. It ends when whoever started it has
    ended, and leaves unread what nobody would have seen.
    """
    parent = None if keep else Parent()
    place = _place(fresh, place)
    deadline = None if timeout is None else time.monotonic() + timeout
    scope = options.scope(ctx)
    own = scope.session(session)
    token = own_token(scope.paths, own)
    printer = _Printer(scope.as_json, scope.paths, own, ways(options.given(ctx), session))
    with Seat(scope.paths, own, "intercom listen", time.time(), parent) as seat:
        seat.take_for_long(takeover=takeover)
        listener = Listener(
            scope.paths,
            own,
            token,
            printer,
            once=once,
            deadline=deadline,
            orders=output.STDIN,
            output=output.STDOUT,
            seat=seat,
            takeover=takeover,
        )
        try:
            with contextlib.suppress(BrokenPipeError, Orphaned):
                again = _begin(scope.paths, own, place, printer, seat)
                if not (once and again):
                    listener.run()
        except IntercomError as error:
            if error.code == "SESSION_COLLISION":
                error.remedy = f"{own!r} listens already: end that one, or say --session NAME"
            raise


def _place(fresh: bool, place: str | None) -> str | None:
    """Where to begin, by either option."""
    if fresh and place is not None:
        raise click.UsageError("--fresh is the same as --from now: say one")
    return resuming.NOW if fresh else place


def _begin(paths: ChannelPaths, own: str, place: str | None, printer: _Printer, seat: Seat) -> bool:
    """Begin where it was asked for; say how much waits. True if something was shown again."""
    shown = False
    with Inbox(paths, own, fence=seat.check) as inbox:
        if place is not None:
            inbox.enrol()
            begun = resuming.resume(paths, own, place)
            if begun.skipped:
                output.note(f"{counted(begun.skipped, 'older message')} skipped")
            if begun.problem:
                output.note(begun.problem)
            if begun.start is not None:
                for record in resuming.between(inbox, begun.start):
                    seat.check_to_show()
                    printer.show(record.line, envelope.parse(record.line))
                    shown = True
        left = count_left(inbox, inbox.read(None, 0).start)
        if left.number > MANY:
            written = age(left.newest, time.time())
            newest = f", the newest {written}" if written else ""
            output.note(f"{left.number} messages lie unread{newest}")
    return shown
