"""Sessions that speak lines (NDJSON), as the bus knows them: members, and what they write.

The hub core has their connections and their inboxes; here they are listed, found and asked.
What they send comes as lines of a pi session's inbox. Their asks and answers count when such
a line is first read, and not when it is stored: so a hub that dies in between finds them again,
for the position is still before them.
"""

from __future__ import annotations

from intercom.core.bus.carrier import Carrier
from intercom.core.bus.directory import NDJSON, Session
from intercom.core.bus.effects import SaveRoll
from intercom.core.bus.entrance import Entrance
from intercom.core.bus.handover import Handover
from intercom.core.bus.hearing import Hearing
from intercom.core.bus.keys import Key, inbox_of
from intercom.core.bus.letters import read
from intercom.core.bus.world import World
from intercom.core.effects import Note
from intercom.errors import ProtocolError
from intercom.wire.pi.fields import Record
from intercom.wire.pi.sessions import member_info


class Foreign:
    """Members of the unnamed scope that others look after."""

    def __init__(
        self, world: World, entrance: Entrance, carrier: Carrier, handover: Handover
    ) -> None:
        self._world = world
        self._entrance = entrance
        self._carrier = carrier
        self._handover = handover
        self._hearing = Hearing(world)

    def joined(self, session_id: str, said: Record) -> None:
        """One is here, or says other things of itself. Nothing happens if its id is a pi one's.

        :param said: what is known of it, in the words of pi-intercom's SessionInfo.
        """
        world, key = self._world, Key(None, session_id)
        info = member_info(session_id, said)
        known = world.directory.get(key)
        if inbox_of(key) != session_id or (known is not None and not known.elsewhere):
            world.do(Note("no_member", {"session": session_id}))
        elif known is None:
            self._join(key, info)
        else:
            changed, known.info = known.info != info, info
            known.place = self._place(info)
            if world.presence.is_due(known.number, changed, world.now):
                self._entrance.announce(known, "presence_update")

    def _join(self, key: Key, info: Record) -> None:
        world, number = self._world, self._world.ticket()
        place = self._place(info)
        self._carrier.release(inbox_of(key))
        session = Session(key, number, NDJSON, info, None, place, world.now)
        world.directory.join(session)
        world.do(SaveRoll(elsewhere=True))
        world.presence.shown(number, world.now)
        world.idle_at = None
        self._entrance.announce(session, "session_joined")

    def _place(self, info: Record) -> str:
        return self._world.resolve(info["cwd"]) if info.get("cwd") else ""

    def heard(self, inbox: str, line: bytes) -> None:
        """A line stands in the inbox of one of them: an ask or an answer to one, perhaps."""
        world = self._world
        content = read(line, inbox, Key(None, inbox), world.resolve, world.now)
        if content is not None:
            self._hearing.heard(content)

    def number(self, session_id: str) -> int | None:
        """What stands for the connection of one that is here."""
        session = self._world.directory.get(Key(None, session_id))
        return session.number if session is not None and session.elsewhere else None

    def ask_refusal(self, asker: str, target: str, message_id: str) -> str | None:
        """Why one of them may not ask a pi session this; the code for its own dialect."""
        world = self._world
        one, other = Key(None, asker), Key(None, target)
        if world.directory.get(other) is None:
            return "TARGET_DISCONNECTED"
        if world.asks.waits(other, one, but=None):
            return "MUTUAL_ASK"
        pending = world.asks.get(None, message_id)
        return "MESSAGE_ID_REUSE" if pending is not None and pending.asker != one else None

    def unfit(self, inbox: str, line: bytes) -> tuple[str, str]:
        """Why a pi session that is here cannot be sent a line: code and text, or nothing."""
        world, receiver = self._world, self._carrier.resident(inbox)
        if receiver is None:
            return "", ""
        content = read(line, inbox, receiver.key, world.resolve, world.now)
        if content is None:
            return "", ""
        try:
            self._handover.frame(self._hearing.introduced(content), receiver)
        except ProtocolError as error:
            return error.code, error.text
        return "", ""
