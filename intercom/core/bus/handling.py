"""Which module carries out what a registered connection asks for."""

from __future__ import annotations

from intercom.core.bus.directory import SUBAGENTS, Session
from intercom.core.bus.entrance import Entrance
from intercom.core.bus.passing import Passing
from intercom.core.bus.posting import Posting
from intercom.core.bus.publishing import Publishing
from intercom.core.bus.recalling import Recalling
from intercom.core.bus.sharing import NO_SESSION, Sharing
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.wire.pi.fields import Record
from intercom.wire.pi.replies import delivery_refused, error, extension_state_result
from intercom.wire.pi.requests import (
    CancelAsk,
    CancelMessage,
    CapabilitiesUpdate,
    CommitRefusal,
    ExtensionPublish,
    Listing,
    MessageReceipt,
    Presence,
    Refusal,
    Send,
    StateCommit,
)
from intercom.wire.pi.schema import Outcome

_NO_SENDER = "Sender session not found"


class Handling:
    """What clients ask for once they have registered."""

    def __init__(
        self,
        world: World,
        entrance: Entrance,
        posting: Posting,
        passing: Passing,
        publishing: Publishing,
        recalling: Recalling,
        sharing: Sharing,
    ) -> None:
        self._world = world
        self._entrance = entrance
        self._posting = posting
        self._passing = passing
        self._publishing = publishing
        self._recalling = recalling
        self._sharing = sharing

    def handle(self, number: int, session: Session | None, said: Outcome) -> Work | Refusal | None:
        """Carry out what a connection asks for; what is left of it to do, if it takes time.

        :param session: None: another connection has it now.
        """
        match said:
            case CancelMessage():
                return self._recalling.cancel_message(number, session, said)
            case CancelAsk():
                return self._recalling.cancel_ask(session, said)
        if session is None:
            return None
        if session.dialect == SUBAGENTS:
            return self._plain(number, session, said)
        match said:
            case Send():
                return self._posting.send(number, session, said)
            case Presence():
                return self._entrance.presence(session, said)
            case Listing():
                return self._entrance.listing(number, session, said)
            case MessageReceipt():
                self._recalling.receipt(number, session, said)
            case _:
                return self._share(number, session, said)
        return None

    def _share(self, number: int, session: Session, said: Outcome) -> Work | None:
        """The same for what has to do with extensions."""
        match said:
            case CapabilitiesUpdate():
                return self._sharing.update(number, session, said)
            case StateCommit():
                return self._sharing.commit(number, session, said)
            case CommitRefusal():
                return self._sharing.refused(number, session, said)
            case ExtensionPublish():
                self._sharing.publish(number, session, said)
        return None

    def _plain(self, number: int, session: Session, said: Outcome) -> Work | Refusal | None:
        """The same for a pi-subagents client, which asks for little."""
        match said:
            case Send():
                return self._passing.send(number, session, said)
            case Presence():
                return self._entrance.presence(session, said)
            case Listing():
                return self._publishing.listing(number, session, said)
        return None

    def ousted(self, said: Outcome, frame: Record) -> Outcome:
        """What becomes of what a connection says whose session another one has now.

        :param frame: what it said, before it was checked.
        """
        match said:
            case Refusal(answer=None):
                return said
            case Refusal(reason=reason) if frame["type"] == "extension_publish":
                return Refusal(reason, error(NO_SESSION))
            case Refusal(answer={"code": "E_INVALID_MESSAGE"}):
                return said
            case Send() | Refusal():
                message_id = frame["message"]["id"]
                answer = delivery_refused(message_id, _NO_SENDER, "E_SENDER_NOT_FOUND")
                return Refusal(_NO_SENDER, answer)
            case ExtensionPublish():
                return Refusal(NO_SESSION, error(NO_SESSION))
            case CommitRefusal(namespace=namespace) | StateCommit(namespace=namespace):
                result = extension_state_result(namespace, False, 0, NO_SESSION)
                return Refusal(NO_SESSION, result)
            case Listing() | CapabilitiesUpdate():
                return Refusal(NO_SESSION)
        return said
