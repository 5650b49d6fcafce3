"""The tool ``inbox``: shows what lies unread, and counts as read what was written out."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

from intercom.bridge import mail
from intercom.bridge.mail import Item
from intercom.bridge.server import Call, Said
from intercom.bridge.session import Session
from intercom.bridge.tools import LIMIT
from intercom.bridge.words import with_unread
from intercom.client.attesting import Shown, known_of
from intercom.client.readers import described
from intercom.errors import IntercomError
from intercom.records import LEVELS, Position
from intercom.showing.blocks import FOR_MODELS, TOOLS, Page, Ways, is_whole, render
from intercom.showing.text import label, neutral
from intercom.showing.words import counted
from intercom.spool.turns import Holder

#: Bytes of all messages of one result: Claude Code keeps 100 kB of it, others less.
BUDGET = 24_576
#: Characters, as they are shown, of one part of a message that is shown in full.
PART = 32_768
_PAGE = FOR_MODELS._replace(budget=BUDGET)
_IN_FULL = Page()
#: For a part, which says itself how to go on.
_REPLY = Ways(TOOLS.reply)


@dataclass(frozen=True, slots=True)
class _Haul:
    """What a look at the inbox came to.

    :ivar text: the messages, empty for none.
    :ivar commit: up to where everything was shown, None if nothing is to be moved.
    :ivar left: how many messages are unread after that.
    :ivar reading: who else has the turn, None if we have.
    """

    text: str = ""
    commit: Position | None = None
    left: int = 0
    reading: Holder | None = None


async def inbox(session: Session, call: Call) -> Said:
    """Carry out a call."""
    if "id" in call.arguments:
        return await _one(session, call, call.arguments["id"], call.arguments.get("part", 1))
    limit = call.arguments.get("limit", LIMIT)
    until = session.reactor.seconds() + call.arguments.get("wait_s", 0)
    while not session.closed:
        await session.reading.acquire()
        try:
            haul = await session.threads.call(_take, session, limit)
        except BaseException:
            session.reading.release()
            raise
        if haul.commit is not None:
            return _shown(session, haul)
        session.reading.release()
        left = until - session.reactor.seconds()
        if left <= 0 or call.over:
            return Said(_nothing(haul))
        await session.news.wait(min(left, session.look_again()), call.when_over)
    return Said("you have another name since; call again")


def _nothing(haul: _Haul) -> str:
    """There is nothing that could be shown."""
    if haul.reading is None:
        return "nothing unread"
    said = f"nothing is shown here: {described(haul.reading)} reads for this session now"
    return with_unread(said, haul.left)


def _take(session: Session, limit: int) -> _Haul:
    """Take the turn and render what lies unread; the turn is kept if there is anything. Blocking.

    What was shown before, or is no message, is passed over on the way.
    """
    other = session.seat.take()
    if other is not None:
        return _Haul(left=mail.unread(session.inbox, session.told), reading=other)
    keep = False
    try:
        told = session.told
        found = mail.look(session.inbox, limit, told)
        session.untell(told - found.told)
        if not found.items:
            if found.end != session.inbox.read(None, 0).start:
                session.inbox.commit(found.end)
            return _Haul()
        haul = _render(session, found)
        keep = True
        return haul
    finally:
        if not keep:
            session.seat.give_back()


def _render(session: Session, found: mail.Look) -> _Haul:
    """The messages up to the first that is shown in part only, as far as there is room."""
    items = found.items
    for at, item in enumerate(items):
        if not is_whole(item.message, _PAGE):
            items = items[: at + 1]
            break
    known = known_of(session.paths, session.name, [_about(item) for item in items])
    messages = [item.message for item in items]
    block = render(messages, time.time(), _draw, known=known, page=_PAGE, ways=TOOLS)
    if block.shown < len(items):  # what is left is said for all of them at once
        items, messages = items[: block.shown], messages[: block.shown]
        known = known[: block.shown]
        block = render(messages, time.time(), _draw, known=known, page=_PAGE, ways=TOOLS)
    total = len(found.items) + found.more
    whole = block.cut[0] if block.cut else len(items)
    if whole == len(found.items):
        end = found.end
    else:
        end = items[whole].start if block.cut else items[-1].end
    text = block.text
    if found.damaged:
        text += f"{counted(found.damaged, 'damaged line')} passed over\n"
    if block.cut:
        text += "what is cut counts as unread until it is read whole\n"
    return _Haul(text, end, total - whole)


def _shown(session: Session, haul: _Haul) -> Said:
    """What was found; it counts as read once it was written out."""
    assert haul.commit is not None
    position = haul.commit

    async def settle(written: bool) -> None:
        try:
            await session.threads.call(_settle, session, position if written else None)
        finally:
            session.reading.release()

    return Said(with_unread(haul.text, haul.left), settle=settle)


def _settle(session: Session, position: Position | None) -> None:
    """Give the turn back, after committing a position if there is one. Blocking."""
    try:
        if position is not None:
            session.inbox.commit(position)
    except (IntercomError, OSError) as error:
        session.note(f"messages will be shown again: {error}")
    finally:
        session.seat.give_back()


# -- one message ----------------------------------------------------------------------------------


async def _one(session: Session, call: Call, message_id: str, part: int) -> Said:
    """One message in full, or a part of it."""
    item = await session.threads.call(mail.find, session.inbox, message_id)
    text, parts = await session.threads.call(_in_full, session, item, part)
    said = Said(text)
    if part == parts:
        said.settle = _settler(session, item)
    said.text = with_unread(said.text, await _left(session, item, part == parts))
    return said


async def _left(session: Session, item: Item, done: bool) -> int | None:
    """How much is unread once this one was shown, if that is all of it."""
    count = await session.unread()
    if not done or not count:
        return count
    start = (await session.threads.call(session.inbox.read, None, 0)).start
    lies_unread = item.end > start and item.key not in session.told
    return count - 1 if lies_unread else count


def _settler(session: Session, item: Item) -> Any:
    """See that a message that was shown is not shown again, once it was written out."""

    async def settle(written: bool) -> None:
        if written:
            await show_once(session, item)

    return settle


async def show_once(session: Session, item: Item) -> None:
    """A message was shown out of its turn: it counts as read as soon as nothing is before it."""
    session.tell(item.key)
    await session.reading.acquire()
    try:
        await session.threads.call(_pass_shown, session)
    except (IntercomError, OSError) as error:
        session.note(f"a message may be shown again: {error}")
    finally:
        session.reading.release()


def _pass_shown(session: Session) -> None:
    """Commit what lies unread before all else, and was shown. Blocking."""
    if session.seat.take() is not None:
        return  # whoever reads now shows it again
    try:
        start = session.inbox.read(None, 0).start
        end = mail.told_up_to(session.inbox, session.told)
        if end != start:
            session.inbox.commit(end)
    finally:
        session.seat.give_back()


def _in_full(session: Session, item: Item, part: int) -> tuple[str, int]:
    """A part of a message, and how many it has. Blocking.

    :raise IntercomError: it has no such part.
    """
    body = neutral(_body(item.message))  # what is shown is what has to fit
    parts = max(1, -(-len(body) // PART))
    if part > parts:
        raise IntercomError(
            f"the message has {counted(parts, 'part')}, and no part {part}",
            code="BAD_ENVELOPE",
            remedy=f"read a part from 1 to {parts}",
        )
    message = item.message
    if parts > 1:
        piece = body[(part - 1) * PART : part * PART]
        asks = {"expects_reply": True} if _asks(message) else {}
        message = message | {"payload": {"text": piece, **asks}}
    return show(session, item, message, _REPLY) + _paging(item, part, parts), parts


def _paging(item: Item, part: int, parts: int) -> str:
    if parts == 1:
        return ""
    on = f"; go on: inbox id={label(item.message.get('id'))} part={part + 1}"
    return f"part {part} of {parts}{on if part < parts else ''}\n"


def show(session: Session, item: Item, message: dict[str, Any], ways: Ways | None = TOOLS) -> str:
    """One message in full, in its frame. Blocking."""
    known = known_of(session.paths, session.name, [_about(item)])
    return render([message], time.time(), _draw, known=known, page=_IN_FULL, ways=ways).text


def is_short(message: dict[str, Any]) -> bool:
    """Whether a message is shown whole where nobody asked for all of it."""
    return is_whole(message, _PAGE)


def show_cut(session: Session, item: Item) -> str:
    """One message, cut if it is long, in its frame. Blocking."""
    known = known_of(session.paths, session.name, [_about(item)])
    return render([item.message], time.time(), _draw, known=known, page=_PAGE, ways=TOOLS).text


def _body(message: dict[str, Any]) -> str:
    """What a message says, as one text: its own, and behind it what else there is."""
    payload = dict(message.get("payload") or {})
    text = payload.pop("text", "")
    payload.pop("strict", None)
    payload.pop("pi", None)
    if payload.get("durability") in LEVELS:
        del payload["durability"]
    if _asks(message):
        del payload["expects_reply"]
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    if not payload:
        return text
    rest = "+ " + json.dumps(payload, ensure_ascii=False)
    return f"{text}\n{rest}" if text else rest


def _asks(message: dict[str, Any]) -> bool:
    return (message.get("payload") or {}).get("expects_reply") is True


def _about(item: Item) -> Shown:
    return Shown(item.line, item.message)


def _draw(digits: int) -> str:
    return os.urandom((digits + 1) // 2).hex()[:digits]
