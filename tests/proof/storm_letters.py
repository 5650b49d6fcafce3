"""Messages that a test sends itself, one connection at a time, with every step in the history."""

from __future__ import annotations

import time
from collections.abc import Iterable

from storm_place import Place, until

from intercom.client.blocking import HubConnection
from intercom.errors import IntercomError
from intercom.names import EVERYONE
from intercom.wire.envelope import format_timestamp, make

#: Who sends them.
SENDER = "teller"


class Letters:
    """A sender of one storm that waits for its receipts, or not.

    :ivar lines: what was sent, by id, to be sent again.
    """

    def __init__(self, place: Place, everybody: Iterable[str] = ()) -> None:
        self._place = place
        self._everybody = list(everybody)
        self.lines: dict[str, bytes] = {}

    def write(self, to: str, text: str = "hello", message_id: str = "") -> str:
        """Make a message that is about to be sent; its id."""
        message_id = message_id or f"letter-{len(self.lines)}"
        line = make(
            type="chat",
            message_id=message_id,
            from_session=SENDER,
            to_session=to,
            channel=self._place.paths.name,
            payload={"text": text},
            timestamp=format_timestamp(time.time()),
            reply_to=None,
        )
        self.lines[message_id] = line
        targets = self._everybody if to in EVERYONE else [to]
        self._place.history.sending(message_id, targets, line)
        return message_id

    def send(self, hub: HubConnection, *message_ids: str) -> None:
        """Send messages, and wait for nothing."""
        for message_id in message_ids:
            hub.send_line(self.lines[message_id])

    def settle(
        self, hub: HubConnection, message_id: str, timeout: float = 30.0
    ) -> dict[str, object]:
        """Wait for the last word about a message, and note it; the receipt's payload.

        :raise IntercomError: none came.
        """
        return self._note(message_id, hub.answer_to(message_id, timeout).payload)

    def settle_next(self, hub: HubConnection, timeout: float = 30.0) -> None:
        """Wait for the last word about any message, and note it."""
        received = hub.receive(timeout)
        while received is not None and received.type != "receipt":
            received = hub.receive(timeout)
        assert received is not None, "a receipt did not come"
        assert received.envelope is not None
        self._note(received.envelope["reply_to"], received.payload)

    def _note(self, message_id: str, payload: dict[str, object]) -> dict[str, object]:
        kinds = {"stored": "ok", "refused": "fail"}
        self._place.history.sent(message_id, kinds.get(str(payload.get("state")), "info"))
        return payload

    def deliver(self, message_id: str) -> None:
        """Send one message until a hub has stored it, as a client does that was not told."""

        def answered() -> dict[str, object] | None:
            try:
                with self._place.connection(SENDER) as hub:
                    self.send(hub, message_id)
                    return self.settle(hub, message_id)
            except IntercomError:
                return None

        receipt = until(answered, f"a receipt of {message_id}")
        assert receipt["state"] == "stored", receipt
