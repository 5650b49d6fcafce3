"""The files by which clients find a running broker: its pid, and its TCP port.

They are written once the sockets are bound and before the ready line, and taken away at exit,
by the one who wrote them only. Nothing here decides by a pid that it finds: who leads is
decided by locks, so a stranger's pid, living or dead, is replaced.
"""

from __future__ import annotations

import contextlib
import hmac
import os
from typing import Any, NamedTuple

from intercom.errors import CannotCreate, UnsafePlace
from intercom.pi.calls import Calls, content, failed, place, prepared, remove_leftovers
from intercom.wire.pi.javascript import js_json

#: Where TCP is served; no other machine can connect.
TCP_HOST = "127.0.0.1"


class Published(NamedTuple):
    """A file that we wrote, to be known again.

    :ivar device: and ``inode``: of the file itself, for a successor may write the same.
    """

    path: str
    data: bytes
    device: int
    inode: int

    def withdraw(self, calls: Calls) -> bool:
        """Remove the file if it is still ours.

        :return: whether it was. What another put there, or what cannot be read, stays.
        :raise SpoolError: it is ours, and could not be removed.
        """
        try:
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) != (self.device, self.inode):
                return False
            if content(calls, self.path) != self.data:
                return False  # an inode may be given out again
        except (OSError, UnsafePlace):
            return False
        try:
            calls.unlink(self.path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise failed("remove", self.path, error) from error
        return True


def publish_pid(path: str, pid: int, calls: Calls) -> Published:
    """Write the pid file, over whatever pid it holds.

    :raise CannotCreate: it cannot be written; what was there stands.
    """
    return _publish(path, b"%d\n" % pid, calls)


def publish_port(path: str, port: int, state_id: str, calls: Calls) -> Published:
    """Write the file that tells clients of the TCP port.

    :param state_id: the secret that they must show there; a new one for each start.
    :raise CannotCreate: it cannot be written; what was there stands.
    """
    endpoint: dict[str, Any] = {"transport": "tcp", "host": TCP_HOST}
    endpoint |= {"port": port, "stateId": state_id}
    return _publish(path, js_json(endpoint).encode() + b"\n", calls)


def read_pid(path: str, calls: Calls) -> int | None:
    """The pid that a pid file holds in its first line, for messages to people.

    None: there is none, or it cannot be read.
    """
    try:
        first, _, _ = (content(calls, path) or b"").partition(b"\n")
    except (OSError, UnsafePlace):
        return None
    text = first.strip()
    return int(text) if text.isdigit() and len(text) < 11 else None


def say_ready(pid: int) -> None:
    """Tell the pi client that started us that the sockets answer: one write, heard or not.

    :param pid: the hub's, as in the pid file.
    """
    with contextlib.suppress(OSError):
        os.write(1, f"Intercom broker started (pid: {pid})\n".encode())


def is_state_id(expected: str, shown: str | None) -> bool:
    """Whether a client showed the right secret, in time that tells nothing of how much is right."""
    given = (shown or "").encode("utf-8", "surrogatepass")
    return bool(expected) and hmac.compare_digest(expected.encode(), given)


def _publish(path: str, data: bytes, calls: Calls) -> Published:
    directory = os.path.dirname(path)
    remove_leftovers(calls, directory)
    try:
        temporary = prepared(calls, directory, data, durable=False)
        found = os.lstat(temporary)
        place(calls, temporary, path)
    except OSError as error:
        raise CannotCreate(
            f"cannot write {path}: {error.strerror or error}",
            remedy=f"see what is there: ls -ld {path}",
        ) from error
    return Published(path, data, found.st_dev, found.st_ino)
