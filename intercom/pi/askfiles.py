"""Pending asks: questions that wait for their answer, one file each, as pi-intercom keeps them.

Other programs read these files too, so names and content are those of its own broker. They are
replaced in one step and not synced: a file says what a living or restarted hub still owes. Only
the hub that serves the directory calls this.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple
from urllib.parse import quote

from intercom.errors import IntercomError, ProtocolError
from intercom.names import file_name
from intercom.pi.calls import (
    MAX_FILE,
    Calls,
    content,
    failed,
    reason,
    remove_leftovers,
    replace,
)
from intercom.pi.hashes import sha256, utf8
from intercom.pi.places import prepare_directory
from intercom.wire.pi.fields import Record, is_safe_integer, is_string
from intercom.wire.pi.javascript import MAX_SAFE_INTEGER, js_json
from intercom.wire.pi.reading import read_json

#: What encodeURIComponent leaves as it is, beside letters and digits.
_UNRESERVED = "-_.!~*'()"
_SUFFIX = ".json"
#: Longest file name of the usual file systems, in bytes.
_LONGEST_NAME = 255
_SCOPED = re.compile("[0-9a-f]{64}-")
_SCOPE_DIGITS = 64
#: Begins names that are not the seed's form; encodeURIComponent never gives it.
_OUR_FORM = "@"


class Ask(NamedTuple):
    """One pending ask.

    :ivar message_id: of the question; any text.
    :ivar asker: session id; ``asker_name`` is None if it has no name. So for ``target``.
    :ivar created_at: milliseconds, as is ``expires_at``.
    :ivar scope: :func:`scope_hash` of the scope in which it was asked, None for the unnamed
        one. The file has no more of it.
    """

    message_id: str
    asker: str
    asker_name: str | None
    target: str
    target_name: str | None
    question: str
    created_at: int
    expires_at: int
    scope: str | None = None


class Sweep(NamedTuple):
    """What was found in the directory.

    :ivar asks: those still pending, the oldest first. Not among them is what lies under a
        name that its ask does not have; it stays until it expires.
    :ivar removed: how many files were expired or damaged, and are gone.
    :ivar failed: path and cause of those that could not be read, or not be removed. They stay.
    """

    asks: tuple[Ask, ...]
    removed: int
    failed: tuple[tuple[str, str], ...]


def scope_hash(scope: str | None) -> str | None:
    """How files name a scope."""
    return None if scope is None else sha256(scope)


def ask_name(message_id: str, scope: str | None) -> str:
    """The name of an ask's file.

    It is the seed's, but where that would be too long, or could be that of another ask's
    file: then it begins with ``@`` and holds a hash if need be.

    :param scope: as :func:`scope_hash` gives it.
    """
    encoded = quote(utf8(message_id), safe=_UNRESERVED)
    before = f"{scope}-" if scope else ""
    name = f"{before}{encoded}{_SUFFIX}"
    if len(name) <= _LONGEST_NAME and (scope or not _SCOPED.match(encoded)):
        return name
    return f"{before}{_OUR_FORM}{file_name(encoded)}{_SUFFIX}"


def save(directory: str, ask: Ask, calls: Calls) -> None:
    """Write an ask's file; the directory is made if it is gone.

    :raise SpoolError: it cannot be written. An older file of this ask still stands.
    :raise UnsafePlace: the directory is not ours alone. :raise CannotCreate: it cannot be made.
    """
    path = os.path.join(directory, ask_name(ask.message_id, ask.scope))
    data = f"{_indented(_record(ask))}\n".encode()
    try:
        prepare_directory(directory)
        replace(calls, path, data)
    except OSError as error:
        raise failed("write", path, error) from error


def remove(directory: str, message_id: str, scope: str | None, calls: Calls) -> None:
    """Remove an ask's file; to have none is as good.

    :param scope: as :func:`scope_hash` gives it.
    :raise SpoolError: it cannot be removed, and still stands.
    """
    path = os.path.join(directory, ask_name(message_id, scope))
    try:
        calls.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise failed("remove", path, error) from error


def load(directory: str, now: int, calls: Calls) -> Sweep:
    """Read all asks when the hub starts, and remove what is expired, damaged or unfinished.

    :param now: milliseconds.
    :raise SpoolError: the directory cannot be listed.
    :raise UnsafePlace: it is not ours alone. :raise CannotCreate: it cannot be made.
    """
    prepare_directory(directory)
    remove_leftovers(calls, directory)
    return prune(directory, now, calls)


def prune(directory: str, now: int, calls: Calls) -> Sweep:
    """Remove what is expired or damaged, as before each send; reads every file.

    :param now: milliseconds. :raise SpoolError: the directory cannot be listed.
    """
    asks: list[Ask] = []
    removed, failures = 0, []
    try:
        names = calls.names(directory)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise failed("list", directory, error) from error
    for name in names:
        path = os.path.join(directory, name)
        if not name.endswith(_SUFFIX) or not os.path.isfile(path) or os.path.islink(path):
            continue
        try:
            data = content(calls, path)
            if data is None:
                continue
            ask = _parsed(data, name)
            if ask is not None and now <= ask.expires_at:
                asks += [ask] if name == ask_name(ask.message_id, ask.scope) else []
            else:
                calls.unlink(path)
                removed += 1
        except FileNotFoundError:
            continue
        except (OSError, IntercomError) as error:
            failures.append((path, reason(error)))
    asks.sort(key=lambda ask: (ask.created_at, ask.message_id))
    return Sweep(tuple(asks), removed, tuple(failures))


# -- content ----------------------------------------------------------------------------------


def _record(ask: Ask) -> Record:
    return {
        "askId": ask.message_id,
        "messageId": ask.message_id,
        "asker": {"sessionId": ask.asker, "name": ask.asker_name},
        "target": {"sessionId": ask.target, "name": ask.target_name},
        "question": ask.question,
        "createdAt": ask.created_at,
        "expiresAt": min(ask.expires_at, MAX_SAFE_INTEGER),  # or it would be taken for damaged
    }


def _indented(record: Record, margin: str = "") -> str:
    """A record of texts, numbers and records as ``JSON.stringify(record, null, 2)`` prints it."""
    inner = f"{margin}  "
    lines = [
        f"{inner}{js_json(key)}: "
        + (_indented(value, inner) if isinstance(value, dict) else js_json(value))
        for key, value in record.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}"


def _parsed(data: bytes, name: str) -> Ask | None:
    """The ask that a file holds, None if it is damaged."""
    if len(data) > MAX_FILE:
        return None
    try:
        found = read_json(data)
    except ProtocolError:
        return None
    if not _is_record(found):
        return None
    message_id, asker, target = found["messageId"], found["asker"], found["target"]
    return Ask(
        message_id=message_id,
        asker=asker["sessionId"],
        asker_name=asker["name"],
        target=target["sessionId"],
        target_name=target["name"],
        question=found["question"],
        created_at=int(found["createdAt"]),
        expires_at=int(found["expiresAt"]),
        scope=_scope_of(name, message_id),
    )


def _is_record(found: Any) -> bool:
    """Whether it is what the seed takes for a pending ask."""
    if not isinstance(found, dict):
        return False
    texts = [found.get("askId"), found.get("messageId"), found.get("question")]
    for side in (found.get("asker"), found.get("target")):
        if not isinstance(side, dict) or not isinstance(side.get("name", 0), str | None):
            return False
        texts.append(side.get("sessionId"))
    if not all(map(is_string, texts)):
        return False
    created, expires = found.get("createdAt"), found.get("expiresAt")
    return is_safe_integer(created) and is_safe_integer(expires) and expires >= created


def _scope_of(name: str, message_id: str) -> str | None:
    """The scope in the name of the file of an ask with this id."""
    scoped = _SCOPED.match(name) and name != ask_name(message_id, None)
    return name[:_SCOPE_DIGITS] if scoped else None
