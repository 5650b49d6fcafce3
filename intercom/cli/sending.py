"""The work of ``intercom send``, however its command line was read."""

from __future__ import annotations

import os

from intercom.cli import output
from intercom.client.outbox import Letter, Outcome, compose, deliver
from intercom.client.tokens import own_token
from intercom.errors import BadUsage, IntercomError
from intercom.levels import LEVELS
from intercom.paths import ChannelPaths
from intercom.plain import contextmanager
from intercom.tuples import TYPE_CHECKING
from intercom.wire.envelope import MAX_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from intercom.cli.scope import Given

_CHUNK = 1 << 16
#: What is left where a shell put nothing in place of `...` or $(...).
_SIGNS = ("  ", "``", "$()", "''", '""')
_EATEN = r"\w {2}\w|``|\$\(\)|''|\"\""


def work(
    given: Given,
    *,
    session: str | None,
    to: str,
    text: str | None,
    file: str | None,
    dash: str | None,
    json_payload: str | None,
    reply_to: str | None,
    message_id: str | None,
    strict: bool,
    durability: str | None,
) -> None:
    """Send a message, and say what became of it.

    :raise IntercomError: it was refused, or what was given makes no message.
    """
    if (text is not None) + (file is not None) + (dash is not None) > 1:
        raise _wrong("the text can come from one place only: --text, --file or -")
    payload = _payload(json_payload)
    with _helped(given, to, file, session, message_id):
        body = _body(text, file, dash is not None, payload)
    payload = _joined(body, durability, payload)
    scope = given.scope()
    own = scope.session(session)
    with _helped(given, to, file, session, message_id):
        letter = compose(
            scope.paths, own, to, payload, reply_to=reply_to, message_id=message_id, strict=strict
        )
    try:
        outcome = deliver(scope.paths, letter, own_token(scope.paths, own))
    except IntercomError as error:
        raise _explained(error, letter, scope.paths) from error
    _warn(outcome, letter)
    if scope.as_json:
        output.write(output.to_json(outcome.fields(), envelope=letter.line) + b"\n")
    else:
        output.write_text(sentence(outcome, letter))


def _wrong(text: str) -> BadUsage:
    """The refusal of a line that makes no sense; said as click says it."""
    return BadUsage(text, remedy="see: intercom send --help")


@contextmanager
def _helped(
    given: Given, to: str, file: str | None, speaker: str | None, message_id: str | None
) -> Iterator[None]:
    """Say of what cannot be a message how it can be sent to the same recipient after all."""
    try:
        yield
    except IntercomError as error:
        if error.code in ("LINE_TOO_LONG", "BAD_JSON"):
            path = "PATH" if file is None else os.path.abspath(file)
            words = [*(("--session", speaker) if speaker else ()), "--to", to, "--text", path]
            error.remedy = f"send the path of the file instead: {given.again('send', *words)}"
        elif error.code == "BAD_ENVELOPE" and message_id is not None:
            import shlex  # for what is said only

            again = shlex.join(["--to", to])
            error.remedy = f"leave --id out, then a fresh one is drawn: intercom send {again}"
        raise


def _payload(text: str | None) -> dict[str, Any]:
    """Read ``--json-payload``."""
    if text is None:
        return {}
    from intercom.wire import jsontext  # seldom needed, and not for nothing

    try:
        found = jsontext.read_object(os.fsencode(text), text)
    except (ValueError, RecursionError) as error:
        said = f"--json-payload must be a JSON object, {{...}}: {error}"
        raise _wrong(said) from error
    return {key: member.value for key, member in found.items()}


def _joined(body: str | None, durability: str | None, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload with what has options of its own; nothing may be said twice."""
    if body is not None:
        if "text" in payload:
            raise _wrong("there are two texts: the body, and one in --json-payload")
        payload = {"text": body} | payload
    if durability is not None:
        if "durability" in payload:
            raise _wrong("there are two levels: --durability, and in --json-payload")
        payload = payload | {"durability": durability}
    return payload


def _body(text: str | None, file: str | None, dash: bool, payload: dict[str, Any]) -> str | None:
    """The text, from wherever it is to come; None if the payload is all there is."""
    if text is not None:
        if _is_eaten(text):
            output.note(
                "parts of --text seem to be missing; if your shell took `...` or $(...), send the "
                "text on standard input: intercom send --to ID <<'EOF'"
            )
        return _content(os.fsencode(text), "--text", payload)
    if file is not None:
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _wrong(f"cannot read {file}: {error.strerror}") from error
        try:
            return _content(_read(fd, file), file, payload)
        finally:
            os.close(fd)
    if not dash and ("text" in payload or (payload and os.isatty(output.STDIN))):
        return None
    if not dash and os.isatty(output.STDIN):
        raise _wrong(
            "no text: pipe it to standard input, or use --text or --file (or - to type it here)"
        )
    return _content(_read(output.STDIN, "standard input"), "standard input", payload)


def _is_eaten(text: str) -> bool:
    """Whether a text looks as if a shell had put nothing in place of a part."""
    if not any(sign in text for sign in _SIGNS):
        return False
    import re  # seldom needed, and not for nothing

    return re.search(_EATEN, text) is not None


def _read(fd: int, name: str) -> bytes:
    """Read it all, unless it is too large for any message."""
    parts: list[bytes] = []
    size = 0
    while size <= MAX_LINE:
        try:
            part = os.read(fd, _CHUNK)
        except OSError as error:
            raise _wrong(f"cannot read {name}: {error.strerror}") from error
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise IntercomError(
        f"{name} holds more than fits into a message, whose limit is {MAX_LINE} bytes",
        code="LINE_TOO_LONG",
        details={"limit": MAX_LINE},
    )


def _content(body: bytes, name: str, payload: dict[str, Any]) -> str | None:
    """The text that the bytes are; None if there are none, which a payload makes good."""
    if not body and payload:
        return None
    if not body:
        raise _wrong(f"no text: {name} is empty")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise IntercomError(
            f"{name} is not UTF-8 text: byte {error.start} is {body[error.start]:#04x}",
            code="BAD_JSON",
        ) from error


def _explained(error: IntercomError, letter: Letter, paths: ChannelPaths) -> IntercomError:
    """Add to a refusal what one may try next."""
    if error.code == "TARGET_NOT_FOUND" and not error.remedy:
        nearest = error.details.get("nearest") or []
        meant = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
        error.remedy = f"{meant}see who is here: intercom peers; or send without --strict"
    elif error.code == "SESSION_COLLISION" and not error.remedy:
        error.remedy = (
            f"a program that knows no tokens holds {letter.sender!r}: send as another --session, "
            f"or send directly (--to ID) instead of to everybody"
        )
    elif error.code == "INBOX_LOCKED" and not error.remedy and not letter.broadcast:
        import shlex  # for what is said only

        inbox = shlex.quote(paths.inbox(letter.to))
        error.remedy = f"see which program holds it: fuser -v {inbox}; then send again"
    error.details.setdefault("id", letter.message_id)
    return error


def _warn(outcome: Outcome, letter: Letter) -> None:
    """Say what deserves attention although it is no failure."""
    if outcome.outdated:
        output.note(outcome.outdated)
    asked, reached = letter.durability, outcome.level
    if asked and reached and LEVELS.index(reached) < LEVELS.index(asked):
        output.note(f"{asked!r} was asked for; here the message is as safe as {reached!r} says")
    if outcome.known is False and not letter.broadcast:
        nearest = " or ".join(map(repr, outcome.nearest))
        meant = f"; did you mean {nearest}?" if nearest else ""
        output.note(f"nobody on this channel ever used {letter.to!r}{meant}")
    for one in outcome.failed:
        output.note(f"not stored for {one.get('session')!r}: {one.get('message')}")
    if outcome.reason:
        where = "left for the hub in its own inbox file"
        if not letter.broadcast:
            where = f"stored in the inbox file of {letter.to!r}"
        said = [outcome.reason, f"{where} instead", outcome.remedy]
        output.note("\n  ".join(filter(None, said)))


def sentence(outcome: Outcome, letter: Letter) -> str:
    """The result for a person."""
    from intercom.showing.text import label  # for text only

    to = "everybody" if letter.broadcast else label(letter.to)
    level = f" ({outcome.level})" if outcome.level else ""
    waiting = "given to the hub, which tells no more"
    if outcome.status == "spooled_offline":
        waiting = "left in the hub's inbox, not taken yet"
    state = f"{outcome.state}{level}" if outcome.state else waiting
    live = "" if outcome.live is None else f", {outcome.live} listening"
    return f"{label(letter.message_id)} to {to}: {state}{live}\n"
