"""Sending one message so that it arrives once, with or without a hub. Standard library only.

The same bytes are sent again after every loss of the hub, for it stores an id of
one sender once. Where no hub is to be had, a direct message is appended to its
recipient's inbox file, unless it stands there already.
"""

from __future__ import annotations

import os
import time
from _socket import socket

from intercom.client.blocking import HubConnection, refusal
from intercom.client.dial import ConnectionLost, reach

# Whoever delivers a message has written it first.
from intercom.client.letters import Letter as Letter
from intercom.client.letters import compose as compose
from intercom.errors import CannotCreate, HubUnavailable, IntercomError
from intercom.paths import ChannelPaths
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Connect = Callable[[ChannelPaths], socket]

#: Seconds in which a message is tried through the hub, and to wait for one receipt.
PATIENCE = 10.0
RECEIPT_TIMEOUT = 5.0
#: Refusals of a registration that leave the file as a way.
_FILE_INSTEAD = frozenset({"SESSION_COLLISION", "TOO_MANY_SESSIONS"})


class Outcome(NamedTuple):
    """What became of a message; None is "not known".

    :ivar status: ``sent`` (through a hub) or ``spooled_offline`` (through the inbox file).
    :ivar state: ``stored``, or None where the hub (an original one) does not say.
    :ivar level: durability reached; ``live``: recipients that were connected and reading.
    :ivar reason: why no hub took it, ``cause`` in one word, and what may be done about it
        (``remedy``); empty if one did.
    :ivar outdated: what to say of a hub that is older than this program, or empty.
    """

    status: str
    state: str | None = None
    level: str | None = None
    live: int | None = None
    known: bool | None = None
    nearest: Sequence[str] = ()
    recipients: int | None = None
    duplicate: bool = False
    failed: Sequence[dict[str, Any]] = ()
    reason: str = ""
    cause: str = ""
    remedy: str = ""
    outdated: str = ""

    def fields(self) -> dict[str, Any]:
        """For output: all that is always there, and the rest where it says something."""
        shown: dict[str, Any] = {
            "status": self.status,
            "state": self.state,
            "level": self.level,
            "live": self.live,
            "known": self.known,
            "nearest": self.nearest,
            "recipients": self.recipients,
        }
        extra = {
            "duplicate": self.duplicate,
            "failed": self.failed,
            "reason": self.reason,
            "cause": self.cause,
            "remedy": self.remedy,
        }
        return shown | {name: value for name, value in extra.items() if value}


def deliver(
    paths: ChannelPaths,
    letter: Letter,
    token: str,
    *,
    patience: float = PATIENCE,
    connect: Connect = reach,
) -> Outcome:
    """Send a message through the hub, or failing that through the recipient's inbox file.

    A hub that dies before its receipt is followed by the next one, for ``patience``
    seconds in all. Registers beside whatever connection the session has
    (``role: sender``).

    :raise IntercomError: refused; or a broadcast, and no hub took it.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return through_hub(paths, letter, token, deadline, connect)
        except ConnectionLost as error:
            trouble: IntercomError = error
            if time.monotonic() < deadline:
                time.sleep(0.02 + 0.08 * os.urandom(1)[0] / 255)
                continue
        except (HubUnavailable, CannotCreate) as error:
            trouble = error
        except IntercomError as error:
            if error.code not in _FILE_INSTEAD:
                raise
            trouble = error
        from intercom.client.offline import store_offline  # seldom needed, and not for nothing

        return store_offline(paths, letter, trouble)


def through_hub(
    paths: ChannelPaths, letter: Letter, token: str, deadline: float, connect: Connect
) -> Outcome:
    """Try once, and only this way; started is a hub if none runs.

    :param deadline: when to give up waiting for the receipt (monotonic seconds).
    :raise ConnectionLost: it is not known what became of it; send it again.
    :raise IntercomError: no hub is to be had, or the message is refused.
    """
    with HubConnection(connect(paths), paths, letter.sender) as hub:
        hub.register(features=("receipts",), role="sender", token=token)
        if "receipts" not in hub.features:
            from intercom.client.offline import without_receipt  # for an original hub

            outcome = without_receipt(paths, letter, hub)
            return outcome._replace(outdated=_no_levels(paths, letter))
        hub.send_line(letter.line)
        patience = max(0.5, min(RECEIPT_TIMEOUT, deadline - time.monotonic()))
        outcome = outcome_of(hub.answer_to(letter.message_id, patience).payload)
        return outcome._replace(outdated=hub.outdated)


def _no_levels(paths: ChannelPaths, letter: Letter) -> str:
    """What to say of an original hub that was asked for a level, else nothing."""
    if letter.durability is None:
        return ""
    return (
        f"the hub of channel {paths.name!r} is one of the original mesh, which knows no levels: "
        f"it syncs nothing, whatever is asked for\n"
        f"  end it: intercom hub stop; the next command starts a hub of intercom"
    )


def outcome_of(receipt: dict[str, Any]) -> Outcome:
    """Read a receipt's payload.

    :raise IntercomError: it says ``refused``.
    """
    if receipt.get("state") == "refused":
        raise refusal(receipt)
    return Outcome(
        status="sent",
        state=receipt.get("state"),
        level=receipt.get("level"),
        live=receipt.get("live"),
        known=receipt.get("known", True),
        nearest=list(receipt.get("nearest") or ()),
        recipients=receipt.get("recipients"),
        duplicate=bool(receipt.get("duplicate")),
        failed=list(receipt.get("failed") or ()),
    )
