"""Finding a message that stands twice in an inbox, so that it is shown once. Pure.

A client of the original mesh whose hub died after storing its message appends it once
more. Nothing is ever taken out of an inbox for that; its readers leave the second out.
"""

from __future__ import annotations

from intercom import plainjson as json
from intercom.plain import suppress
from intercom.records import Record, Span
from intercom.wire.envelope import Identity, identify

#: How far before its beginning a read looks for the first of two, in bytes.
LOOK_BACK = 256 << 10

#: Enough of a line to show its id, if it begins with that as nearly all do.
_HEAD = 160
_COLON = (b":", b": ")
_ANYWHERE = rb'"id"\s*:\s*"((?:[^"\\]|\\.)*)"'

_REASON = "the same message stands before it"


def leave_out(before: bytes, records: list[Record]) -> tuple[list[Record], tuple[Span, ...]]:
    """Part from a read's messages those that stand earlier, too: same sender, id and content.

    Nearly always there are none, and that is found out without parsing.

    :param before: the lines right before the read, whole ones.
    :param records: the messages that were read.
    :return: the messages that stay, and the places of the others.
    """
    earlier = before.split(b"\n")
    ids = _ids(earlier) + _ids([record.line for record in records])
    if len(set(ids)) == len(ids):
        return records, ()
    from collections import Counter  # seldom needed, and not for nothing

    twice = {found for found, count in Counter(ids).items() if count > 1}
    known = {_identity(line, twice) for line in earlier}
    stay, repeated = [], []
    for record in records:
        found = _identity(record.line, twice)
        if found is not None and found in known:
            repeated.append(Span(record.start, record.end, _REASON))
        else:
            known.add(found)
            stay.append(record)
    return stay, tuple(repeated)


def _ids(lines: list[bytes]) -> list[bytes]:
    """The ids of messages; where one does not stand first, whatever may be one."""
    ids: list[bytes] = []
    for line in lines:
        head = line[:_HEAD].split(b'"', 4)
        if len(head) == 5 and head[1] == b"id" and head[2] in _COLON and b"\\" not in head[3]:
            ids.append(head[3])
        elif b'"id"' in line:
            import re  # seldom needed, and not for nothing

            ids += map(_plain, re.findall(_ANYWHERE, line))
    return ids


def _identity(line: bytes, twice: set[bytes]) -> Identity | None:
    """A closer look at a line in which an id stands that stands twice; None for others."""
    if twice.isdisjoint(_ids([line])):
        return None
    return identify(line)


def _plain(found: bytes) -> bytes:
    """An id as it would stand without escapes."""
    if b"\\" in found:
        with suppress(ValueError):
            text: str = json.loads(f'"{found.decode("utf-8", "replace")}"')
            return text.encode("utf-8", "surrogatepass")
    return found
