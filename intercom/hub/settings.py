"""How one hub is to be run."""

from __future__ import annotations

from dataclasses import dataclass

from intercom.errors import BadConfig
from intercom.paths import ChannelPaths
from intercom.records import LEVELS


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

    :raise BadConfig: an unknown level, or a time that is none.
    """

    base: str
    channel: str = "default"
    durability: str = "disk"
    idle_exit: float | None = None
    listen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.durability not in LEVELS:
            raise BadConfig(
                f"no durability level is called {self.durability!r}",
                remedy=f"choose one of {', '.join(LEVELS)}",
            )
        if self.idle_exit is not None and not 0 < self.idle_exit < float("inf"):
            raise BadConfig(
                f"a hub cannot end after {self.idle_exit:g} idle seconds",
                remedy="give a number above 0, or leave the option out for a hub that stays",
            )

    @property
    def paths(self) -> ChannelPaths:
        """Where the channel lives."""
        return ChannelPaths(self.base, self.channel)

    @property
    def needs_key(self) -> bool:
        """Whether it listens where file permissions do not say who may connect."""
        return any(not place.startswith("unix:") for place in self.listen)
