"""State that extensions share, one file a namespace, as pi-intercom keeps it.

A commit names the revision that it follows, and is durable when it is answered. Whatever step
of it fails or is the last, the file or its backup holds a whole state: the old one, or the new.
Nothing is remembered here, the files are the truth; only the hub that serves the directory
calls this.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, Final, NamedTuple

from intercom.errors import IntercomError, ProtocolError
from intercom.pi.calls import (
    MAX_FILE,
    Calls,
    content,
    discard,
    failed,
    place,
    prepared,
    remove_leftovers,
)
from intercom.pi.hashes import sha256
from intercom.pi.places import prepare_directory
from intercom.wire.pi.fields import is_number, is_safe_integer
from intercom.wire.pi.javascript import js_json
from intercom.wire.pi.reading import read_json

#: Largest payload, in bytes as ``JSON.stringify`` prints it.
MAX_STATE = 64 * 1024
FORMAT_VERSION = 1

#: Why a commit was not taken, in the words of the dialect.
MISMATCH: Final = "Revision mismatch"
NOT_PERSISTED: Final = "Failed to persist extension state"
BAD_REVISION: Final = "Invalid expected revision"
TOO_LARGE: Final = "Invalid extension state or payload exceeds 64 KiB limit"


class State(NamedTuple):
    """What a namespace holds.

    :ivar revision: counts commits from 1.
    """

    revision: int
    payload: Any


class Commit(NamedTuple):
    """What became of a commit.

    :ivar revision: that which stands now; 0 where there is none, or none can be read.
    :ivar reason: why it was not taken, one of this module's constants.
    :ivar state: what stands instead of it, after a mismatch.
    :ivar cause: what the system said, for the log; empty unless something failed.
    """

    committed: bool
    revision: int
    reason: str | None = None
    state: State | None = None
    cause: str = ""


def state_namespace(scope: str | None, namespace: str) -> str:
    """The name of a namespace within a scope, None or empty for the unnamed scope."""
    if not scope:
        return namespace
    return js_json(["scope", sha256(scope), namespace])


def state_path(directory: str, namespace: str) -> str:
    """The file of a namespace, by :func:`state_namespace`; its backup ends with ``.bak``."""
    return os.path.join(directory, f"{sha256(namespace)}.json")


def open_states(directory: str, calls: Calls) -> None:
    """Make the directory, and remove what an earlier hub did not finish.

    :raise UnsafePlace: it is not ours alone. :raise CannotCreate: it cannot be made.
    """
    prepare_directory(directory)
    remove_leftovers(calls, directory)


def load(directory: str, namespace: str, calls: Calls) -> State | None:
    """The state of a namespace: of its file, or where that is absent or damaged, of its backup.

    None: there is neither, which is revision 0.

    :param namespace: by :func:`state_namespace`.
    :raise SpoolError: a file is there and cannot be read, which says nothing about the state.
    :raise UnsafePlace: a file is not ours alone.
    """
    path = state_path(directory, namespace)
    for found in (path, _backup(path)):
        data = _read(found, calls)
        state = None if data is None else _parsed(data, namespace)
        if state is not None:
            return state
    return None


def revision_of(data: bytes) -> int:
    """The revision that a state's file holds; 0 where it holds no good state."""
    try:
        found = read_json(data) if 0 < len(data) <= MAX_FILE else None
    except ProtocolError:
        return 0
    namespace = found.get("namespace") if isinstance(found, dict) else None
    state = _parsed(data, namespace) if isinstance(namespace, str) else None
    return state.revision if state else 0


def commit(
    directory: str, namespace: str, expected: float, payload: Any, *, now: int, calls: Calls
) -> Commit:
    """Put a new state in the place of the one that has the expected revision. Never raises.

    :param namespace: by :func:`state_namespace`. :param payload: any JSON.
    :param now: milliseconds.
    :return: where it is committed, the new state is on stable storage.
    """
    path, stands = state_path(directory, namespace), 0
    try:
        old = load(directory, namespace, calls)
        stands = old.revision if old else 0
        text = js_json(payload).encode()
        if len(text) > MAX_STATE:
            return Commit(False, stands, TOO_LARGE)
        if not is_safe_integer(expected) or expected < 0:
            return Commit(False, stands, BAD_REVISION)
        if expected != stands:
            return Commit(False, stands, MISMATCH, old)
        prepare_directory(directory)
        _exchange(path, namespace, _envelope(namespace, stands + 1, now, text, payload), calls)
    except (OSError, IntercomError) as error:
        shown = failed("write", path, error) if isinstance(error, OSError) else error
        stands = _standing(directory, namespace, stands, calls)
        return Commit(False, stands, NOT_PERSISTED, cause=shown.text)
    return Commit(True, stands + 1)


def _exchange(path: str, namespace: str, data: bytes, calls: Calls) -> None:
    """Replace a state durably, and keep the old one as the backup if it is good.

    :raise OSError: the old state stands, in the file or in its backup.
    """
    directory = os.path.dirname(path)
    temporary = prepared(calls, directory, data, durable=True)
    try:
        # Read again, for the backup has to be what the file holds, not what it fell back to.
        before = _read(path, calls)
        good = before is not None and _parsed(before, namespace) is not None
        if good and before is not None:
            backup = prepared(calls, directory, before, durable=True)
            place(calls, backup, _backup(path))
    except Exception:
        discard(calls, temporary)
        raise
    place(calls, temporary, path)
    try:
        calls.sync_names(directory)
    except OSError:
        # Whether the new name would survive is not known, so the commit is taken back.
        with contextlib.suppress(OSError):
            if good:
                calls.rename(_backup(path), path)
            else:
                calls.unlink(path)
        raise


def _standing(directory: str, namespace: str, before: int, calls: Calls) -> int:
    """The revision that stands after something failed."""
    try:
        state = load(directory, namespace, calls)
    except IntercomError:
        return before
    return state.revision if state else 0


def _read(path: str, calls: Calls) -> bytes | None:
    try:
        return content(calls, path)
    except OSError as error:
        raise failed("read", path, error) from error


# -- content ----------------------------------------------------------------------------------


def _envelope(namespace: str, revision: int, now: int, text: bytes, payload: Any) -> bytes:
    envelope = {
        "formatVersion": FORMAT_VERSION,
        "namespace": namespace,
        "revision": revision,
        "updatedAt": now,
        "payloadSha256": hashlib.sha256(text).hexdigest(),
        "payload": payload,
    }
    return js_json(envelope).encode()


def _parsed(data: bytes, namespace: str) -> State | None:
    """The state that a file holds, None if it is damaged, or of another namespace."""
    try:
        found = read_json(data) if len(data) <= MAX_FILE else None
    except ProtocolError:
        return None
    if not isinstance(found, dict) or "payload" not in found:
        return None
    version, revision = found.get("formatVersion"), found.get("revision")
    if (
        not (is_number(version) and version == FORMAT_VERSION)
        or found.get("namespace") != namespace
        or not (is_safe_integer(revision) and revision >= 0)
        or not is_number(found.get("updatedAt"))
    ):
        return None
    text = js_json(found["payload"]).encode()
    if len(text) > MAX_STATE or hashlib.sha256(text).hexdigest() != found.get("payloadSha256"):
        return None
    return State(int(revision), found["payload"])


def _backup(path: str) -> str:
    return f"{path}.bak"
