"""``intercom paths``: where everything is, who says so, and what the place can promise."""

from __future__ import annotations

import os
import stat
from typing import Any

import click

from intercom.cli import options, output
from intercom.cli.remedies import remedy_for
from intercom.client.identity import Names
from intercom.client.namebook import Shelf
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths, forgetful
from intercom.private import described
from intercom.records import LEVELS
from intercom.settings.files import ChannelFile, user_path
from intercom.settings.lookup import DEFAULT, Settings
from intercom.showing.text import escape


@click.command
@options.session_option
@click.pass_context
def paths(ctx: click.Context, session: str | None) -> None:
    """Show where everything is, who says so, and how safe messages are there.

    Makes nothing, and starts no hub. Of a place that commands refuse it says why.
    """
    scope = options.look(ctx)
    own = _session(scope, session)
    places = _places(scope, own)
    promise = _promise(scope)
    if scope.as_json:
        result = {
            "channel": scope.paths.name,
            "session": own,
            "project": scope.project,
            "places": places,
            "durability": promise,
        }
        output.write(output.to_json(result) + b"\n")
    else:
        output.write_text(_text(places, promise))


def _session(scope: options.Scope, option: str | None) -> str | None:
    """As whom a command here would speak, None if it would have to take a name first."""
    names = Names(scope.paths, scope.project, os.environ)
    try:
        given = names.given(option)
        if given is not None:
            return given[0]
        book = Shelf(scope.project, os.environ).look()
        name = book and book.of(names.caller.key, scope.paths.directory)
    except IntercomError as error:
        output.note(error.text)
        return None
    return name.session if name else None


def _places(scope: options.Scope, session: str | None) -> dict[str, dict[str, Any]]:
    """Every place by its name: its path, who says so, and what is there."""
    channel, settings = scope.paths, scope.settings
    in_tree, in_state = Shelf(scope.project, os.environ).files
    known = in_state if os.path.lexists(in_state) and not os.path.lexists(in_tree) else in_tree
    moved = channel.socket != channel.file("hub.sock")
    places = {
        "base": _place(channel.base, _who(settings, "dir")),
        "channel": _place(channel.directory, _who(settings, "channel")),
        "socket": _place(channel.socket, f"{channel.socket_pointer} says so" if moved else ""),
        "lock": _place(channel.lock),
        "log": _place(channel.log),
        "settings": _place(channel.settings),
    }
    if session is not None:
        places["inbox"] = _place(channel.inbox(session), f"session {session}")
    return places | {
        "project": _place(scope.project, private=False),
        "identity": _place(known),
        "user_settings": _place(user_path(os.environ), private=False),
    }


def _place(path: str, source: str = "", *, private: bool = True) -> dict[str, Any]:
    """One place: whether it is there, and whose it is.

    :param private: it should be ours alone, so what is otherwise is a problem.
    """
    place: dict[str, Any] = {"path": path, "from": source, "exists": False}
    try:
        found = os.lstat(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            place["problem"] = str(error.strerror)
        return place
    place |= {"exists": True, "uid": found.st_uid, "mode": f"{stat.S_IMODE(found.st_mode):04o}"}
    if private and stat.S_ISLNK(found.st_mode):
        place["problem"] = f"a symbolic link ({described(found)})"
    elif private and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        place["problem"] = described(found)
    return place


def _who(settings: Settings, key: str) -> str:
    """Who says what holds for a setting."""
    found = settings.find(key)
    return DEFAULT if found.source == DEFAULT else found.where


def _promise(scope: options.Scope) -> dict[str, Any]:
    """How safe messages are: what is asked of a hub here, what can be had, and why not more.

    ``level`` is what a receipt names; None where every command refuses the place.
    """
    channel: ChannelPaths = scope.paths
    try:
        channel.check()
    except IntercomError as error:
        asked = str(scope.settings.value("durability"))
        refused = {"asked": asked, "reachable": None, "level": None}
        return refused | {"reason": error.text, "remedy": remedy_for(error)}
    try:
        asked = str(scope.settings.on(ChannelFile(channel)).value("durability"))
    except IntercomError as error:
        output.note(error.text)
        asked = str(scope.settings.value("durability"))
    reason = forgetful(channel.directory)
    reachable = "process" if reason else "disk"
    promise = {
        "asked": asked,
        "reachable": reachable,
        "level": min(asked, reachable, key=LEVELS.index),
        "reason": reason,
        "remedy": "",
    }
    if reason:
        promise["remedy"] = (
            "choose a place on disk with --dir or INTERCOM_DIR, or for all your channels: "
            "intercom config --user dir ~/.local/state/intercom"
        )
    return promise


_MEANING = {
    "disk": "what was called stored survives a power cut",
    "process": "what was called stored survives any process, but not a restart of the machine",
    "memory": "what was called stored may be lost with the hub",
}


def _text(places: dict[str, dict[str, Any]], promise: dict[str, Any]) -> str:
    """The result for a person."""
    lines = []
    for name, place in places.items():
        said = [place["from"]] if place["from"] else []
        said += [] if place["exists"] else ["missing"]
        said += [place["problem"]] if "problem" in place else []
        note = f"  ({escape(', '.join(said))})" if said else ""
        lines.append(f"{name.replace('_', ' '):<14} {escape(place['path'])}{note}")
    if promise["level"] is None:
        lines += [f"cannot be used: {escape(promise['reason'])}", f"  {escape(promise['remedy'])}"]
        return "\n".join(lines) + "\n"
    lines.append(f"durability {promise['level']}: {_MEANING[promise['level']]}")
    if promise["reason"]:
        lines += [f"  {escape(promise['reason'])}", f"  {promise['remedy']}"]
    return "\n".join(lines) + "\n"
