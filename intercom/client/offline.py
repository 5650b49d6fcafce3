"""Sending without a hub's receipt: through the inbox file, or a hub of the original mesh.

Standard library only. See :mod:`intercom.client.outbox`, which needs this seldom.
"""

from __future__ import annotations

import os
import time

from intercom.client import desk
from intercom.client.blocking import HubConnection
from intercom.client.dial import ConnectionLost
from intercom.client.letters import Letter
from intercom.client.outbox import Outcome
from intercom.election.locks import is_original
from intercom.errors import HubUnavailable, IntercomError, ProtocolError
from intercom.names import file_name, nearest
from intercom.paths import ChannelPaths, file_level
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.format import split_name
from intercom.spool.known import is_known, sight
from intercom.tuples import TYPE_CHECKING
from intercom.wire import envelope

if TYPE_CHECKING:
    from typing import Any

#: Seconds to look for a message in the inbox when the hub gives no receipts.
SIGHT_TIMEOUT = 2.0


def settled_before(paths: ChannelPaths, letter: Letter) -> Outcome | None:
    """Do what an original hub does not: look whether the message may go, and has not gone before.

    That hub stores a message again under the id that it has seen, knows no ``strict``,
    takes names for file names as they are, and writes a text in ASCII, which grows.

    :return: what became of it in an earlier try, None if it is to be sent now.
    :raise HubUnavailable: the hub would store it where its reader does not find it.
    :raise IntercomError: ``TARGET_NOT_FOUND``.
    """
    reason = ""
    if not letter.broadcast and file_name(letter.to) != letter.to:
        reason = f"makes no file for the name {letter.to!r}"
    elif len(envelope.in_ascii(letter.line)) > envelope.MAX_LINE:
        reason = "would write this message as a line that is too long to be read"
    if reason:
        raise HubUnavailable(
            f"the hub of channel {paths.name!r} is one of the original mesh, which {reason}",
            remedy="end it: intercom hub stop; the next command starts a hub of intercom",
            details={"cause": "original"},
        )
    if letter.broadcast:
        return None
    known, similar = look_up(paths, letter.to)
    if letter.strict and not known:
        raise _stranger(paths, letter, similar)
    if _stands_in_inbox(paths, letter, letter.after):
        return Outcome("sent", "stored", "process", None, known, similar, 1, duplicate=True)
    return None


def without_receipt(paths: ChannelPaths, letter: Letter, hub: HubConnection) -> Outcome:
    """Send through an original hub, and find out what can be said of it.

    It gives no receipts, but appends direct messages to the recipient's inbox, where
    they can be seen; a message seen there is ``stored``. One that is not seen, and every
    broadcast, has no known state. That hub waits for slow readers: so this reads on, and
    does not hang up before the hub has, which it does when it has dealt with everything.

    :raise ConnectionLost: the hub went away before the message was seen.
    """
    with Inbox(paths, letter.to) as inbox:
        after = 0 if letter.broadcast else inbox.size()
    earlier = settled_before(paths, letter)
    if earlier is not None:
        return earlier
    hub.send_line(letter.line)
    hub.finish()
    deadline = time.monotonic() + SIGHT_TIMEOUT
    lost: ConnectionLost | None = None
    while time.monotonic() < deadline:
        if not letter.broadcast and _stands_in_inbox(paths, letter, after):
            known, similar = look_up(paths, letter.to)
            return Outcome("sent", "stored", "process", None, known, similar, 1)
        if lost is not None:
            if letter.broadcast:
                break
            raise lost
        try:
            hub.receive(0.02)
        except ConnectionLost as error:
            lost = error
    return Outcome("sent")


def _stands_in_inbox(paths: ChannelPaths, letter: Letter, after: int) -> bool:
    """Whether the recipient's inbox holds the message at or behind byte ``after``.

    :raise IntercomError: ``MESSAGE_ID_REUSE``: it holds another message with this id.
    """
    with Inbox(paths, letter.to) as inbox:
        line = inbox.find(letter.sender, letter.message_id, after)
    if line is None:
        return False
    if _content(line) != _content(letter.line):
        raise IntercomError(
            f"the message id {letter.message_id!r} was used for other content before",
            code="MESSAGE_ID_REUSE",
            remedy="leave --id out, then a fresh one is drawn: intercom send --to NAME",
            details={"state": "refused"},
        )
    return True


def _content(line: bytes) -> list[Any] | None:
    """What a message says, however it is written: an original hub writes it anew."""
    try:
        fields = envelope.parse(line)
    except ProtocolError:
        return None
    return [fields.get(name) for name in ("type", "to_session", "reply_to", "payload")]


def store_offline(paths: ChannelPaths, letter: Letter, trouble: IntercomError) -> Outcome:
    """Append a message to an inbox file, because of ``trouble``: its recipient's, or the hub's.

    :raise IntercomError: ``trouble`` itself for a broadcast where no hub lives;
        ``TARGET_NOT_FOUND`` for a strict message to a stranger; what the file says.
    """
    if letter.broadcast:
        return _leave_with_hub(paths, letter, trouble)
    if letter.strict:
        known, similar = look_up(paths, letter.to)
        if not known:
            raise _stranger(paths, letter, similar)
    with Inbox(paths, letter.to) as inbox:
        appended = inbox.append(
            letter.line, sender=letter.sender, message_id=letter.message_id, after=letter.after
        )
    # Asked afterwards: whoever forgets the name from now on finds the message.
    known, similar = look_up(paths, letter.to)
    if not appended:  # an earlier try got through, though its receipt did not
        _stands_in_inbox(paths, letter, letter.after)
        return Outcome("sent", "stored", "process", None, known, similar, 1, duplicate=True)
    return Outcome(
        status="spooled_offline",
        state="stored",
        level=file_level(paths.directory),  # the append is synced
        known=known,
        nearest=similar,
        recipients=1,
        reason=trouble.text,
        cause=str(trouble.details.get("cause") or trouble.code.lower()),
        remedy=trouble.remedy,
    )


def _stranger(paths: ChannelPaths, letter: Letter, similar: list[str]) -> IntercomError:
    """The refusal of a strict message to a name that nobody ever used."""
    return IntercomError(
        f"no session of channel {paths.name!r} ever used the name {letter.to!r}",
        code="TARGET_NOT_FOUND",
        details={"state": "refused", "known": False, "nearest": similar},
    )


def look_up(paths: ChannelPaths, name: str) -> tuple[bool, list[str]]:
    """Whether a session of this channel ever used the name; if not, those most like it."""
    calls = FileCalls()
    if is_known(paths, calls, name):
        return True, []
    entries = [split_name(entry) for entry in os.listdir(paths.directory)]
    encoded = {entry[1] for entry in entries if entry is not None and entry[0] != "inbox"}
    return False, nearest(name, sight(paths, calls, encoded, time.time()))


def _leave_with_hub(paths: ChannelPaths, letter: Letter, trouble: IntercomError) -> Outcome:
    """Give a broadcast to a hub that lives but cannot be reached by socket.

    :raise IntercomError: ``trouble``, if no hub lives: only it knows who is here. An
        original one does not look into its inbox.
    """
    if not desk.is_led(paths) or is_original(paths):
        trouble.remedy = (
            f"{trouble.remedy}; " if trouble.remedy else ""
        ) + "a message to one session needs no hub: intercom send --to NAME"
        raise trouble
    done = desk.leave(paths, letter.line, letter.sender, letter.message_id)
    waits = "" if done else "; the hub has not taken the message from its inbox yet"
    return Outcome(
        status="spooled_offline",
        state="stored" if done else None,
        reason=trouble.text + waits,
        cause=str(trouble.details.get("cause") or trouble.code.lower()),
        remedy=trouble.remedy,
    )
