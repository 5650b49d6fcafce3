"""Messages from the hub itself, in the form that every reader shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from intercom.messages import Envelope
from intercom.names import HUB
from intercom.wire import envelope
from intercom.wire.replies import printable, shortened


class NoticeWriter:
    """Writes notices of one channel: a ``chat`` from ``hub``, so that any client shows it.

    :param new_id: draws a message id; :param timestamp: the time as a line writes it.
    """

    def __init__(
        self, channel: str, new_id: Callable[[], str], timestamp: Callable[[], str]
    ) -> None:
        self._channel = channel
        self._new_id = new_id
        self._timestamp = timestamp

    def __call__(self, to: str, text: str, about: str, more: dict[str, Any]) -> Envelope:
        """Write one.

        :param about: id of the message that it speaks of (``reply_to``).
        :param more: payload fields beside ``text``: ``code`` and whatever helps.
        """
        message_id = self._new_id()
        payload = printable({"text": shortened(text), "notice": more})
        line = envelope.make(
            type="chat",
            message_id=message_id,
            from_session=HUB,
            to_session=to,
            channel=self._channel,
            payload=payload,
            timestamp=self._timestamp(),
            reply_to=about,
        )
        # The bytes that stand in the line: their hash is what the line is known by.
        body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        return Envelope(message_id, HUB, to, about, body, line)
