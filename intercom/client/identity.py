"""Who speaks: one session id per project, the same in every command. Standard library only.

The id is kept in ``.intercom/session.json`` of the project, out of sight of
version control; where the tree cannot be written, in the user's state directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping
from typing import Any

from intercom.client.once import settle
from intercom.errors import BadConfig, CannotCreate, ProtocolError, UnsafePlace
from intercom.names import check_session, slug
from intercom.paths import read_private, write_atomic

FORMAT = 1


def project_directory(option: str | None, cwd: str) -> str:
    """The project that a command works for: ``option``, the repository around ``cwd``, or ``cwd``.

    A repository is what holds ``.git``, as a directory or (a worktree) a file.
    """
    if option:
        return os.path.realpath(os.path.join(cwd, os.path.expanduser(option)))
    start = os.path.realpath(cwd)
    here = start
    while True:
        if os.path.lexists(os.path.join(here, ".git")):
            return here
        above = os.path.dirname(here)
        if above == here:
            return start
        here = above


def session_of(project: str, option: str | None, environ: Mapping[str, str]) -> str:
    """The session id: ``option``, ``$INTERCOM_SESSION``, the project's, or a new one kept there.

    :raise ProtocolError: ``BAD_SESSION_ID``.
    :raise BadConfig: the project's file holds no usable id.
    """
    chosen = option or environ.get("INTERCOM_SESSION")
    if chosen:
        return check_session(chosen)
    places = (_in_tree(project), _in_state(project, environ))
    for place in places:
        found = _load(os.path.join(place, "session.json"))
        if found is not None:
            return found
    fresh = f"{slug(os.path.basename(project))}-{os.urandom(2).hex()}"
    return _keep(places, fresh, replace=False)


def rename(project: str, name: str, environ: Mapping[str, str]) -> str:
    """Give the project the session id ``name``, in place of whatever it was.

    :raise ProtocolError: ``BAD_SESSION_ID``.
    """
    places = (_in_tree(project), _in_state(project, environ))
    return _keep(places, check_session(name), replace=True)


def _in_tree(project: str) -> str:
    return os.path.join(project, ".intercom")


def _in_state(project: str, environ: Mapping[str, str]) -> str:
    """Where the identity of a project lies whose tree is not ours to write."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
    return os.path.join(state, "intercom", f"{slug(os.path.basename(project))}-{digest}")


def _load(path: str) -> str | None:
    """The id that a file holds, None where there is no such file (or an empty one)."""
    try:
        content = read_private(path)
    except NotADirectoryError:
        return None
    except UnsafePlace as error:
        raise _odd(path, error.text) from error
    except OSError as error:
        raise _odd(path, f"{path} cannot be read: {error.strerror}") from error
    return _parse(path, content) if content else None


def _parse(path: str, content: bytes) -> str:
    """Take the id out of a file's content."""
    try:
        written: Any = json.loads(content)
        return check_session(written["session"])
    except ProtocolError as error:
        raise _odd(path, f"{path} names no usable session: {error.text}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise _odd(path, f"{path} is no session file") from error


def _odd(path: str, text: str) -> BadConfig:
    """What to say of a file that holds no identity."""
    return BadConfig(text, remedy=f"remove it (rm {path}) and run: intercom init [--name ID]")


def _keep(places: tuple[str, str], name: str, *, replace: bool) -> str:
    """Write the id to the first place that takes it; return the id that stands there then."""
    written = {"format": FORMAT, "session": name, "created_at": time.time()}
    content = json.dumps(written).encode() + b"\n"
    trouble: OSError | None = None
    for place in places:
        path = os.path.join(place, "session.json")
        try:
            _make_directory(place)
            if replace:
                write_atomic(path, content)
                return name
            return _parse(path, settle(path, content))
        except OSError as error:
            trouble = error
        except UnsafePlace as error:
            raise _odd(path, error.text) from error
    assert trouble is not None
    raise CannotCreate(
        f"cannot keep the session's identity in {places[0]} or {places[1]}: {trouble.strerror}",
        remedy="name the session yourself: --session ID, or INTERCOM_SESSION=ID",
    )


def _make_directory(place: str) -> None:
    """Make an identity's directory, 0700 and ignored by version control.

    :raise UnsafePlace: something else has the name.
    :raise OSError: it cannot be made, or belongs to somebody else.
    """
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    try:
        os.mkdir(place, 0o700)
    except FileExistsError:
        found = os.lstat(place)
        if not stat.S_ISDIR(found.st_mode):
            raise UnsafePlace(f"{place} is not a directory") from None
        if found.st_uid != os.geteuid():
            raise PermissionError(1, f"it belongs to uid {found.st_uid}") from None
    ignore = os.path.join(place, ".gitignore")
    if not os.path.lexists(ignore):
        write_atomic(ignore, b"*\n")
