"""One way to speak for a session, whatever its dialect, for the tests of pairs.

A member says what its client would say, and tells what it hears in the same words as the
others: so a test of a pair is written once, and what differs by contract stands in it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection
from itertools import count
from typing import Any, NamedTuple

from mesh_hub import Hub
from mesh_lines_client import LinesClient
from mesh_subagents_client import SubagentsClient
from pi_broker_process import until
from pi_frames_client import PiClient

KINDS = ("intercom", "subagents", "lines")
PAIRS = [(one, other) for one in KINDS for other in KINDS]
#: Where the keys of a payload travel that a pi message has not.
FOLD = {"type": "context", "name": "payload.json", "language": "json"}
_KNOWN = frozenset({"text", "attachments", "expects_reply", "pi"})
_numbers = count(1)


class Heard(NamedTuple):
    """A message as its receiver got it.

    :ivar others: what was said beside text and attachments, as an NDJSON payload says it.
    """

    sender: str
    id: str
    text: str
    attachments: list[dict[str, Any]]
    others: dict[str, Any]
    reply_to: str | None
    asks: bool


class Member:
    """A session that is here. The words for what becomes of a message: ``delivered``,
    ``waits``, else the code or reason of the refusal.

    :ivar id: nobody else ever has it, unless a test wants that.
    """

    kind = ""

    def __init__(self, hub: Hub, session_id: str = "") -> None:
        self.hub = hub
        self.id = session_id or f"{self.kind}-{next(_numbers):04d}"
        self.come()

    def come(self) -> None:
        """Be here, again or for the first time."""
        raise NotImplementedError

    def leave(self) -> None:
        """Say no more, and wait until the hub has heard that."""
        self.client.socket.shutdown(socket.SHUT_WR)
        self.client.ended()
        self.client.close()

    def vanish(self, witness: Member) -> None:
        """Be gone without having read what was said."""
        self.client.close()
        until(lambda: self.id not in witness.sees(), "it stays")

    client: Any

    def sees(self) -> set[str]:
        raise NotImplementedError

    def send(
        self,
        to: str,
        message_id: str,
        text: str | None = None,
        *,
        attachments: Collection[dict[str, Any]] = (),
        others: dict[str, Any] | None = None,
        reply_to: str | None = None,
        asks: bool = False,
    ) -> str:
        """Send a message; what the hub says of it."""
        raise NotImplementedError

    def ask(self, to: str, message_id: str) -> str:
        return self.send(to, message_id, asks=True)

    def hears(self, *expected: str) -> list[Heard]:
        """All messages that have come; those of these ids are waited for, and confirmed."""
        raise NotImplementedError

    def ids(self, *expected: str) -> list[str]:
        return [one.id for one in self.hears(*expected)]


def _pi_message(
    text: str | None,
    attachments: Collection[dict[str, Any]],
    others: dict[str, Any] | None,
    reply_to: str | None,
    asks: bool,
) -> dict[str, Any]:
    """Fields of a pi message."""
    fields: dict[str, Any] = {}
    folded = [{**FOLD, "content": json.dumps(others)}] if others else []
    if attachments or folded:
        fields["content"] = {"text": text or "", "attachments": [*attachments, *folded]}
    if reply_to is not None:
        fields["replyTo"] = reply_to
    return {**fields, "expectsReply": True} if asks else fields


def _of_pi(frame: dict[str, Any]) -> Heard:
    message = frame["message"]
    attachments = list(message["content"].get("attachments", ()))
    others = {}
    if attachments and {**attachments[-1], "content": ""} == {**FOLD, "content": ""}:
        others = json.loads(attachments.pop()["content"])
    return Heard(
        frame["from"]["id"],
        message["id"],
        message["content"]["text"],
        attachments,
        others,
        message.get("replyTo"),
        message.get("expectsReply") is True,
    )


class _Pi(Member):
    """What both kinds of pi clients have in common."""

    def send(self, to: str, message_id: str, text: str | None = None, **said: Any) -> str:
        fields = _pi_message(
            text,
            said.get("attachments", ()),
            said.get("others"),
            said.get("reply_to"),
            said.get("asks", False),
        )
        return self._word(self.client.send(to, message_id, text, **fields))

    def sees(self) -> set[str]:
        ids = self.client.ids()
        assert len(set(ids)) == len(ids)
        return set(ids)

    def _gather(self, expected: Collection[str], mail: Callable[[], list[Any]]) -> list[Any]:
        found = mail()
        while not set(expected) <= {frame["message"]["id"] for frame in found}:
            self.client._receive()
            found += mail()
        return found

    @staticmethod
    def _word(frame: dict[str, Any]) -> str:
        raise NotImplementedError


class Intercom(_Pi):
    """A pi-intercom client."""

    kind = "intercom"
    client: PiClient

    def come(self) -> None:
        self.client = self.hub.join(self.id, session={"name": f"Name of {self.id}"})
        self.client.list()  # what lay there has come

    def hears(self, *expected: str) -> list[Heard]:
        def mail() -> list[Any]:
            self.client.list()
            frames = [one for one in self.client.arrived if one["type"] == "message"]
            for frame in frames:
                self.client.take("message", message=frame["message"])
                self.client.receipt(frame["message"]["id"])
            return frames

        found = self._gather(expected, mail)
        self.client.list()
        return [_of_pi(frame) for frame in found]

    @staticmethod
    def _word(frame: dict[str, Any]) -> str:
        if frame["type"] == "delivered":
            return "waits" if frame["delivery"] == "queued" else "delivered"
        return str(frame["code"]).removeprefix("E_")


class Subagents(_Pi):
    """A pi-subagents client; the hub sees by itself that it has read."""

    kind = "subagents"
    client: SubagentsClient

    def come(self) -> None:
        self.client = self.hub.subagents(self.id, name=f"Name of {self.id}")
        self.client.list()

    def hears(self, *expected: str) -> list[Heard]:
        return [_of_pi(frame) for frame in self._gather(expected, self.client.mail)]

    @staticmethod
    def _word(frame: dict[str, Any]) -> str:
        return "delivered" if frame["type"] == "delivered" else str(frame["reason"])


class Lines(Member):
    """An NDJSON session that moves its position.

    :ivar waits_for_position: until its file says so.
    """

    kind = "lines"
    client: LinesClient
    waits_for_position = True

    def come(self) -> None:
        self.client = self.hub.lines(self.id, "receipts", "cursor")

    def sees(self) -> set[str]:
        ids = self.client.ids()
        assert len(set(ids)) == len(ids)
        return set(ids)

    def send(self, to: str, message_id: str, text: str | None = None, **said: Any) -> str:
        payload = {"text": f"text of {message_id}" if text is None else text}
        if said.get("attachments"):
            payload["attachments"] = list(said["attachments"])
        if said.get("asks"):
            payload["expects_reply"] = True
        payload |= said.get("others") or {}
        return self._word(self.client.chat(to, message_id, payload, reply_to=said.get("reply_to")))

    def hears(self, *expected: str) -> list[Heard]:
        found = self.client.mail(*expected)
        if found:
            end = self.hub.inbox_size(self.id)
            while not any(
                line["type"] == "cursor" and line["payload"]["offset"] == end
                for line in self.client.arrived
            ):
                self.client._receive()
                found += self.client.mail()
                end = self.hub.inbox_size(self.id)
            self.client.acknowledge()
            if self.waits_for_position:
                until(self._has_all, "the position does not move")
        return [self._heard(line) for line in found]

    def _has_all(self) -> bool:
        return self.hub.position(self.id) == self.hub.inbox_size(self.id)

    @staticmethod
    def _heard(line: dict[str, Any]) -> Heard:
        payload = line["payload"]
        return Heard(
            line["from_session"],
            line["id"],
            payload.get("text", ""),
            payload.get("attachments", []),
            {key: payload[key] for key in payload if key not in _KNOWN},
            line["reply_to"],
            payload.get("expects_reply") is True,
        )

    @staticmethod
    def _word(receipt: dict[str, Any]) -> str:
        if receipt["state"] == "stored":
            assert receipt["recipients"] == 1, receipt
            return "delivered" if receipt["live"] else "waits"
        return str(receipt["code"])


CLASSES: dict[str, type[Member]] = {one.kind: one for one in (Intercom, Subagents, Lines)}


def member(hub: Hub, kind: str, session_id: str = "") -> Member:
    """A session of this kind that has just come."""
    return CLASSES[kind](hub, session_id)
