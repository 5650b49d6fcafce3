"""``intercom status``: how far messages have come, as the channel's files tell it."""

from __future__ import annotations

import time
from typing import Any

import click

from intercom.cli import options, output
from intercom.cli.reading import words
from intercom.client.inquiry import Inquiry, Told
from intercom.client.readership import Readership, readership
from intercom.client.standing import Standing
from intercom.errors import IntercomError
from intercom.showing.text import escape, label
from intercom.showing.words import ago
from intercom.spool.files import Patience
from intercom.wire.envelope import format_timestamp

#: As many of the last messages are shown where none is named.
LATEST = 10


@click.command
@click.argument("message_id", metavar="[ID]", required=False)
@click.option(
    "--from",
    "sender",
    metavar="SENDER",
    shell_complete=options.complete_session,
    help="Of this sender; by default of any, and without an ID of yourself.",
)
@click.pass_context
def status(ctx: click.Context, message_id: str | None, sender: str | None) -> None:
    """Show how far a message has come with each recipient, and when.

    Without ID, your last ten messages. No hub is needed, and none is started.
    """
    scope = options.scope(ctx)
    patience = Patience()
    inquiry = Inquiry(scope.paths, patience)
    if message_id is None:
        told = inquiry.newest(sender or scope.session(None), LATEST)
    else:
        told = inquiry.about(message_id, sender)
        if not told:
            raise _unknown(message_id, sender)
    now = time.time()
    waiting = {
        name for one in told for name, standing in one.recipients.items() if _waits(standing)
    }
    readers = {name: readership(scope.paths, name, patience) for name in sorted(waiting)}
    if scope.as_json:
        messages = [_fields(one, readers, now) for one in told]
        fields = {"channel": scope.paths.name, "messages": messages}
        output.write(output.to_json(fields) + b"\n")
        return
    text = "".join(_text(one, readers, now) for one in told)
    output.write_text(text or "no message is known\n")


def _unknown(message_id: str, sender: str | None) -> IntercomError:
    """Of such a message no file says anything (any more)."""
    by = f" of {sender!r}" if sender else ""
    return IntercomError(
        f"nothing is known of a message {message_id!r}{by} on this channel",
        code="UNKNOWN_MESSAGE",
        remedy="the last 100,000 messages are known, and what lies in inboxes; "
        "see what you sent lately: intercom status",
    )


def _waits(standing: Standing) -> bool:
    """Whether the message is still to be read."""
    return standing.state in ("stored", "pushed", "shown") and not standing.gone


def _fields(told: Told, readers: dict[str, Readership], now: float) -> dict[str, Any]:
    """A message for programs; times are ISO 8601 in UTC, null where they are not known.

    Of a recipient that has not read it, whether anybody reads there at all.
    """
    recipients = []
    for session, standing in told.recipients.items():
        times = {state: _written(at) for state, at in standing.times.items()}
        row: dict[str, Any] = {"session": session, "state": standing.state, "level": standing.level}
        row |= {f"{state}_at": None for state in ("stored", "pushed", "shown", "read")}
        row |= {f"{state}_at": at for state, at in times.items()}
        extra = {
            "read_before": _written(standing.before),
            "gone": standing.gone,
            "code": standing.code,
            "message": standing.text,
        }
        row |= {name: value for name, value in extra.items() if value}
        if _waits(standing):
            row |= readers[session].fields(now)
        recipients.append(row)
    return {
        "id": told.message_id,
        "from": told.sender,
        "sent_at": _written(told.sent_at),
        "recipients": recipients,
    }


def _written(at: float | None) -> str | None:
    return None if at is None else format_timestamp(at)


def _text(told: Told, readers: dict[str, Readership], now: float) -> str:
    """A message for people: a head, and a line for each recipient."""
    sent = "" if told.sent_at is None else f", sent {_ago(told.sent_at, now)}"
    lines = [f"{label(told.message_id)} from {label(told.sender)}{sent}"]
    rows = [
        (label(session), _state(standing, now), _rest(standing, readers.get(session), now))
        for session, standing in told.recipients.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, state, rest in rows:
        lines.append(f"  {name:<{widths[0]}}  {state:<{widths[1]}}  {rest}".rstrip())
    return "\n".join(lines) + "\n"


def _state(standing: Standing, now: float) -> str:
    """The furthest state, and when it was reached."""
    if standing.before is not None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(standing.before))
        return f"read before {moment}"
    return _step(standing, standing.state, now)


def _step(standing: Standing, state: str, now: float) -> str:
    """A state, and when it was reached."""
    at = standing.times.get(state)
    said = state if at is None else f"{state} {_ago(at, now)}"
    return f"{said} ({standing.level})" if state == "stored" and standing.level else said


def _rest(standing: Standing, reading: Readership | None, now: float) -> str:
    """The states on the way, and what else there is to say."""
    times = dict(standing.times)
    if "read" in times and times.get("shown") == times["read"]:
        del times["shown"]  # which goes without saying
    on_the_way = [state for state in ("stored", "pushed", "shown") if state in times]
    said = [_step(standing, state, now) for state in on_the_way if state != standing.state]
    if standing.state in ("skipped", "expired"):
        said.insert(0, "never read")
    if standing.gone:
        said.append("not in the inbox any more")
    if reading is not None and _waits(standing):
        said.append(words(reading, now))
    if standing.code:
        said.append(f"{standing.code}: {escape(standing.text)}".rstrip(": "))
    return ", ".join(said)


def _ago(at: float, now: float) -> str:
    return ago(max(0.0, now - at))
