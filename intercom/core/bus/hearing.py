"""What a line of another dialect means for asks, when it is first read.

An answer ends the ask that it answers, a question is pending from then on. Both may be read
again by a later hub, which then finds the same: an ask that is over is over, and a question's
time counts from the time that the line itself tells.
"""

from __future__ import annotations

from intercom.core.bus.asks import Ask, record_of
from intercom.core.bus.effects import SaveAsk
from intercom.core.bus.letters import Content
from intercom.core.bus.world import World
from intercom.wire.pi.forms import as_sender


class Hearing:
    """Listens to lines."""

    def __init__(self, world: World) -> None:
        self._world = world

    def heard(self, content: Content) -> Content:
        """A line is read for the first time; the content with the id of the ask it answers."""
        if not content.foreign:
            return content
        if content.message.get("expectsReply") is True:
            self._asked(content)
        reply_to = content.message.get("replyTo")
        asks = self._world.asks
        ask = asks.answered(content.target, content.sender, reply_to) if reply_to else None
        if ask is None:
            return content
        self._world.remove_ask(ask)
        return content._replace(message={**content.message, "replyTo": ask.message_id})

    def _asked(self, content: Content) -> None:
        world, message = self._world, content.message
        created = min(int(message["timestamp"]), world.now)
        expires = created + world.ask_ms
        if world.now > expires or world.asks.get(content.target.scope, message["id"]) is not None:
            return
        ask = Ask(message["id"], content.sender, content.target, created, expires)
        world.asks.add(ask)
        target = world.directory.get(content.target)
        label = None if target is None else target.info.get("name")
        asker = self.introduced(content).info.get("name")
        record = record_of(ask, asker, label, message["content"]["text"])
        world.do(SaveAsk(world.ticket(), ask.asker.scope, record))

    def introduced(self, content: Content) -> Content:
        """A line with what is known of its sender, who says only its id there."""
        if not content.foreign:
            return content
        sender = self._world.directory.get(content.sender)
        return content if sender is None else content._replace(info=as_sender(sender.info))
