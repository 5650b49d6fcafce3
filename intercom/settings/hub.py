"""How one hub is to be run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intercom.errors import BadConfig
from intercom.paths import ChannelPaths
from intercom.private import silent
from intercom.records import LEVELS
from intercom.settings.files import ChannelFile
from intercom.settings.limits import DEFAULTS, Limits
from intercom.settings.lookup import DEFAULT, Settings
from intercom.settings.table import LIMITS, NEVER, NONE
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from intercom.private import Warn


@dataclass(frozen=True)
class HubSettings:
    """What a hub is told by whoever starts it. Making one touches nothing.

    :ivar base: directory that holds the channels (``intercom.paths.base_directory``).
    :ivar channel: name of the channel, as typed; it is sanitised where it is used.
    :ivar durability: how safe a message is before its sender is told "stored", one of
        :data:`intercom.records.LEVELS`; ``disk`` survives the power.
    :ivar idle_exit: seconds without any connection after which the hub ends, None for
        never: a hub that a command spawned ends, one started by hand stays.
    :ivar listen: further places to listen at, as Twisted endpoint strings
        (``tcp:7654:interface=127.0.0.1``).
    :ivar pi: be found where the pi clients look for their broker.
    :ivar leaves_unused: end as their own broker does, a few seconds after the last one left.
    :ivar poller: read connections by a poller where the system has one; see
        :mod:`intercom.hub.poller`.
    :ivar kept: members for the channel's ``channel.json``, written once this hub leads,
        so that its successors are like it.
    :ivar limits: how much of everything it allows.

    :raise BadConfig: an unknown level, or a time that is none.
    """

    base: str
    channel: str = "default"
    durability: str = "disk"
    idle_exit: float | None = None
    listen: tuple[str, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = DEFAULTS
    pi: bool = False
    leaves_unused: bool = False
    poller: bool = True

    def __post_init__(self) -> None:
        if self.durability not in LEVELS:
            raise BadConfig(
                f"no durability level is called {self.durability!r}",
                remedy=f"choose one of {', '.join(LEVELS)}: intercom hub start --durability LEVEL",
            )
        if self.idle_exit is not None and not 0 < self.idle_exit < float("inf"):
            raise BadConfig(
                f"a hub cannot end after {self.idle_exit:g} idle seconds",
                remedy="give a number above 0, or never: intercom hub start --idle-exit SECONDS",
            )

    @property
    def paths(self) -> ChannelPaths:
        """Where the channel lives."""
        return ChannelPaths(self.base, self.channel)

    @property
    def needs_key(self) -> bool:
        """Whether it listens where file permissions do not say who may connect."""
        return any(not place.startswith("unix:") for place in self.listen)


def not_applied(values: Mapping[str, Any], intercom: str) -> str:
    """What to say to whoever gave options for a hub, where one runs already.

    :param values: of the settings that were given, by key; those that are None were not.
    :param intercom: the beginning of a command for the channel, as a shell takes it.
    """
    commands = []
    for key, value in values.items():
        if value is not None:
            words = [str(one) for one in (value if isinstance(value, list | tuple) else [value])]
            commands.append(f"{intercom} config {key} {shlex.join(words)}")
    return (
        "the hub that runs goes on as it is, and the options were not applied; to have them: "
        + "; ".join([*commands, f"{intercom} hub restart"])
    )


def hub_settings(
    paths: ChannelPaths,
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    on_demand: bool = False,
    warn: Warn = silent,
) -> HubSettings:
    """What the hub of a channel is to be like: what its starter says, and what the files say.

    Reads, and writes nothing: what the options say is kept once the hub leads.

    :param options: values of settings; those that are None were not given.
    :param on_demand: a command starts it because it needs one; so it ends when idle, though
        nobody said so. Started by hand, it stays.
    :param warn: told of what the files hold that this version does not know.
    :raise BadConfig: a file cannot be read, or a value not be used; or a newer version has
        written the channel's files.
    :raise UnsafePlace: a file is not ours alone.
    """
    settings = Settings(environ, options, ChannelFile(paths))
    for text in settings.unknown():
        warn(text)
    idle = settings.find("idle_exit")
    stays = idle.value == NEVER or (idle.source == DEFAULT and not on_demand)
    leaves_unused = settings.value("pi") and idle.source == DEFAULT
    return HubSettings(
        base=paths.base,
        channel=paths.name,
        durability=settings.value("durability"),
        idle_exit=None if stays or leaves_unused else idle.value,
        listen=tuple(settings.value("listen")),
        kept={key: value for key, value in options.items() if value is not None},
        limits=_limits(settings),
        pi=settings.value("pi"),
        leaves_unused=leaves_unused,
        poller=settings.value("poller"),
    )


def _limits(settings: Settings) -> Limits:
    """The bounds that hold; a size that is ``none`` and a time that is ``never`` have none."""
    found = {row.key: settings.value(row.key) for row in LIMITS}
    never = {
        "register_within",
        "line_within",
        "pi_within",
        "pi_mailbox_age",
    }  # of these a number is wanted all the same
    for key, value in found.items():
        if value in (NEVER, NONE):
            found[key] = float("inf") if key in never else None
    return Limits(**found)
