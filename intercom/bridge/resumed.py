"""Which session a host has resumed. Blocking, standard library only.

Claude Code starts the bridge of a session that it resumes with the id of a new one in its
environment; commands and hooks of the same session get the old id. By that of the
environment the bridge would speak under another name than they do. But the host notes in a
file of its own which session its process has. Where that is not to be found, or not of that
process, the environment holds.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from itertools import islice

from intercom.client.processes import Table

#: Where Claude Code says the id of a session.
VARIABLE = "CLAUDE_CODE_SESSION_ID"
#: The host is our parent, or what started the shell that is.
_NEAREST = 4
_LARGEST = 1 << 16
_LONGEST = 200


def environ_of_session(environ: Mapping[str, str], table: Table) -> dict[str, str]:
    """The environment, with the id of the session that the host really has.

    :param table: the processes that are to be seen; the host is among our ancestors.
    """
    found = dict(environ)
    if environ.get(VARIABLE):
        for pid in islice(table.ancestors(table.own), 1, _NEAREST):
            noted = _noted(environ, table, pid)
            if noted:
                found[VARIABLE] = noted
                break
    return found


def _noted(environ: Mapping[str, str], table: Table, pid: int) -> str:
    """The id that a process has noted as its session's; empty if it has not."""
    place = environ.get("CLAUDE_CONFIG_DIR", "")
    if not os.path.isabs(place):
        place = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".claude")
    status = table.status(pid)
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with open(os.path.join(place, "sessions", f"{pid}.json"), "rb") as file:
            told = json.loads(file.read(_LARGEST))
        # another process may have had this pid, and have left the file
        if status is None or not isinstance(told, dict) or told.get("pid") != pid:
            return ""
        if str(told.get("procStart")) != str(status.start):
            return ""
        session = told.get("sessionId")
        if isinstance(session, str) and 0 < len(session) <= _LONGEST and session.isprintable():
            return session
    return ""
