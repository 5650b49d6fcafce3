"""Lines that are no chats: what a client asks of the hub itself. Rules: ``docs/protocol``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from intercom.messages import (
    FEATURES,
    Ack,
    Auth,
    Cancel,
    Heartbeat,
    ListSessions,
    Message,
    Register,
    TakePlaces,
    Unknown,
    Unregister,
)
from intercom.names import check_session
from intercom.records import Position
from intercom.wire.envelope import MAX_ID, bad_field

_MAX_POSITION = 2**63 - 1
_P = TypeVar("_P")


class _RegisterPayload(msgspec.Struct, gc=False):
    features: list[str] | None = None
    role: Literal["session", "sender"] | None = None
    token: str | None = None
    takeover: bool | None = None


class _AckPayload(msgspec.Struct, gc=False):
    offset: Annotated[int, msgspec.Meta(ge=0, le=_MAX_POSITION)]
    generation: Annotated[int, msgspec.Meta(ge=1, le=_MAX_POSITION)]
    state: Literal["shown", "read"] | None = None


class _CancelPayload(msgspec.Struct, gc=False):
    message_id: str
    to: str | None = None


class _PlacesPayload(msgspec.Struct, gc=False):
    plan: dict[str, Any] | None


class _AuthPayload(msgspec.Struct, gc=False):
    key: str


_register_payload = msgspec.json.Decoder(_RegisterPayload)
_ack_payload = msgspec.json.Decoder(_AckPayload)
_auth_payload = msgspec.json.Decoder(_AuthPayload)
_cancel_payload = msgspec.json.Decoder(_CancelPayload)
_places_payload = msgspec.json.Decoder(_PlacesPayload)


def control(type_: str, message_id: str | None, speaker: str | None, payload: bytes) -> Message:
    """What a line of some type means that is no chat.

    :param payload: the payload's bytes, empty where the line has none.
    :raise ProtocolError: a field is missing or of another type than it must be.
    """
    make = _CONTROLS.get(type_)
    if make is None:
        return Unknown(type_, message_id, speaker)
    return make(message_id, speaker, payload or b"{}")


def _register(message_id: str | None, speaker: str | None, payload: bytes) -> Register:
    said = _payload(payload, _register_payload)
    asked = dict.fromkeys(said.features or ())
    return Register(
        id=message_id,
        speaker=speaker,
        features=tuple(feature for feature in asked if feature in FEATURES),
        role=said.role or "session",
        token=said.token,
        takeover=said.takeover or False,
    )


def _ack(message_id: str | None, speaker: str | None, payload: bytes) -> Ack:
    said = _payload(payload, _ack_payload)
    position = Position(said.generation, said.offset)
    return Ack(position, said.state or "read", message_id, speaker)


def _auth(message_id: str | None, speaker: str | None, payload: bytes) -> Auth:
    return Auth(_payload(payload, _auth_payload).key, message_id, speaker)


def _cancel(message_id: str | None, speaker: str | None, payload: bytes) -> Cancel:
    said = _payload(payload, _cancel_payload)
    to = None if said.to is None else check_session(said.to)
    return Cancel(said.message_id, to, message_id, speaker)


def _places(message_id: str | None, speaker: str | None, payload: bytes) -> TakePlaces:
    return TakePlaces(_payload(payload, _places_payload).plan, message_id, speaker)


def _bare(
    kind: type[Heartbeat | ListSessions | Unregister],
    message_id: str | None,
    speaker: str | None,
    payload: bytes,
) -> Message:
    return kind(message_id, speaker)


_CONTROLS: dict[str, Callable[[str | None, str | None, bytes], Message]] = {
    "register": _register,
    "announce": _register,
    "ack": _ack,
    "auth": _auth,
    "cancel": _cancel,
    "places": _places,
    "heartbeat": partial(_bare, Heartbeat),
    "list": partial(_bare, ListSessions),
    "unregister": partial(_bare, Unregister),
}


def _payload(payload: bytes, decoder: msgspec.json.Decoder[_P]) -> _P:
    """Read a payload's fields; unknown ones are ignored.

    :raise ProtocolError: ``BAD_ENVELOPE``, naming the field.
    """
    try:
        return decoder.decode(payload)
    except msgspec.ValidationError as error:
        said, at, place = str(error).rpartition(" - at `$")
        if at:
            place = "payload" + place.rstrip("`")
            raise bad_field(place, f"{place}: {said[:MAX_ID]}") from None
        place = "payload." + str(error).split("`")[1]
        raise bad_field(place, f"{place} is missing") from None
