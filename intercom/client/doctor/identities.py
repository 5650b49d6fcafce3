"""Names: whose they are, and whether those are still there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator
from typing import Any

from intercom.client import claims
from intercom.client.doctor.findings import NOTE, PROBLEM, Finding
from intercom.client.doctor.patient import Patient, World
from intercom.client.namebook import FILE, Shelf
from intercom.errors import IntercomError
from intercom.paths import read_private
from intercom.spool.format import decode_name

#: So many maps of other projects are looked at.
MOST_MAPS = 1000


def claimed(patient: Patient) -> Iterator[Finding]:
    """Names of the channel whose projects are gone."""
    for name in patient.names:
        if not (name.startswith("name_") and name.endswith(".json")):
            continue
        session = decode_name(name[len("name_") : -len(".json")])
        with contextlib.suppress(OSError, IntercomError):
            claim = claims.look(patient.paths, session) if session is not None else None
            if claim is not None and claim.tree is not None and _is_gone(claim.project):
                yield Finding(
                    NOTE,
                    "project-gone",
                    f"{session!r} is the name of a project that is gone: {claim.project}",
                    f"give it up, and see what it had unread: "
                    f"intercom {patient.where} forget {shlex.quote(claim.session)}",
                    patient.paths.file(name),
                    session=session,
                )


def books(world: World) -> Iterator[Finding]:
    """The map of names of the project here, and those that lie apart from their projects."""
    shelf = Shelf(world.project, world.environ)
    try:
        shelf.look()
    except IntercomError as error:
        yield Finding(PROBLEM, "names-unreadable", error.text, error.remedy, shelf.files[0])
    state = os.path.dirname(os.path.dirname(shelf.files[1]))
    try:
        found = sorted(os.listdir(state))[:MOST_MAPS]
    except OSError:
        return
    for one in found:
        path = os.path.join(state, one, FILE)
        project: Any = None
        unusable = (OSError, IntercomError, ValueError, AttributeError, RecursionError)
        with contextlib.suppress(*unusable):
            project = json.loads(read_private(path) or b"{}").get("project")
        if isinstance(project, str) and _is_gone(project):
            text = f"a map of names is left of a project that is gone: {project}"
            remedy = f"rm -r {shlex.quote(os.path.dirname(path))}"
            yield Finding(NOTE, "names-left", text, remedy, path)


def _is_gone(project: str) -> bool:
    """Whether a directory is not there any more; one that cannot be seen may be."""
    try:
        os.stat(project)
    except (FileNotFoundError, NotADirectoryError):
        return bool(project)
    except (OSError, ValueError):
        pass
    return False
