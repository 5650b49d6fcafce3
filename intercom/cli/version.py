"""``intercom version``: of this command, what it stands on, and the hub that runs."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import click

import intercom
from intercom.cli import options, output
from intercom.client.control import look
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths
from intercom.settings.files import FORMAT
from intercom.wire.envelope import PROTOCOL

_UNKNOWN = "the hub of channel {} could not be asked"


@click.command
@click.pass_context
def version(ctx: click.Context) -> None:
    """Show the version of this command, and of the hub if one runs. Starts none."""
    scope = options.look(ctx)
    result = {**program(), "channel": scope.paths.name, "hub": None}
    trouble, state = "", "no hub runs on channel {}"
    try:
        result["hub"] = _hub(scope.paths)
    except HubUnavailable as error:
        cause = error.details.get("cause")
        if cause not in ("absent", "refused"):
            trouble = error.text
            silent = cause == "silent"
            state = "the hub of channel {} does not answer" if silent else _UNKNOWN
    except IntercomError as error:
        trouble, state = error.text, _UNKNOWN
    if scope.as_json:
        output.write(output.to_json(result) + b"\n")
    else:
        output.write_text(_text(result, state.format(scope.paths.name)))
    if trouble:
        output.note(trouble)


def program() -> dict[str, Any]:
    """What this command is. Twisted's version is looked up, for it takes long to import."""
    try:
        twisted: str | None = metadata.version("twisted")
    except metadata.PackageNotFoundError:
        twisted = None
    return {
        "version": intercom.__version__,
        "protocol": PROTOCOL,
        "format": FORMAT,
        "python": platform.python_version(),
        "twisted": twisted,
        "program": os.path.dirname(os.path.abspath(intercom.__file__)),
    }


def line() -> str:
    """The answer to ``--version``."""
    said = program()
    return (
        f"intercom {said['version']} ({said['protocol']}, Python {said['python']}, "
        f"Twisted {said['twisted'] or 'not installed'})\n"
    )


def _hub(paths: ChannelPaths) -> dict[str, Any]:
    """Pid and version of the hub that answers; an original one tells no version."""
    sight = look(paths)
    return {"pid": sight.pid, "version": sight.told.get("version")}


def _text(result: dict[str, Any], said: str) -> str:
    """The result for a person.

    :param said: of the hub, if it told nothing.
    """
    hub, channel = result["hub"], result["channel"]
    if hub is not None:
        named = f"intercom {hub['version']}" if hub["version"] else "of the original mesh"
        said = f"the hub of channel {channel} is {named}, pid {hub['pid']}"
    return f"{line()}files of format {result['format']}; program in {result['program']}\n{said}\n"
