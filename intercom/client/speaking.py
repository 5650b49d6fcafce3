"""Who a command speaks for, and the name that somebody has said. Standard library only.

Where nobody has, the project's map decides: :mod:`intercom.client.identity`.
"""

from __future__ import annotations

from intercom.client import claims
from intercom.client.claims import Hold
from intercom.names import check_session
from intercom.paths import ChannelPaths
from intercom.spool.calls import FileCalls
from intercom.spool.known import is_known
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from intercom.client.roster import Persona


class Identity(NamedTuple):
    """Who a command speaks for.

    :ivar source: what decided: ``--session``, ``INTERCOM_SESSION``, or the caller's kind.
    :ivar caller: its key, None where the name was given.
    :ivar sticky: whether it had this name before.
    :ivar hold: says to others that the name is in use; close it when that is over.
    :ivar former: the name that it had until now, if that was another.
    """

    session: str
    source: str
    caller: str | None
    sticky: bool
    hold: Hold
    former: str | None = None

    @property
    def persona(self) -> Persona:
        """Whose name it is."""
        from intercom.client.roster import persona  # for people only

        return persona(self.session)


def given(option: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The name that somebody has said, and where; None if nobody has.

    :raise ProtocolError: ``BAD_SESSION_ID``.
    """
    if option is not None:
        return check_session(option), "--session"
    chosen = environ.get("INTERCOM_SESSION")
    return (check_session(chosen), "INTERCOM_SESSION") if chosen else None


def as_given(
    paths: ChannelPaths, option: str | None, environ: Mapping[str, str]
) -> Identity | None:
    """Speak as the session that somebody has said; None if nobody has.

    :raise ProtocolError: ``BAD_SESSION_ID``.
    """
    said = given(option, environ)
    if said is None:
        return None
    session, source = said
    sticky = is_known(paths, FileCalls(), session)
    return Identity(session, source, None, sticky, claims.hold(paths, session))
