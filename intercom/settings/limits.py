"""How much of everything a hub allows. Plain data that imports nothing: any part may use it."""

from __future__ import annotations

from intercom.tuples import NamedTuple

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Limits(NamedTuple):
    """The bounds of one hub; what is ``None`` has none.

    :ivar inbox_size: bytes of unread messages in one inbox.
    :ivar channel_size: bytes of all inboxes of the channel together, read or not.
    :ivar free_space: bytes that stay free on the file system; 0 for none. Never more than a
        tenth of it, so that a small one can be used.
    :ivar free_inodes: the same for inodes, where the file system counts them.
    :ivar session_limit: sessions that a channel knows, each with its files.
    :ivar retention_age: seconds for which a message is kept unread.
    :ivar retention_size: bytes of unread messages that the hourly look leaves in an inbox.
    :ivar message_rate: lines a second that one connection may say, twice as many at once.
    :ivar byte_rate: bytes a second that one connection may say, twice as many at once.
    :ivar connections: connections at the same time.
    :ivar unregistered: those of them that speak for no session.
    :ivar register_within: seconds for a connection to say its first word.
    :ivar line_within: seconds for it to end its first line.
    :ivar pi_sessions: sessions of pi-intercom clients. :ivar pi_unregistered: connections of pi
        clients without one. :ivar pi_within: seconds until they have one.
    :ivar pi_mailbox: letters of one sender that wait for absent pi sessions.
    :ivar pi_mailbox_age: seconds for which a letter waits for a pi session.
    :ivar pi_extensions: that a session may have. :ivar pi_extension: bytes of one's message.
    :ivar pi_burst: frames that a pi-intercom client may say at once, ``pi_rate`` a second more.
    """

    inbox_size: int | None = 64 * MIB
    channel_size: int | None = GIB
    free_space: int = 64 * MIB
    free_inodes: int = 1024
    session_limit: int = 10_000
    retention_age: float | None = None
    retention_size: int | None = None
    message_rate: int = 20_000
    byte_rate: int = 64 * MIB
    connections: int = 2048
    unregistered: int = 64
    register_within: float = 5.0
    line_within: float = 30.0
    pi_sessions: int = 128
    pi_unregistered: int = 32
    pi_within: float = 1.0
    pi_burst: int = 240
    pi_rate: int = 120
    pi_mailbox: int = 256
    pi_mailbox_age: float = 86_400.0
    pi_extensions: int = 32
    pi_extension: int = 16 * KIB


#: What holds where nobody says anything.
DEFAULTS = Limits()
#: No bounds on what is stored, for those who use the spool by itself.
UNBOUNDED = Limits(
    inbox_size=None, channel_size=None, free_space=0, free_inodes=0, session_limit=1 << 53
)
