"""What commands say, and where: results on standard output, all else on standard error.

Writing goes to the descriptors themselves. When :func:`write` returns, the bytes
have left this process, so that what depends on them having been shown may follow.
"""

from __future__ import annotations

import os
import sys

from intercom import plainjson as json
from intercom.errors import AlreadyLed, IntercomError
from intercom.plain import suppress
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from intercom.showing.blocks import Page

STDIN, STDOUT, STDERR = 0, 1, 2
EX_IOERR = 74
#: Status after a closed pipe: nobody is there to be told more.
EX_PIPE = 1


def secure_descriptors() -> None:
    """Make sure that 0, 1 and 2 are open, so that no file or socket of ours gets their numbers.

    In place of a closed standard output comes one that cannot be written, for what
    is written there is not shown to anybody.
    """
    for fd, flags in ((STDIN, os.O_RDONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free number: this one


def wants_json(form: str) -> bool:
    """Whether results are JSON.

    :param form: ``json``, ``text``, or ``auto``: text for a terminal only.
    """
    return form == "json" or (form != "text" and not os.isatty(STDOUT))


def page(limit: int | None = None, budget: int | None = None) -> Page:
    """How text is laid out where standard output leads.

    On a terminal it is folded, and heads are coloured (unless ``NO_COLOR`` is set, or the
    terminal is a dumb one). Elsewhere a model or a file takes it: never coloured, folded
    only where ``COLUMNS`` says how.

    :param limit: bytes of each body that are shown where it is no terminal, and
    :param budget: bytes of all that is.
    """
    from intercom.showing.blocks import Page  # where there is text to show

    if not os.isatty(STDOUT):
        width = os.environ.get("COLUMNS", "")
        folded = int(width) if width.isdecimal() and int(width) else None
        return Page(folded, limit=limit, budget=budget)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in (None, "", "dumb")
    import shutil  # for terminals only

    return Page(shutil.get_terminal_size().columns, not plain)


def write_text(text: str) -> None:
    """Write text for people and models to standard output.

    :raise OSError: see :func:`write`.
    """
    write(text.encode("utf-8", "backslashreplace"))


def write(data: bytes, fd: int = STDOUT) -> None:
    """Write all of it.

    :raise OSError: it was not, or not all, written (``BrokenPipeError``, no space ...).
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # somebody who shares the pipe made it non-blocking
            import select  # seldom needed, and not for nothing

            select.select((), (fd,), ())


def to_json(fields: dict[str, Any], **raw: bytes) -> bytes:
    """Write one JSON object; ``raw`` are further members whose JSON exists already."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    members = [text[1:-1].encode("utf-8", "backslashreplace")] if fields else []
    members += [b'"%s":%s' % (name.encode(), value) for name, value in raw.items()]
    return b"{" + b",".join(members) + b"}"


def note(text: str) -> None:
    """Say something on standard error; that nobody hears it is no failure."""
    with suppress(OSError):
        write(f"intercom: {_safe(text)}\n".encode("utf-8", "backslashreplace"), STDERR)


def _safe(text: str) -> str:
    """Escape what would move a terminal's cursor, keeping the lines of several lines."""
    lines = text.split("\n")
    if all(line.isascii() and line.isprintable() for line in lines):
        return text
    from intercom.showing.text import escape  # seldom needed, and not for nothing

    return "\n".join(map(escape, lines))


def fail(error: BaseException, as_json: bool) -> int | None:
    """Say what went wrong and what to do, and return the exit status; None: it is a bug."""
    from intercom.cli.remedies import NO_LOCKS, remedy_for, remedy_of_system, without_locks

    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return EX_PIPE
    if isinstance(error, AlreadyLed):
        note(error.text)
        return 0
    if isinstance(error, IntercomError):
        say(error.code, error.text, remedy_for(error), as_json, error.details)
        return error.exit_code
    if isinstance(error, OSError) and error.errno in NO_LOCKS:
        return fail(without_locks(error), as_json)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        text = f"{name}{error.strerror or error}"
        say("IO_ERROR", text, remedy_of_system(error), as_json, {})
        _silence_stdout()
        return EX_IOERR
    return None


def say(code: str, text: str, remedy: str, as_json: bool, details: dict[str, Any]) -> None:
    """A sentence and a remedy on standard error; with JSON, an object on standard output too."""
    note(f"{text}\n  {remedy}")
    if as_json:
        said = {"status": "error", "code": code, "message": text, "remedy": remedy}
        with suppress(OSError):
            write(to_json(details | said) + b"\n")


def _silence_stdout() -> None:
    """Let what Python still holds for a lost standard output go nowhere, without complaint."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDOUT)
        os.close(nowhere)
        if sys.stdout is not None:
            sys.stdout.flush()
