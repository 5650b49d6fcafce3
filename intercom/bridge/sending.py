"""The tools ``send`` and ``ask``: over the session's connection, else as commands send."""

from __future__ import annotations

import time
from collections.abc import Callable

from intercom.bridge import mail, reading, words
from intercom.bridge.mail import Item
from intercom.bridge.server import Call, Said
from intercom.bridge.session import Session
from intercom.bridge.tools import ASK_WAIT
from intercom.client import desk, outbox
from intercom.client.blocking import Received, refusal
from intercom.client.dial import ConnectionLost
from intercom.client.letters import Letter, compose
from intercom.client.offline import look_up
from intercom.client.outbox import Outcome, outcome_of
from intercom.client.spawn import ensure_hub
from intercom.election.locks import is_original
from intercom.errors import CannotCreate, HubUnavailable, IntercomError
from intercom.names import EVERYONE
from intercom.records import Position

#: Gets a message to a hub, or to a file, when the connection does not: blocking.
Otherwise = Callable[[Session, Letter], Outcome]


async def send(session: Session, call: Call) -> Said:
    """Carry out a call of ``send``."""
    letter = await session.threads.call(_write, session, call, {"text": call.arguments["text"]})
    outcome = await _give(session, letter, _deliver)
    return Said(words.with_unread(words.sent(outcome, letter), await session.unread()))


async def ask(session: Session, call: Call) -> Said:
    """Carry out a call of ``ask``: the answer, or that there is none yet."""
    to, seconds = call.arguments["to"], call.arguments.get("wait_s", ASK_WAIT)
    if to in EVERYONE:
        raise IntercomError(
            "an ask is for one session",
            code="TARGET_NOT_FOUND",
            remedy="name it; or use send to tell everybody",
        )
    until = session.reactor.seconds() + seconds
    here = await session.threads.call(mail.mark, session.inbox)
    payload = {"text": call.arguments["text"], "expects_reply": True}
    letter = await session.threads.call(_write, session, call, payload)
    try:
        outcome = await _give(session, letter, _leave_question)
    except IntercomError as error:
        if error.code == "TARGET_DISCONNECTED":
            await session.threads.call(_expect_known, session, to)
        raise
    found = await _answer(session, call, letter, here, until)
    if found is None:
        said = words.open_ask(letter, seconds)
        if outcome.reason:
            said += f"\n{words.sent(outcome, letter)}"
        return Said(words.with_unread(said, await session.unread()))
    return await _answered(session, found)


def _expect_known(session: Session, to: str) -> None:
    """Tell a name that nobody ever used from one whose session is away. Blocking.

    :raise IntercomError: ``TARGET_NOT_FOUND``, with the names most like it.
    """
    is_known, similar = look_up(session.paths, to)
    if not is_known:
        raise IntercomError(
            f"no session of this channel ever used the name {to!r}",
            code="TARGET_NOT_FOUND",
            details={"nearest": similar},
        )


async def _answer(
    session: Session, call: Call, letter: Letter, here: Position, until: float
) -> Item | None:
    """Wait for the answer to a question; None if none comes in time."""
    while True:
        find = mail.answer
        found, here = await session.threads.call(find, session.inbox, here, letter.message_id)
        left = until - session.reactor.seconds()
        if found is not None or left <= 0 or call.over or session.closed:
            return found
        await session.news.wait(min(left, session.look_again()), call.when_over)


async def _answered(session: Session, found: Item) -> Said:
    """The answer, which is not shown by ``inbox`` any more if this shows all of it."""
    text = await session.threads.call(reading.show_cut, session, found)
    count = await session.unread()
    if not reading.is_short(found.message):
        return Said(words.with_unread(text, count), mail.is_refusal(found.message))

    async def settle(written: bool) -> None:
        if written:
            await reading.show_once(session, found)

    left = count - 1 if count else count
    return Said(words.with_unread(text, left), mail.is_refusal(found.message), settle)


def _write(session: Session, call: Call, payload: dict[str, object]) -> Letter:
    """Write the message. Blocking."""
    to = call.arguments["to"]
    return compose(
        session.paths,
        session.name,
        to,
        payload,
        reply_to=call.arguments.get("reply_to"),
        strict=to not in EVERYONE,
    )


async def _give(session: Session, letter: Letter, otherwise: Otherwise) -> Outcome:
    """Give a message to the hub; the same message again, in another way, if that was lost.

    :raise IntercomError: it is refused.
    """
    client = await session.hub()
    if client is not None:
        try:
            return _outcome(await client.send(letter.line, letter.message_id))
        except ConnectionLost:
            pass  # a hub stores one id once
    outcome = await session.threads.call(otherwise, session, letter)
    session.keeper.hurry()
    return outcome


def _outcome(received: Received) -> Outcome:
    """What a receipt says; raises if it says that the message was refused."""
    if received.type == "error":
        raise refusal(received.payload)
    return outcome_of(received.payload)


def _deliver(session: Session, letter: Letter) -> Outcome:
    """Send as commands do, if need be through the recipient's inbox file. Blocking."""
    return outbox.deliver(session.paths, letter, session.secret())


def _leave_question(session: Session, letter: Letter) -> Outcome:
    """Have a hub take a question, which nobody else can keep. Blocking.

    :raise IntercomError: none is to be had, or it refuses.
    """
    paths = session.paths
    deadline = time.monotonic() + outbox.PATIENCE
    while True:
        try:
            return outbox.through_hub(paths, letter, session.secret(), deadline, ensure_hub)
        except ConnectionLost as error:
            if time.monotonic() > deadline:
                raise
            trouble: IntercomError = error
            time.sleep(0.05)
        except (HubUnavailable, CannotCreate) as error:
            trouble = error
            break
    if not desk.is_led(paths) or is_original(paths):
        raise trouble
    done = desk.leave(paths, letter.line, letter.sender, letter.message_id)
    waits = "" if done else "; the hub has not taken it from its inbox yet"
    return Outcome(
        status="spooled_offline",
        state="stored" if done else None,
        reason=trouble.text + waits,
        cause=str(trouble.details.get("cause") or trouble.code.lower()),
    )
