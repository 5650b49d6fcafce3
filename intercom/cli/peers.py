"""``intercom peers``: who is here."""

from __future__ import annotations

import time
from typing import Any

import click

from intercom.cli import options, output
from intercom.cli.reading import words as reading_words
from intercom.client.blocking import HubConnection
from intercom.client.control import published
from intercom.client.readership import Readership, readership
from intercom.client.spawn import ensure_hub
from intercom.client.tokens import own_token
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.showing.text import label
from intercom.spool.calls import FileCalls
from intercom.spool.files import Patience
from intercom.spool.known import take_census

ANSWER_TIMEOUT = 5.0
#: As many names of those who are not here are shown as text; JSON has all.
MAX_ABSENT = 50


@click.command
@options.session_option
@click.pass_context
def peers(ctx: click.Context, session: str | None) -> None:
    """Show the sessions that are connected, and the names of those that are not.

    With each whether it is read now, or since when not, and how much lies unread.
    """
    scope = options.scope(ctx)
    own = scope.session(session)
    result = {"channel": scope.paths.name, **_ask(scope.paths, own)}
    now = time.time()
    readers = _readers(scope.paths, result)
    if scope.as_json:
        for row in result["sessions"]:
            row |= readers[str(row.get("session"))].fields(now)
        result["away"] = [
            {"session": name, **readers[name].fields(now)} for name in result["absent"]
        ]
        output.write(output.to_json(result) + b"\n")
    else:
        output.write_text(_text(result, own, readers, now))


def _readers(paths: ChannelPaths, result: dict[str, Any]) -> dict[str, Readership]:
    """Who reads, and what lies unread, by session."""
    names = [str(row.get("session")) for row in result["sessions"]] + result["absent"]
    patience = Patience()
    return {name: readership(paths, name, patience) for name in names}


def _ask(paths: ChannelPaths, own: str) -> dict[str, Any]:
    """Have the hub say who is here; where it cannot be asked, look at what it has published."""
    with HubConnection(ensure_hub(paths), paths, own) as hub:
        try:
            hub.register(role="sender", token=own_token(paths, own))
        except IntercomError as error:
            if error.code != "SESSION_COLLISION":
                raise
            output.note(f"{error.text}; so this is what the hub has published")
            return _from_files(paths, hub.pid, _published(paths))
        if hub.outdated:
            output.note(hub.outdated)
        if hub.original:  # it says who was there at the welcome, and that includes us
            peers = [peer for peer in hub.peers if peer != own]
            return _from_files(paths, hub.pid, {"active_sessions": peers})
        listed = hub.answer_to(hub.say("list", {}), ANSWER_TIMEOUT).payload
        return {
            "hub": hub.hub,
            "sessions": list(listed.get("sessions") or ()),
            "absent": [str(name) for name in listed.get("absent") or ()],
        }


def _published(paths: ChannelPaths) -> dict[str, Any]:
    """What ``peers.json`` says, nothing if that cannot be read."""
    found = published(paths)
    return found if isinstance(found.get("active_sessions"), list) else {"active_sessions": []}


def _from_files(paths: ChannelPaths, pid: int | None, listed: dict[str, Any]) -> dict[str, Any]:
    """The answer of a hub that was not asked; which other names were used, the files tell."""
    present = {str(name) for name in listed["active_sessions"]}
    known = take_census(paths, FileCalls(), time.time()).sessions
    return {
        "hub": {"pid": pid, "version": listed.get("version")},
        "sessions": [{"session": name} for name in sorted(present)],
        "absent": sorted(set(known) - present),
    }


def _text(result: dict[str, Any], own: str, readers: dict[str, Readership], now: float) -> str:
    """The result for a person."""
    lines = [f"channel {result['channel']}, hub pid {result['hub'].get('pid')}"]
    for row in result["sessions"]:
        name = str(row.get("session"))
        reading = reading_words(readers[name], now)
        you = " (you)" if name == own else ""
        lines.append(f"  {label(name)}{you}{_about(row)}: {reading}")
    if not result["sessions"]:
        lines.append("  nobody is connected")
    if result["absent"]:
        absent = ", ".join(map(label, result["absent"][:MAX_ABSENT]))
        more = len(result["absent"]) - MAX_ABSENT
        lines.append(f"not connected: {absent}{f' and {more} more' if more > 0 else ''}")
    for name in result["absent"]:
        if readers[name].unread != 0 or readers[name].holder is not None:
            reading = reading_words(readers[name], now, oldest=True)
            lines.append(f"  {label(name)}: {reading}")
    return "\n".join(lines) + "\n"


def _about(row: dict[str, Any]) -> str:
    """What a session is called, if its id does not say it, what it is, and which process."""
    called = f", called {label(row['name'])}" if row.get("name") else ""
    dialect = f", {label(row['dialect'])}" if row.get("dialect") else ""
    pid = f", pid {label(row['pid'])}" if row.get("pid") else ""
    return called + dialect + pid
