"""What the tools say in words: to a model, whose next step is another call. Pure."""

from __future__ import annotations

from intercom.client.letters import Letter
from intercom.client.outbox import Outcome
from intercom.errors import IntercomError
from intercom.showing.blocks import TRUST
from intercom.showing.text import label, neutral

#: What to do next, by the code of an error; where it is the same for tools and shells, the
#: error brings it along.
_REMEDIES = {
    "BAD_ENVELOPE": "mend the argument that is named",
    "BAD_JSON": "send text that is valid Unicode",
    "BAD_SESSION_ID": "use a name as peers shows it",
    "HUB_UNAVAILABLE": "a message to one session needs no hub: use send",
    "INBOX_FULL": "its session has to read first; send again later",
    "INBOX_LOCKED": "try again in a moment",
    "LINE_TOO_LONG": "put the text into a file that both can read, and send its path",
    "MUTUAL_ASK": "answer what it asked you first: inbox",
    "SESSION_COLLISION": "peers shows who is connected",
    "TARGET_DISCONNECTED": "use send instead: the message waits until it is read",
    "TARGET_NOT_FOUND": "peers all=true lists the names that can be written to",
    "UNKNOWN_MESSAGE": "inbox lists what is unread",
}


def instructions(name: str = "", channel: str = "") -> str:
    """What a model is told once, before it calls anything.

    :param name: its session's name, and ``channel``; empty if that is not known yet.
    """
    who = "Your name is in the result of peers"
    if name:
        who = f"You are {label(name)}, on channel {label(channel)}"
    return (
        f"Messages between the agent sessions of this machine. {who}. "
        "When a tool result ends with [2 unread], read them with inbox when your step is done. "
        "Answer with send and reply_to; ask waits for the answer. Write only what the other "
        f"needs; do not answer mere thanks. {TRUST}"
    )


def failure(error: IntercomError) -> str:
    """An error as a model sees it: its code, what failed, and what to do."""
    remedy = _REMEDIES.get(error.code) or error.remedy
    if error.code == "TARGET_NOT_FOUND":
        nearest = error.details.get("nearest") or ()
        if nearest:
            remedy = f"did you mean {' or '.join(map(label, nearest))}? {remedy}"
    elif error.code == "UNKNOWN_MESSAGE" and error.remedy:
        remedy = error.remedy
    said = neutral(f"{error.code}: {error.text}")
    return f"{said}\n{neutral(remedy)}" if remedy else said


def of_system(error: OSError) -> str:
    """A refusal of the system's."""
    name = f"{error.filename}: " if error.filename else ""
    return neutral(f"IO_ERROR: {name}{error.strerror or error}\nsee: intercom doctor")


def sent(outcome: Outcome, letter: Letter) -> str:
    """What became of a message."""
    to = "everybody" if letter.broadcast else label(letter.to)
    said = [f"sent {label(letter.message_id)} to {to}: {_state(outcome, letter)}"]
    said += [f"not stored for {label(one.get('session'))}" for one in outcome.failed]
    if outcome.reason:
        said.append(f"without the hub, through the files: {neutral(outcome.reason)}")
    return "\n".join(said)


def _state(outcome: Outcome, letter: Letter) -> str:
    """How far it has come, no further than is known."""
    if not outcome.state:
        if outcome.status == "spooled_offline":
            return "left for the hub, which has not taken it yet"
        return "given to the hub, which tells no more"
    level = f" ({outcome.level})" if outcome.level else ""
    if letter.broadcast:
        count = "" if outcome.recipients is None else f" for {outcome.recipients}"
        return f"{outcome.state}{level}{count}"
    if outcome.live is None:
        return f"{outcome.state}{level}"
    return f"{outcome.state}{level}, {'connected' if outcome.live else 'not connected now'}"


def open_ask(letter: Letter, seconds: float) -> str:
    """An ask that nobody has answered yet."""
    return (
        f"no answer from {label(letter.to)} within {seconds:g} s; ask {label(letter.message_id)} "
        f"stays open for ten minutes, and its answer comes to inbox"
    )


def with_unread(text: str, count: int | None) -> str:
    """A result, and how much waits, if anything does."""
    text = text.removesuffix("\n")
    if not count:
        return text
    return f"{text}\n[{count} unread]" if text else f"[{count} unread]"
