"""Who is connected to a channel's hub, as far as can be found out quickly and without harm.

Standard library only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from intercom.client import control
from intercom.election.locks import is_led
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.settings.lookup import Settings

#: Seconds in which the hub says it; else its published list has to do.
ASK_WITHIN = 0.5


def connected(paths: ChannelPaths, environ: Mapping[str, str]) -> frozenset[str]:
    """The sessions that are connected, as the hub has published and as it says; none if none leads.

    Starts no hub. A hub that may not be asked, or does not answer, has published its list.
    """
    if not is_led(paths):
        return frozenset()
    told = control.published(paths)
    listed = told.get("active_sessions")
    names = {str(name) for name in listed} if isinstance(listed, list) else set()
    # An original hub would take the question for a registration; its list is right anyway.
    if "version" in told and Settings(environ).value("transport") != "spool":
        with contextlib.suppress(IntercomError):
            names.update(control.look(paths, ASK_WITHIN).names)
    return frozenset(names)
