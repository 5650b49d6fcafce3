"""A session's secret, by which its own commands know each other. Standard library only."""

from __future__ import annotations

import errno
import os

from intercom.client.once import settle
from intercom.errors import BadConfig, CannotCreate
from intercom.paths import ChannelPaths

#: Bytes of randomness in a token; it is written as twice as many hex digits.
TOKEN_BYTES = 16


def own_token(paths: ChannelPaths, session: str) -> str:
    """Return the session's token on this channel, making it if this is its first command.

    The hub reads the same file (``docs/protocol``, "Features"). All commands that
    ask at once get the same token.

    :raise BadConfig: the file holds something else.
    :raise CannotCreate: it cannot be written.
    """
    path = paths.token(session)
    try:
        content = settle(path, os.urandom(TOKEN_BYTES).hex().encode())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make the channel's directory writable, or choose another with --dir"
        raise CannotCreate(
            f"cannot keep the session's token in {path}: {error.strerror}",
            code="DISK_FULL" if full else None,
            remedy="make room, then try again; see where: df -h" if full else remedy,
        ) from error
    token = content.decode("ascii", "replace").strip()
    if not token.isalnum() or len(token) < 2 * TOKEN_BYTES:
        raise BadConfig(
            f"{path} does not hold a session's token",
            remedy=f"end the session's commands, remove it, and start them again: rm {path}",
        )
    return token
