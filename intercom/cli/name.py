"""``intercom name``: who you are, and which names your project has."""

from __future__ import annotations

import time
from typing import Any

import click

from intercom.cli import options, output
from intercom.cli.rendering import escape, label
from intercom.client.identity import Identity, Names, Row
from intercom.client.roster import Persona, persona
from intercom.spool.files import Inbox


@click.command
@click.option("--id-only", is_flag=True, help="Print nothing but the session id.")
@click.option("--all", "everything", is_flag=True, help="List the names of this project.")
@click.option("--claim", metavar="ID", help="Be called so from now on.")
@click.pass_context
def name(ctx: click.Context, id_only: bool, everything: bool, claim: str | None) -> None:
    """Show who you are, and what says so; one who has no name yet is given one.

    A name that somebody uses at this moment, or that is another project's, cannot be claimed.
    """
    if everything and claim:
        raise click.UsageError("--all lists names, --claim takes one: choose")
    scope = options.scope(ctx)
    names = scope.names()
    if everything:
        return _list(scope, names, id_only)
    who = scope.use(claimed(names, claim) if claim else names.speaker())
    warn_of_former(scope, who)
    if not who.sticky:
        with Inbox(scope.paths, who.session) as inbox:
            inbox.enrol()  # whoever writes to it from now on writes to somebody
    if id_only:
        output.write_text(f"{who.session}\n")
    elif scope.as_json:
        fields = {
            **_fields(who.session),
            "source": who.source,
            "caller": who.caller,
            "is_sticky": who.sticky,
            "channel": scope.paths.name,
            "project_dir": scope.project,
        }
        output.write(output.to_json(fields) + b"\n")
    else:
        is_of = described(who.persona)
        said = f"{label(who.session)}{f': {is_of}' if is_of else ''}\n"
        output.write_text(f"{said}  {_reason(who, scope.project)}\n")
    return None


def _list(scope: options.Scope, names: Names, id_only: bool) -> None:
    """Show all names of the project on the channel."""
    rows = names.rows()
    own = names.own()
    if id_only:
        output.write_text("".join(f"{row.session}\n" for row in rows))
    elif scope.as_json:
        listed: list[dict[str, Any]] = [
            {
                **_fields(row.session),
                "caller": row.caller,
                "yours": row.session == own,
                "gone": row.gone,
                "live": row.live,
                "used_at": row.used_at,
            }
            for row in rows
        ]
        fields = {"channel": scope.paths.name, "project_dir": scope.project, "names": listed}
        output.write(output.to_json(fields) + b"\n")
    else:
        lines = [_line(row, row.session == own, time.time()) for row in rows]
        output.write_text("".join(lines) or "this project has no names yet\n")


def _fields(session: str) -> dict[str, Any]:
    who = persona(session)
    return {"session_id": session, "name": who.name, "title": who.title, "ship": who.ship}


def _line(row: Row, own: bool, now: float) -> str:
    """One name for a person."""
    if row.live:
        state = "in use"
    elif row.gone:
        state = "free"
    else:
        state = f"last used {max(0, int(now - row.used_at)) // 60} min ago"
    whose = "nobody" if row.caller is None else escape(row.caller)
    return f"{label(row.session)}{' (you)' if own else ''}: {state}, of {whose}\n"


def described(who: Persona) -> str:
    """Somebody in words, empty for one who is not of the roster."""
    return f"{who.name}, {who.title}, {who.ship}" if who.title else ""


def _reason(who: Identity, project: str) -> str:
    """What makes this the name."""
    if who.caller is None:
        return f"because {who.source} says so"
    callers = {"none": "whoever has no terminal", "terminal": "this terminal"}
    is_pane = who.source in ("tmux", "zellij", "screen", "wezterm", "kitty")
    kind = callers.get(who.source, f"this {who.source} {'pane' if is_pane else 'session'}")
    return f"the name of {kind} in {escape(project)}"


def claimed(names: Names, session: str) -> Identity:
    """Give the caller the name that it wants, and say if that will have no effect."""
    found = names.claim(session)
    given = names.given(None)
    if given is not None and given[0] != session:
        output.note(
            f"INTERCOM_SESSION goes before: commands still speak as {given[0]!r}\n"
            f"  to speak as {session!r}: unset INTERCOM_SESSION"
        )
    return found


def warn_of_former(scope: options.Scope, who: Identity) -> None:
    """Say that messages were left behind under the name that was given up."""
    if who.former in (None, who.session):
        return
    assert who.former is not None
    with Inbox(scope.paths, who.former) as inbox:
        unread = inbox.unread()
    if unread:
        former = label(who.former)
        output.note(
            f"{unread} unread under the name that you had, {former}\n"
            f"  read them: {options.again(scope.context, 'poll', '--session', who.former)}"
        )
