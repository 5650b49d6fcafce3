"""What holds, and who says so."""

from __future__ import annotations

from intercom.paths import ChannelPaths, base_directory
from intercom.plain import cache
from intercom.settings.basics import BASICS
from intercom.settings.files import ChannelFile, UserFile, unknown_keys, user_path
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: Who may say what holds, the strongest first.
OPTION, ENVIRONMENT, CHANNEL = "option", "environment", "channel"
USER, DEFAULT = "user", "default"


class Found(NamedTuple):
    """The value of a setting.

    :ivar source: :data:`OPTION` ... :data:`DEFAULT`.
    :ivar where: the option, the variable, or the path of the file; empty for a default.
    """

    value: Any
    source: str
    where: str


@cache
def _user_values(path: str) -> Mapping[str, Any]:
    """What the user's file says; read once, so that a process keeps what it was started with."""
    return UserFile(path).read()


class Settings:
    """Every setting as it holds for one process: option, environment, channel, user, default.

    A value is checked when it is asked for, so that one which is not needed does no harm.

    :param options: values given on the command line; those that are None were not.
    :param channel: the channel's own file; without it only users and defaults are asked.
    :raise BadConfig: that file cannot be read; see :meth:`ChannelFile.read`.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        options: Mapping[str, Any] | None = None,
        channel: ChannelFile | None = None,
    ) -> None:
        self._environ = environ
        given = (options or {}).items()
        self._options = {key: value for key, value in given if value not in (None, "")}
        self._channel = {} if channel is None else channel.read()
        self._channel_path = "" if channel is None else channel.path
        self._user_path = user_path(environ)

    def on(self, channel: ChannelFile) -> Settings:
        """The same, and what the channel's own file says; raises as that is read."""
        return Settings(self._environ, self._options, channel)

    def find(self, key: str) -> Found:
        """What holds for one setting.

        :raise BadConfig: whoever says so says nothing that can be used; or the user's file,
            where it has to be asked, cannot be read.
        :raise UnsafePlace: others could have written the user's file.
        """
        row = BASICS.get(key)
        if row is None:
            from intercom.settings.table import SETTINGS  # not what every command asks for

            row = SETTINGS[key]
        if key in self._options:
            return Found(self._options[key], OPTION, f"--{key.replace('_', '-')}")
        for name in row.variables:
            text = self._environ.get(name)
            if text:
                return Found(row.of_text(text, name), ENVIRONMENT, name)
        if row.channel and key in self._channel:
            where = self._channel_path
            return Found(row.of_file(self._channel[key], where), CHANNEL, where)
        if row.user and key in self._users:
            return Found(row.of_file(self._users[key], self._user_path), USER, self._user_path)
        return Found(row.default, DEFAULT, "")

    def value(self, key: str) -> Any:
        """What holds for one setting, whoever says so; raises as :meth:`find`."""
        return self.find(key).value

    def unknown(self) -> list[str]:
        """What to say, once, of members of the files that mean nothing to this version."""
        return unknown_keys(self._users, self._user_path, channel=False) + unknown_keys(
            self._channel, self._channel_path, channel=True
        )

    def paths(self) -> ChannelPaths:
        """The channel that is meant. Touches nothing."""
        return ChannelPaths(base_directory(self.value("dir")), self.value("channel"))

    @property
    def _users(self) -> Mapping[str, Any]:
        return _user_values(self._user_path)
