"""``intercom name``: who you are, and which names your project has."""

from __future__ import annotations

import time
from typing import Any

import click

from intercom.cli import options, output
from intercom.client import claims
from intercom.client.callers import in_words
from intercom.client.identity import MOST_NUMBERED, Identity, Names, Row
from intercom.client.roster import Persona, persona
from intercom.errors import IntercomError
from intercom.names import MAX_SESSION_LENGTH, check_chosen, slug
from intercom.showing.text import escape, label
from intercom.showing.words import ago
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.known import is_known


@click.command
@click.option("--id-only", is_flag=True, help="Print nothing but the session id.")
@click.option("--all", "everything", is_flag=True, help="List the names of this project.")
@click.option("--claim", metavar="ID", help="Be called so from now on.")
@click.pass_context
def name(ctx: click.Context, id_only: bool, everything: bool, claim: str | None) -> None:
    """Show who you are, and what says so; one who has no name yet is given one.

    A name that somebody uses at this moment, or that is another project's, cannot be claimed.
    """
    if everything and claim is not None:
        raise click.UsageError("--all lists names, --claim takes one: choose")
    scope = options.scope(ctx)
    names = scope.names()
    if everything:
        return _list(scope, names, id_only)
    asked = ("name", "--claim")
    who = scope.use(names.speaker() if claim is None else claimed(scope, names, claim, asked))
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
    whose = "" if row.caller is None else escape(in_words(row.caller))
    if row.live:
        state = f"in use, the name of {whose}" if whose else "in use"
    elif row.gone:
        state = f"free, was the name of {whose}" if whose else "free"
    else:
        state = f"the name of {whose}, last used {ago(now - row.used_at)}"
    return f"{label(row.session)}{' (you)' if own else ''}: {state}\n"


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


def claimed(scope: options.Scope, names: Names, session: str, asked: tuple[str, ...]) -> Identity:
    """Give the caller the name that it wants, and say if that will have no effect.

    :param asked: verb and option that took the name, to say how another one is taken.
    """
    try:
        found = names.claim(session)
    except IntercomError as error:
        if error.code in ("BAD_SESSION_ID", "SESSION_COLLISION"):
            error.remedy = _instead(scope, names, session, asked, error.code)
        raise
    given = names.given(None)
    if given is not None and given[0] != session:
        output.note(
            f"INTERCOM_SESSION goes before: commands still speak as {given[0]!r}\n"
            f"  to speak as {session!r}: unset INTERCOM_SESSION"
        )
    return found


def _instead(
    scope: options.Scope, names: Names, session: str, asked: tuple[str, ...], code: str
) -> str:
    """What to try where a name cannot be had."""
    if code == "BAD_SESSION_ID":
        return f"choose another: {scope.again(*asked, _plain(session))}"
    other = scope.again(*asked, _free_like(scope, names, session))
    said = f"choose another: {other}; or have one drawn: {scope.again('init', '--force-new')}"
    if names.has(session):
        said += f"; see this project's names: {scope.again('name', '--all')}"
    return said


def _free_like(scope: options.Scope, names: Names, session: str) -> str:
    """The same name with the lowest number behind it that nobody has used on the channel."""
    calls, base = FileCalls(), session[: MAX_SESSION_LENGTH - 3]
    numbered = [f"{base}-{n}" for n in range(2, MOST_NUMBERED + 1)]
    for one in numbered:
        used = is_known(scope.paths, calls, one) or names.has(one) or names.is_live(one)
        if not used and claims.look(scope.paths, one).tree is None:
            return one
    return numbered[-1]


def _plain(session: str) -> str:
    """What may be had in place of a name that is none."""
    try:
        return check_chosen(slug(session)) if session else "NAME"
    except IntercomError:
        return "NAME"


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
            f"  read them: {scope.again('poll', '--session', who.former)}"
        )
