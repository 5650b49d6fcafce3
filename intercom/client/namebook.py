"""Which caller of a project has which name: ``.intercom/session.json``. Standard library only.

One map for each working tree. It lies in the tree, out of sight of version control, or,
where the tree cannot be written, in the user's state directory under the tree's path.
It is changed under the lock of the directory that it lies in, and replaced in one step.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time

from intercom import plainjson as json
from intercom.client import processes
from intercom.client.processes import Process
from intercom.errors import BadConfig, CannotCreate, ProtocolError, UnsafePlace
from intercom.hashes import sha256
from intercom.names import check_session, slug
from intercom.paths import read_private, write_atomic
from intercom.plain import contextmanager, suppress
from intercom.private import make_directories
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

FORMAT = 2
FILE = "session.json"
#: Seconds to wait for another command that changes the map.
PATIENCE = 2.0
_LARGEST = 1 << 20
_PAUSE = 0.005


class Name:
    """A name that the project has.

    :ivar caller: whose it is (see :class:`intercom.client.callers.Caller`), None if nobody's.
    :ivar channel: directory of the one channel on which it is used because the caller's
        own name is another project's there; None for a name that is used everywhere.
    :ivar used_at: when it was last used (epoch seconds), to within some minutes.
    :ivar process: whose end is the end of the caller.
    """

    __slots__ = ("caller", "channel", "process", "session", "since", "used_at")

    def __init__(
        self,
        session: str,
        caller: str | None,
        since: float,
        used_at: float,
        channel: str | None = None,
        process: Process | None = None,
    ) -> None:
        self.session = session
        self.caller = caller
        self.since = since
        self.used_at = used_at
        self.channel = channel
        self.process = process

    def copy(self) -> Name:
        """One that stays as it is now."""
        return Name(self.session, self.caller, self.since, self.used_at, self.channel, self.process)


class Namebook:
    """The map of one tree.

    :ivar tree: the tree's own id, by which its claims on channels are known as its own.
    :ivar lost: there was no map of ours: what the channel's claims tell of the tree is news.
    :ivar base: the name that ``name-2`` is made of, None before the first was given.
    :ivar names: the oldest first; those of ``elsewhere`` lie where we cannot write.
    """

    def __init__(
        self,
        tree: str,
        project: str,
        base: str | None = None,
        names: list[Name] | None = None,
        lost: bool = False,
    ) -> None:
        self.tree = tree
        self.project = project
        self.base = base
        self.names = names or []
        self.elsewhere: list[Name] = []
        self.lost = lost

    def of(self, caller: str, channel: str) -> Name | None:
        """The name of a caller on a channel; of several, one of that channel, the last used."""
        own = [one for one in self.names + self.elsewhere if one.caller == caller]
        fit = [one for one in own if one.channel in (None, channel)]
        return max(fit, key=lambda one: (one.channel is not None, one.used_at), default=None)

    def find(self, session: str, channel: str) -> Name | None:
        """The entry of a name that is used on a channel."""
        for one in self.names:
            if one.session == session and one.channel in (None, channel):
                return one
        return None

    def sessions(self) -> set[str]:
        """All names of the tree."""
        return {one.session for one in self.names + self.elsewhere}


class Shelf:
    """The one or two places where a tree's map may lie.

    :param project: the tree's root.
    """

    def __init__(self, project: str, environ: Mapping[str, str]) -> None:
        self.project = project
        self._in_tree = os.path.join(project, ".intercom")
        self._in_state = _state_directory(project, environ)

    @property
    def files(self) -> tuple[str, str]:
        """Where the map may lie: in the tree, and where it does if that cannot be written."""
        return os.path.join(self._in_tree, FILE), os.path.join(self._in_state, FILE)

    def look(self) -> Namebook | None:
        """The map as it is now, None if there is none yet. Nothing is made or locked.

        :raise BadConfig: it is damaged, or of a newer version.
        """
        book = self._read(self._in_tree)
        beside = self._read(self._in_state)
        if book is None or beside is None:
            return book or beside
        book.elsewhere = beside.names
        return book

    @contextmanager
    def change(self, patience: float = PATIENCE) -> Iterator[Namebook]:
        """Hold the map; what was changed in it is written when the block ends without error.

        :param patience: seconds to wait for its lock.
        :raise BadConfig: it is damaged, or of a newer version.
        :raise CannotCreate: it can be written in neither place, or stays locked.
        """
        with self._open(patience) as place:
            book = self._read(place)
            other = self._read(self._in_state if place == self._in_tree else self._in_tree)
            if book is None:
                tree = other.tree if other else os.urandom(8).hex()
                book = Namebook(tree, self.project, other.base if other else None)
                book.lost = other is None
            book.elsewhere = other.names if other else []
            path = os.path.join(place, FILE)
            before = _content(place, path)
            yield book
            after = _dump(book)
            if after != before:
                try:
                    write_atomic(path, after)
                except OSError as error:
                    raise self._unwritable(error) from error

    # -- places -----------------------------------------------------------------------------

    @contextmanager
    def _open(self, patience: float) -> Iterator[str]:
        """Lock the first place that can be written."""
        trouble: OSError | None = None
        for place in (self._in_tree, self._in_state):
            try:
                if place == self._in_state:
                    make_directories(os.path.dirname(place))
                _make_directory(place)
                fd = _lock_directory(place, patience)
            except OSError as error:
                trouble = error
                continue
            except UnsafePlace as error:
                raise _odd(place, error.text) from error
            try:
                yield place
            finally:
                os.close(fd)
            return
        assert trouble is not None
        raise self._unwritable(trouble)

    def _unwritable(self, error: OSError) -> CannotCreate:
        return CannotCreate(
            f"cannot keep the session's name in {self._in_tree} or {self._in_state}: "
            f"{error.strerror}",
            remedy="name the session yourself: --session ID, or INTERCOM_SESSION=ID",
        )

    def _read(self, place: str) -> Namebook | None:
        """The map in one place; a copy of another tree's is not ours and counts as none."""
        path = os.path.join(place, FILE)
        content = _content(place, path)
        if not content:
            return None
        book = _parse(path, content, self.project)
        if book.project != self.project:
            if self._is_copy(book):
                return None
            book.project = self.project  # the tree was moved
        return book

    def _is_copy(self, book: Namebook) -> bool:
        """Whether the tree that the map is about still stands where it says, beside this one."""
        if os.path.exists(book.project):
            with suppress(OSError):
                if os.path.samefile(book.project, self.project):
                    return False
        place = os.path.join(book.project, ".intercom")
        try:
            path = os.path.join(place, FILE)
            content = _content(place, path)
            return bool(content) and _parse(path, content or b"", "").tree == book.tree
        except BadConfig:
            return False


def _state_directory(project: str, environ: Mapping[str, str]) -> str:
    """Where the map of a tree lies that is not ours to write."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    digest = sha256(os.fsencode(project)).hexdigest()[:16]
    return os.path.join(state, "intercom", f"{slug(os.path.basename(project))}-{digest}")


def _make_directory(place: str) -> None:
    """Make a map's directory, 0700 and ignored by version control; its files are ours to change.

    :raise UnsafePlace: something else has the name.
    :raise OSError: it cannot be made or written, or belongs to somebody else.
    """
    try:
        os.mkdir(place, 0o700)
    except FileExistsError:
        if not _is_ours(place):
            raise PermissionError(1, "it belongs to another user") from None
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(13, "it cannot be written") from None
    ignore = os.path.join(place, ".gitignore")
    if not os.path.lexists(ignore):
        write_atomic(ignore, b"*\n")


def _is_ours(place: str) -> bool:
    """Whether a directory is this user's.

    :raise UnsafePlace: it is no directory: a link would lead us elsewhere.
    """
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePlace(f"{place} is not a directory")
    return found.st_uid == os.geteuid()


def _lock_directory(place: str, patience: float) -> int:
    """Lock a directory; it may be removed and made again while we wait.

    :raise CannotCreate: others keep the lock.
    """
    deadline = time.monotonic() + patience
    while True:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.lstat(place)):
                return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                raise CannotCreate(
                    f"another process keeps {place} locked",
                    remedy=f"find it and resume or end it: fuser {place}",
                ) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(_PAUSE)


# -- the file -------------------------------------------------------------------------------


def _content(place: str, path: str) -> bytes | None:
    """The content of a map, None where there is none that is ours."""
    try:
        if not _is_ours(place):
            return None
        return read_private(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except UnsafePlace as error:
        raise _odd(path, error.text) from error
    except OSError as error:
        raise _odd(path, f"{path} cannot be read: {error.strerror}") from error


def _parse(path: str, content: bytes, project: str) -> Namebook:
    """Read a map; of our first format, or of the original mesh, it holds one name, no callers."""
    try:
        written: Any = json.loads(content)
        if not isinstance(written, dict):
            raise TypeError
        version = written.get("format", 1)
        if type(version) is int and version > FORMAT:
            raise _newer(path, version)
        if version == 1:
            made = _number(written.get("created_at", 0.0))
            only = Name(
                check_session(written.get("session", written.get("session_id"))), None, made, made
            )
            return Namebook(os.urandom(8).hex(), project, only.session, [only], lost=True)
        base = written["base"]
        return Namebook(
            tree=_text(written["tree"]),
            project=_text(written["project"]),
            base=None if base is None else check_session(base),
            names=[_name(one) for one in written["names"]],
        )
    except ProtocolError as error:
        raise _odd(path, f"{path} names no usable session: {error.text}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _odd(path, f"{path} is no session file") from error


def _name(fields: Any) -> Name:
    caller, channel = fields["caller"], fields["channel"]
    return Name(
        session=check_session(fields["session"]),
        caller=None if caller is None else _text(caller),
        since=_number(fields["since"]),
        used_at=_number(fields["used_at"]),
        channel=None if channel is None else _text(channel),
        process=processes.parse(fields["process"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text is missing")
    return value


def _number(value: object) -> float:
    if type(value) not in (int, float) or not abs(float(value)) < 1 << 53:  # type: ignore[arg-type]
        raise ValueError("a time is missing")
    return float(value)  # type: ignore[arg-type]


def _dump(book: Namebook) -> bytes:
    written = {
        "format": FORMAT,
        # What the programs of the original mesh look for; they replace a file without it.
        "session_id": book.names[0].session if book.names else None,
        "tree": book.tree,
        "project": book.project,
        "base": book.base,
        "names": [
            {
                "session": one.session,
                "caller": one.caller,
                "channel": one.channel,
                "since": one.since,
                "used_at": one.used_at,
                "process": processes.dump(one.process),
            }
            for one in book.names
        ],
    }
    return json.dumps(written, indent=1).encode() + b"\n"


def _newer(path: str, version: int) -> BadConfig:
    return BadConfig(
        f"{path} was written by a newer intercom (format {version}, this one knows {FORMAT})",
        remedy="use that version here, or name the session yourself: --session ID",
    )


def _odd(path: str, text: str) -> BadConfig:
    """What to say of a file that holds no map."""
    return BadConfig(text, remedy=f"remove it (rm -r {path}) and run: intercom init [--name ID]")
