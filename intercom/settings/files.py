"""The two files that hold settings: a channel's ``channel.json``, a user's ``config.toml``.

Both are read whole and replaced whole, under a lock, so that of two who change them at
once neither undoes what the other did. What a newer version has written into them, and
we do not know, stays.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time

from intercom import __version__
from intercom import plainjson as json
from intercom.errors import BadConfig, CannotCreate, UnsafePlace
from intercom.paths import ChannelPaths, open_private, read_private, write_atomic
from intercom.plain import contextmanager
from intercom.private import described, make_directories
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

#: The format of a channel's files. Raised when an older version would misread them.
FORMAT = 1
#: Members of ``channel.json`` that are no settings.
STAMP = ("format", "version")
#: Seconds to wait for another who is changing a file; it takes microseconds.
PATIENCE = 2.0
_PAUSE = 0.005


class ChannelFile:
    """``channel.json``: the settings of one channel, and the format of its files.

    A hub stamps it, so a version that does not know the format finds out before it
    touches anything. Absent or empty, it says nothing.
    """

    def __init__(self, paths: ChannelPaths) -> None:
        self.path = paths.settings
        self._channel = paths.name

    def read(self) -> dict[str, Any]:
        """All of its members, known or not, their values unchecked.

        :raise BadConfig: it cannot be read, is no JSON object, or has a newer format.
        :raise UnsafePlace: it is not ours alone.
        """
        try:
            content = read_private(self.path)
        except OSError as error:
            raise BadConfig(
                f"cannot read {self.path}: {error.strerror}",
                remedy=f"see what it is: ls -ld {self.path}",
            ) from error
        if not content or not content.strip():
            return {}
        try:
            found: Any = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise self._damaged("holds no JSON object")
        self._check_format(found)
        return found

    def check_format(self) -> None:
        """Refuse a channel whose files a newer version has written; see nothing else.

        What is damaged is no matter of those who need none of the settings.

        :raise BadConfig: a newer format.
        :raise UnsafePlace: the file is not ours alone.
        """
        try:
            found: Any = json.loads(read_private(self.path) or b"{}")
        except (OSError, ValueError, RecursionError):
            return
        if isinstance(found, dict):
            self._check_format(found, strict=False)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Set members, or remove those whose new value is None; stamp the file; keep the rest.

        Nothing is written where nothing changes.

        :raise BadConfig: what stands there cannot be read.
        :raise CannotCreate: it cannot be written, or another process keeps it locked; then
            it is as it was.
        :raise UnsafePlace: it is not ours alone.
        """
        try:
            with _locked(self.path):
                self._change(changes)
        except OSError as error:
            raise CannotCreate(
                f"cannot write {self.path}: {error.strerror}",
                remedy=f"see what it is: ls -ld {self.path}",
            ) from error

    def _change(self, changes: Mapping[str, Any]) -> None:
        before = self.read()
        kept = {key: value for key, value in before.items() if key not in {*STAMP, *changes}}
        new = {key: value for key, value in changes.items() if value is not None}
        after = {"format": FORMAT, "version": __version__} | kept | new
        if after != before:
            text = json.dumps(after, ensure_ascii=False, indent=2)
            write_atomic(self.path, text.encode("utf-8", "backslashreplace") + b"\n")

    def _check_format(self, found: Mapping[str, Any], *, strict: bool = True) -> None:
        number = found.get("format", FORMAT)
        if isinstance(number, bool) or not isinstance(number, int):
            if strict:
                raise self._damaged(f"has the format {number!r}, which is no number")
            return
        if number > FORMAT:
            raise BadConfig(
                f"channel {self._channel!r} was written by intercom "
                f"{found.get('version', 'of an unknown version')}, format {number}; "
                f"this is intercom {__version__}, format {FORMAT}",
                remedy="use the newer one here (intercom version says where this one is), or "
                "another --channel",
                details={"format": number, "file": self.path},
            )

    def _damaged(self, problem: str) -> BadConfig:
        return BadConfig(
            f"{self.path} {problem}",
            remedy=f"mend it, or do without its settings: rm {self.path}",
            details={"file": self.path},
        )


def user_path(environ: Mapping[str, str]) -> str:
    """Where the user's file is: in ``$XDG_CONFIG_HOME/intercom``, else ``~/.config/intercom``."""
    place = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(place):  # the rule of the XDG base directories
        place = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(place, "intercom", "config.toml")


class UserFile:
    """``config.toml``: what a user wants on every channel.

    It may be a link, as those who keep such files together like it.

    :param path: where it is: see :func:`user_path`.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """All of its members, known or not, their values unchecked; empty if it is absent.

        :raise BadConfig: it cannot be read, or is not TOML.
        :raise UnsafePlace: others could have written it.
        """
        return self._parsed(self._content())

    def change(self, key: str, value: Any) -> None:
        """Set one member, or remove it (None). Every other line stays as it is.

        :raise BadConfig: what stands there cannot be read, or not be changed line by line.
        :raise CannotCreate: its directory or the file cannot be written.
        :raise UnsafePlace: it is not ours alone.
        """
        path = os.path.realpath(self.path)
        try:
            make_directories(os.path.dirname(path))
            with _locked(path):
                self._change(path, key, value)
        except OSError as error:
            raise CannotCreate(
                f"cannot write {path}: {error.strerror}", remedy=f"see what it is: ls -ld {path}"
            ) from error

    def _change(self, path: str, key: str, value: Any) -> None:
        content = self._content()
        wanted = self._parsed(content)
        wanted.pop(key, None)
        if value is not None:
            wanted[key] = value
        changed = _with_line(content, key, value)
        try:
            agreed = self._parsed(changed) == wanted
        except BadConfig:
            agreed = False
        if not agreed:  # written over several lines, or in a way of its own
            raise BadConfig(
                f"{key} stands in {self.path} in a way that only its writer understands",
                remedy=f"see how it stands there: cat {self.path}; and change it by hand",
            )
        if changed != content:
            write_atomic(path, changed.encode())

    def _content(self) -> str:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            raise self._unreadable(error.strerror) from error
        try:
            _check_owner(self.path, os.fstat(fd))
            with open(fd, "rb", closefd=False) as file:
                return file.read(1 << 20).decode()
        except OSError as error:
            raise self._unreadable(error.strerror) from error
        except UnicodeDecodeError as error:
            raise self._unreadable(str(error)) from error
        finally:
            os.close(fd)

    def _parsed(self, content: str) -> dict[str, Any]:
        if not content:
            return {}
        import tomllib  # seldom needed, and not for nothing

        try:
            return tomllib.loads(content)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise BadConfig(
                f"{self.path} is not TOML: {error}",
                remedy=f"mend it, or move it away: mv {self.path} {self.path}.old",
            ) from error

    def _unreadable(self, why: str | None) -> BadConfig:
        return BadConfig(
            f"cannot read {self.path}: {why}",
            remedy=f"mend it, or move it away: mv {self.path} {self.path}.old",
        )


def _check_owner(path: str, found: os.stat_result) -> None:
    """Refuse a file that another user could have written: it says where messages go."""
    others = 0o002 if found.st_gid == os.getegid() else 0o022  # many users have their own group
    if not stat.S_ISREG(found.st_mode):
        problem = "is not a regular file"
    elif found.st_uid not in (os.geteuid(), 0):
        problem = f"does not belong to uid {os.geteuid()}, as which this process runs"
    elif found.st_mode & others:
        problem = "can be written by others"
    else:
        return
    raise UnsafePlace(
        f"{path} {problem} ({described(found)})",
        remedy="look at what it is and mend that, or keep one elsewhere with XDG_CONFIG_HOME",
    )


def _with_line(content: str, key: str, value: Any) -> str:
    """TOML in which ``key`` at the top level is set, or (None) does not stand."""
    import re  # seldom needed, and not for nothing

    lines = content.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    here = re.compile(rf"\s*(\"{key}\"|'{key}'|{key})\s*=")
    found = [at for at in range(end) if here.match(lines[at])]
    fresh = [] if value is None else [f"{key} = {json.dumps(value, ensure_ascii=False)}\n"]
    if found:
        lines[found[0] : found[0] + 1] = fresh
    else:
        while end and not lines[end - 1].strip():
            end -= 1  # blank lines before a section belong to that
        if end and not lines[end - 1].endswith("\n"):
            lines[end - 1] += "\n"
        lines[end:end] = fresh
    return "".join(lines)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the lock of a file that is replaced by renaming, making it if need be.

    One that was replaced while we waited guards nothing any more, and is opened again.

    :raise CannotCreate: another process keeps it.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            if _lock(fd, path):
                yield
                return
        finally:
            os.close(fd)
        if time.monotonic() > deadline:
            raise CannotCreate(
                f"another process keeps {path} locked",
                remedy=f"find it and resume or end it: fuser {path}",
            )
        time.sleep(_PAUSE)


def _lock(fd: int, path: str) -> bool:
    """Take the lock if it is free; False also if ``path`` leads elsewhere by now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def unknown_keys(found: Mapping[str, Any], path: str, *, channel: bool) -> list[str]:
    """What to say of members that mean nothing in this file. They are no error, and stay.

    A newer version may have written them.
    """
    said = []
    for key in found:
        if channel and key in STAMP:
            continue
        from intercom.settings.table import SETTINGS  # not where the file is empty

        row = SETTINGS.get(key)
        if row is None:
            said.append(f"{path}: {key!r} is no setting that intercom {__version__} knows")
        elif not (row.channel if channel else row.user):
            said.append(f"{path}: {key!r} means nothing there; see: intercom config")
    return said
