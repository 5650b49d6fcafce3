"""Listings: whole ones, streamed ones, and what becomes of one that is too large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intercom.wire.pi.fields import Record, is_label
from intercom.wire.pi.forms import as_sender, subagents_row
from intercom.wire.pi.frames import MAX_FRAME, FrameTooLarge, dump_frame
from intercom.wire.pi.printing import js_size
from intercom.wire.pi.replies import sessions, sessions_part
from intercom.wire.pi.sessions import INTERCOM_REQUIRED

#: As long as any request id that a client draws.
_REQUEST_ID = "0" * 36


def snapshot(request_id: str, infos: Iterable[Record], stream: bool) -> list[bytes]:
    """The frames of a listing for a pi-subagents client; of equal ids the first is shown.

    Who has an id that such a client would not take is left out.

    Streamed, each session comes with its topics and subscriptions, one a frame, and an empty
    frame ends it; receipts are put in before that last one. At once, it has neither.

    :raise FrameTooLarge: ``text`` goes into ``sessions.error``, and nothing else is sent.
    """
    rows: dict[str, Record] = {}
    for info in infos:
        if is_label(info["id"]):
            rows.setdefault(info["id"], subagents_row(info))
    if not stream:
        return [dump_frame(sessions(request_id, map(as_sender, rows.values())))]
    frames = [
        dump_frame(sessions_part(request_id, [part], more=True))
        for row in rows.values()
        for part in _parts(row)
    ]
    return [*frames, dump_frame(sessions_part(request_id, (), more=False))]


def _parts(row: Record) -> Iterable[Record]:
    """A session as rows of a stream: first who it is, then what it adds, bit by bit."""
    lists = [name for name in ("topics", "subscriptions") if name in row]
    yield {**as_sender(row), **{name: [] for name in lists}}
    for name in lists:
        for item in row[name]:
            yield {"id": row["id"], name: [item]}


def check_fits(info: Record) -> None:
    """Refuse a session of a pi-subagents client that no listing could show.

    :raise FrameTooLarge: its connection is closed, and nothing of the change is kept.
    """
    snapshot(_REQUEST_ID, [info], stream=True)


def intercom_listing(request_id: str, rows: Sequence[Record]) -> bytes:
    """The one frame of a listing for a pi-intercom client, always with whole rows.

    Too much: the largest rows lose their optional fields, then the largest go, until it fits.

    :param rows: as ``forms.intercom_row`` makes them.
    :raise FrameTooLarge: the request id alone is too long to be said back.
    """
    try:
        return dump_frame(sessions(request_id, rows))
    except FrameTooLarge:
        room = MAX_FRAME - js_size(sessions(request_id, ()))
        return dump_frame(sessions(request_id, _fitting(rows, room)))


def _fitting(rows: Sequence[Record], room: int) -> list[Record]:
    """As much of these rows as has so many bytes, with the commas between them."""
    left = dict(enumerate(rows))
    sizes = {at: js_size(row) + 1 for at, row in left.items()}
    excess = sum(sizes.values()) - (room + 1)
    bare = {at: _bare(row) for at, row in left.items()}
    saved = {at: sizes[at] - js_size(row) - 1 for at, row in bare.items()}
    for at in sorted(left, key=saved.__getitem__, reverse=True):
        if excess <= 0:
            break
        left[at] = bare[at]
        sizes[at] -= saved[at]
        excess -= saved[at]
    for at in sorted(left, key=sizes.__getitem__, reverse=True):
        if excess <= 0:
            break
        del left[at]
        excess -= sizes[at]
    return list(left.values())


def _bare(row: Record) -> Record:
    """A row with nothing but what must be there."""
    return {name: row[name] for name in row if name == "id" or name in INTERCOM_REQUIRED}
