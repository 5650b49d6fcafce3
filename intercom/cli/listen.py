"""``intercom listen``: what lies unread, then whatever comes, a line a message."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import click

from intercom.cli import options, output, rendering
from intercom.cli.remedies import remedy_for
from intercom.cli.send import sentence
from intercom.client.listening import Listener
from intercom.client.outbox import Letter, Outcome
from intercom.client.tokens import own_token
from intercom.errors import IntercomError
from intercom.spool.files import Inbox

#: What a line of standard input looks like.
ORDER = 'standard input takes lines like {"action":"send","to":"NAME","text":"..."}'


class _Printer:
    """Prints messages to standard output, and everything else to standard error."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, line: bytes, message: dict[str, Any]) -> None:
        """Print one message and flush it."""
        if self._as_json:
            output.write(line + b"\n")
            return
        output.write_text(rendering.messages([message], time.time(), output.page()))

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
@click.option("--once", is_flag=True, help="End after the first message, or messages.")
@click.option("--timeout", type=options.Seconds(), metavar="SECONDS", help="End after this.")
@click.pass_context
def listen(
    ctx: click.Context, session: str | None, fresh: bool, once: bool, timeout: float | None
) -> None:
    """Show messages that lie unread, then each as it comes, one flushed line a message.

    Goes on through restarts of the hub. Lines on standard input are sent:
    {"action":"send","to":ID,"text":TEXT,"payload":OBJECT,"reply_to":ID}; what
    became of each is one JSON line on standard error.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    scope = options.scope(ctx)
    own = scope.session(session)
    token = own_token(scope.paths, own)
    if fresh:
        with Inbox(scope.paths, own) as inbox:
            inbox.enrol()
            skipped, _end = inbox.skip_to_end()
        if skipped:
            output.note(f"{rendering.counted(skipped, 'older message')} skipped")
    listener = Listener(
        scope.paths,
        own,
        token,
        _Printer(scope.as_json),
        once=once,
        deadline=deadline,
        orders=output.STDIN,
        output=output.STDOUT,
    )
    try:
        with contextlib.suppress(BrokenPipeError):
            listener.run()
    except IntercomError as error:
        if error.code == "SESSION_COLLISION":
            error.remedy = (
                f"{own!r} listens already: end that one, or listen as another --session NAME"
            )
        raise
