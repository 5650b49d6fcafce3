"""The settings that say where a command works, and how: what every command asks for.

All others are in :mod:`intercom.settings.table`, which also tells more of the whole.
"""

from __future__ import annotations

from intercom.errors import BadConfig
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_YES = frozenset({"1", "yes", "true", "on"})
_NO = frozenset({"0", "no", "false", "off"})


class Kind(NamedTuple):
    """How the values of a setting are written.

    :ivar from_text: makes a value of a word: of the environment, or of a command line.
    :ivar from_file: checks a value that a JSON or TOML file holds. Both raise ValueError,
        and both give what is kept in a file.
    :ivar wanted: what can be given, in words.
    :ivar several: the value is a list; each word makes a list of one.
    """

    from_text: Callable[[str], Any]
    from_file: Callable[[object], Any]
    wanted: str
    several: bool = False


class Setting(NamedTuple):
    """One row.

    :ivar default: what holds where nothing is said.
    :ivar variables: of the environment; the first that is not empty counts.
    :ivar channel: whether ``channel.json`` may hold it; ``user``: whether ``config.toml`` may.
    """

    key: str
    kind: Kind
    default: Any
    variables: tuple[str, ...]
    channel: bool
    user: bool
    help: str

    def of_text(self, text: str, where: str) -> Any:
        """The value that a word stands for.

        :param where: the option or variable that says so, for the error.
        :raise BadConfig: it stands for none.
        """
        try:
            return self.kind.from_text(text)
        except ValueError:
            raise self._unusable(f"{where} cannot be {text!r}", where) from None

    def of_file(self, value: object, where: str) -> Any:
        """The value that a file holds.

        :param where: the file, for the error.
        :raise BadConfig: it is no value of this setting.
        """
        try:
            return self.kind.from_file(value)
        except ValueError:
            shown = _shown(value)
            raise self._unusable(f"{where}: {self.key} cannot be {shown}", where) from None

    def _unusable(self, text: str, where: str) -> BadConfig:
        return BadConfig(
            text,
            remedy=f"give {self.kind.wanted}; see what is set, and where: intercom config",
            details={"key": self.key, "where": where},
        )


def _shown(value: object) -> str:
    """A value of a file, dates of TOML among them, as JSON."""
    import json  # seldom needed, and not for nothing

    return json.dumps(value, default=str)


def some_text(value: object) -> str:
    """A text that is not empty; ValueError otherwise."""
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _directory(value: object) -> str:
    """A directory in a file must not depend on where the reader happens to be."""
    if not some_text(value).startswith(("/", "~")):
        raise ValueError
    return str(value)


def _truth(text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise ValueError
    return text.lower() in _YES


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def choice(*names: str) -> Kind:
    """One of these words."""

    def read(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind(read, read, f"one of {', '.join(names)}")


NAME = Kind(some_text, some_text, "a name")
PLACE = Kind(some_text, _directory, "the whole path of a directory (or one that begins with ~)")
BOOLEAN = Kind(_truth, _boolean, "true or false")

_ROWS = (
    Setting(
        "dir",
        PLACE,
        None,
        ("INTERCOM_DIR", "AGY_IPC_DIR"),
        channel=False,
        user=True,
        help="where channels live",
    ),
    Setting(
        "channel",
        NAME,
        "default",
        ("INTERCOM_CHANNEL",),
        channel=False,
        user=True,
        help="which channel",
    ),
    Setting(
        "session",
        NAME,
        None,
        ("INTERCOM_SESSION",),
        channel=False,
        user=False,
        help="as which session a command speaks, before the project's own",
    ),
    Setting(
        "transport",
        choice("auto", "spool"),
        "auto",
        ("INTERCOM_TRANSPORT",),
        channel=False,
        user=True,
        help="spool: use no socket, only the inbox files",
    ),
    Setting(
        "no_spawn",
        BOOLEAN,
        False,
        ("INTERCOM_NO_SPAWN",),
        channel=False,
        user=True,
        help="start no hub",
    ),
    Setting(
        "format",
        choice("auto", "json", "text"),
        "auto",
        ("INTERCOM_FORMAT",),
        channel=False,
        user=True,
        help="how results are printed; auto: as text on a terminal, else as JSON",
    ),
)

#: These settings, by their keys.
BASICS = {row.key: row for row in _ROWS}
