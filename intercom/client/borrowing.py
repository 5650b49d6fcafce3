"""Asking a channel's hub to take the places of the pi clients. Standard library only."""

from __future__ import annotations

import json
import shlex
import time

from intercom.client.blocking import HubConnection, new_id, refusal
from intercom.client.dial import ConnectionLost, connect, silent
from intercom.errors import IntercomError
from intercom.names import ANONYMOUS
from intercom.paths import ChannelPaths
from intercom.pi.plan import Plan, dump_plan

#: Seconds for the hub to say that it has given the places back.
GIVE_BACK_WITHIN = 1.0
_WAIT_S = 3600.0


class Loan:
    """Places that a hub serves because we asked. Closing the connection gives nothing back.

    :ivar pid: the hub's.
    """

    def __init__(self, hub: HubConnection, paths: ChannelPaths, pid: int) -> None:
        self.pid = pid
        self._hub = hub
        self._paths = paths

    def close(self) -> None:
        """Leave the hub alone."""
        self._hub.close()

    def wait(self) -> None:
        """Come back when the hub has gone."""
        try:
            while True:
                self._hub.receive(_WAIT_S)
        except ConnectionLost:
            return

    def give_back(self) -> None:
        """Have the hub leave the places, unless others asked for them, too.

        :raise IntercomError: it does not say that it did.
        """
        _ask(self._hub, self._paths, None, GIVE_BACK_WITHIN)


def borrow(paths: ChannelPaths, plan: Plan, within: float) -> Loan:
    """Ask the hub for the places.

    :raise HubUnavailable: there is none (any more), or it does not answer.
    :raise IntercomError: the places cannot be had, or this hub knows nothing of them.
    """
    deadline = time.monotonic() + within
    hub = HubConnection(connect(paths, within), paths, ANONYMOUS)
    try:
        left = max(0.1, deadline - time.monotonic())
        return Loan(hub, paths, _ask(hub, paths, plan, left))
    except BaseException:
        hub.close()
        raise


def _ask(hub: HubConnection, paths: ChannelPaths, plan: Plan | None, within: float) -> int:
    """Ask for places, or give them back (None); the hub's pid."""
    deadline = time.monotonic() + within
    question = new_id()
    told = {"plan": None if plan is None else dump_plan(plan)}
    line = json.dumps({"type": "places", "id": question, "payload": told}).encode()
    hub.send_line(line, within)
    while True:
        received = hub.receive(max(0.0, deadline - time.monotonic()))
        if received is None:
            raise silent(paths, hub.pid)
        if received.envelope is None or received.envelope["reply_to"] != question:
            continue
        if received.type == "error":
            code = received.payload.get("code")
            if code == "UNKNOWN_TYPE":
                raise IntercomError(
                    "the hub of this channel is older, and knows nothing of the pi clients",
                    code="UNKNOWN_TYPE",
                    remedy=f"replace it: intercom --dir {shlex.quote(paths.base)} "
                    f"--channel {paths.name} hub restart",
                )
            raise refusal(received.payload)
        if received.type == "places":
            return int(received.payload.get("pid") or 0)
