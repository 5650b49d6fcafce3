"""The one table of settings: a row each, from which everything else about them follows.

What a hub does belongs to its channel, and stands in the channel's ``channel.json``, so
that a successor is like its predecessor. What a user wants everywhere stands in the
user's ``config.toml``. Variables of the environment win over both.
"""

from __future__ import annotations

from intercom.records import LEVELS
from intercom.settings.basics import (
    BASICS,
    BOOLEAN,
    Kind,
    Setting,
    choice,
    some_text,
)
from intercom.settings.limits import DEFAULTS, GIB, KIB, MIB

#: Said of a time that never comes, and of a size that has no bound.
NEVER = "never"
NONE = "none"
#: The highest port, and the kinds of endpoints that have one as their first part.
MAX_PORT = 65535
#: So many descriptors are the most that a hub ever uses.
MAX_CONNECTIONS = 65_536
_WITH_PORT = frozenset({"tcp", "tcp6", "ssl"})
_SIZE = r"([0-9]{1,18})\s*([kmg]?)(i?b)?"
_UNITS = {"": 1, "k": KIB, "m": MIB, "g": GIB}
#: A number beyond this is a slip; no file or table gets there.
_LARGEST = 1 << 53


def _seconds(text: str) -> float | str:
    return text if text == NEVER else _positive(float(text))


def _seconds_in_file(value: object) -> float | str:
    if value == NEVER:
        return NEVER
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return _positive(float(value))


def _positive(number: float) -> float:
    """A usable number of seconds; whole ones are written without a fraction."""
    if not 0 < number < float("inf"):
        raise ValueError
    return int(number) if number.is_integer() else number


def _endpoint(value: object) -> str:
    """An endpoint string whose port exists; Twisted itself notices only as it listens."""
    import re  # seldom needed, and not for nothing

    name, *parts = re.split(r"(?<!\\):", some_text(value))
    if name in _WITH_PORT:
        named = [part.removeprefix("port=") for part in parts if part.startswith("port=")]
        port = (named or [part for part in parts if "=" not in part] or [""])[0]
        if not 0 <= int(port) <= MAX_PORT:
            raise ValueError
    return str(value)


def _endpoints(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ValueError
    return [_endpoint(one) for one in value]


def _bytes(text: str) -> int:
    """A number of bytes: ``4096``, ``64KiB``, ``64 MB``, ``1g``; units count in 1,024s."""
    import re  # seldom needed, and not for nothing

    found = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError
    return int(found[1]) * _UNITS[found[2].lower()]


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    return value


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError
    return int(text)


def _size(least: int, *, unbounded: bool = False) -> Kind:
    """A number of bytes, which may stand in a file as a person writes it; or none."""

    def read(value: object) -> int | str:
        if unbounded and value == NONE:
            return NONE
        number = _bytes(value) if isinstance(value, str) else _whole(value)
        if not least <= number <= _LARGEST:
            raise ValueError
        return number

    lowest = f" of at least {least >> 10} KiB" if least else ""
    instead = f", or {NONE}" if unbounded else "" if least else ", or 0 for none"
    return Kind(read, read, f"a size{lowest} (in bytes, or as 64MiB){instead}")


def _count(least: int, most: int = _LARGEST) -> Kind:
    """A whole number between two bounds."""

    def within(number: int) -> int:
        if not least <= number <= most:
            raise ValueError
        return number

    highest = f" of at most {most}" if most < _LARGEST else ""
    wanted = f"a whole number{highest}" + (" above 0" if least else ", or 0 for none")
    return Kind(lambda text: within(_digits(text)), lambda value: within(_whole(value)), wanted)


SECONDS = Kind(_seconds, _seconds_in_file, f"seconds above 0, or {NEVER}")
ENDPOINTS = Kind(
    lambda text: [_endpoint(text)],
    _endpoints,
    f"Twisted endpoints, such as tcp:7654:interface=127.0.0.1, with ports of 0 to {MAX_PORT}",
    several=True,
)


def _limit(key: str, kind: Kind, help_text: str) -> Setting:
    """The row of one of :class:`intercom.settings.limits.Limits`."""
    default = getattr(DEFAULTS, key)
    if default is None:
        default = NEVER if kind is SECONDS else NONE
    elif isinstance(default, float) and default.is_integer():
        default = int(default)
    variables = (f"INTERCOM_{key.upper()}",)
    return Setting(key, kind, default, variables, channel=True, user=True, help=help_text)


_SIZE_OR_NONE = _size(4 * KIB, unbounded=True)

#: The bounds of a hub, each a member of ``Limits``.
LIMITS = (
    _limit("inbox_size", _SIZE_OR_NONE, "bytes of unread messages that an inbox takes"),
    _limit("channel_size", _SIZE_OR_NONE, "bytes of all inboxes of the channel together"),
    _limit("free_space", _size(0), "bytes that are left free, or a tenth of the file system"),
    _limit("free_inodes", _count(0), "inodes that are left free, or a tenth of them"),
    _limit("session_limit", _count(1), "sessions that a channel knows"),
    _limit("retention_age", SECONDS, "seconds for which a message is kept unread"),
    _limit("retention_size", _SIZE_OR_NONE, "bytes of unread messages that are kept of an inbox"),
    _limit("message_rate", _count(1), "lines a second that a connection may say; more wait"),
    _limit("byte_rate", _size(64 * KIB), "bytes a second that a connection may say; more wait"),
    _limit(
        "connections",
        _count(1, MAX_CONNECTIONS),
        "connections at the same time, as far as the system allows",
    ),
    _limit("unregistered", _count(1), "connections that have not said who they are"),
    _limit("register_within", SECONDS, "seconds for a connection to say something"),
    _limit("line_within", SECONDS, "seconds for a connection to end its first line"),
    _limit("pi_sessions", _count(1), "sessions of pi-intercom clients at the same time"),
    _limit("pi_unregistered", _count(1), "connections of pi clients without a session"),
    _limit("pi_within", SECONDS, "seconds for a pi client to register"),
    _limit("pi_burst", _count(1), "frames that a pi-intercom client may say at once"),
    _limit("pi_rate", _count(1), "frames a second that it may say beyond them; more wait"),
    _limit("pi_mailbox", _count(1), "letters of one sender that wait for absent pi sessions"),
    _limit("pi_mailbox_age", SECONDS, "seconds for which a letter waits for a pi session"),
    _limit("pi_extensions", _count(1), "extensions that a pi session may have"),
    _limit("pi_extension", _size(KIB), "bytes of a message of an extension"),
)

_ROWS = (
    Setting(
        "durability",
        choice(*LEVELS),
        "disk",
        ("INTERCOM_DURABILITY",),
        channel=True,
        user=True,
        help="how safe a message is before its sender is told that it is stored",
    ),
    Setting(
        "idle_exit",
        SECONDS,
        600,
        ("INTERCOM_IDLE_EXIT",),
        channel=True,
        user=True,
        help="seconds without any connection after which a hub leaves, or never",
    ),
    Setting(
        "listen",
        ENDPOINTS,
        (),
        (),
        channel=True,
        user=False,
        help="further places where the hub listens: Twisted endpoints",
    ),
    Setting(
        "pi",
        BOOLEAN,
        False,
        ("INTERCOM_PI",),
        channel=True,
        user=False,
        help="be found where pi-intercom and pi-subagents look for their broker",
    ),
    Setting(
        "poller",
        BOOLEAN,
        True,
        ("INTERCOM_POLLER",),
        channel=True,
        user=True,
        help="read busy connections many at a time, past Twisted's way for each; Linux",
    ),
    *LIMITS,
)

#: Every setting, by its key.
SETTINGS = BASICS | {row.key: row for row in _ROWS}
