r"""What the files of an inbox look like: cutting lines, reading and writing the small files.

Pure and of the standard library only. Rules: ``docs/protocol``, "Files of a channel".
The inbox is lines ended by ``\n``; a last line without one is not yet a message. The
offset file says how far its session has read, the meta file holds the inbox's
generation and, while the inbox is being emptied, a mark by which a crash is mended. What
is to stay of an inbox lies aside meanwhile, in a file that the mark describes.
"""

from __future__ import annotations

from intercom import plainjson as json
from intercom.names import file_name
from intercom.records import Position, Record, Span
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire.envelope import MAX_LINE

if TYPE_CHECKING:
    from typing import Any

#: Version of the meta file's format.
FORMAT = 1
#: How many bytes of an inbox's beginning a mark remembers.
HEAD = 4096
#: Offsets and generations beyond what any file or history reaches are damage.
LARGEST = 1 << 53

_KINDS = {
    "inbox": ".ndjson",
    "offset": ".json",
    "meta": ".json",
    "token": "",
    "trail": ".ndjson",
    "bell": ".json",
}


class Damaged(ValueError):
    """An offset or meta file holds something unusable; the text says what."""


class Stored(NamedTuple):
    """What an offset file says.

    :ivar generation: None where a program that knows no generations wrote it.
    :ivar foreign_at: when such a program last wrote it (epoch seconds), if a newer write
        of ours has replaced that; None if none did.
    """

    offset: int
    generation: int | None
    session: str | None = None
    foreign_at: float | None = None


class Keep(NamedTuple):
    """What lies aside while its inbox is emptied: so many bytes, and their hash."""

    size: int
    digest: str


class Mark(NamedTuple):
    """An inbox is being emptied: what it was before, and the generation it will have.

    :ivar keep: what is to stay of it, None for nothing.
    :ivar forward: the inbox lacks something that lies aside, so that this emptying is
        finished even if it had not begun.
    """

    to: int
    size: int
    head: str
    keep: Keep | None = None
    forward: bool = False


class Meta(NamedTuple):
    """What a meta file says."""

    generation: int
    session: str | None = None
    mark: Mark | None = None


# -- lines ------------------------------------------------------------------------------------


def unfit(line: bytes) -> str:
    """Why a line is no message, or an empty string.

    The parser decides, since a line that was torn behind its payload looks whole from both
    ends, and braces in its strings miscount: 3 us for a line of 300 bytes.
    """
    if len(line) > MAX_LINE:
        return f"longer than {MAX_LINE} bytes"
    if not line.strip():
        return "blank"
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "not valid UTF-8"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return "not a JSON object"
    return "" if isinstance(found, dict) else "not a JSON object"


class Cutter:
    """Cuts an inbox's bytes, fed piece by piece, into records with their places in the file.

    Every byte is looked at once; of a line that is too long only its length is kept.

    :ivar records: the messages found so far.
    :ivar damaged: the complete lines that are none.
    :ivar next: the byte behind the last complete line.
    """

    def __init__(self, base: int) -> None:
        self.records: list[Record] = []
        self.damaged: list[Span] = []
        self.next = base
        self._begun: list[bytes] = []
        self._length = 0

    @property
    def pending(self) -> int:
        """Bytes behind :attr:`next` that are not yet a line."""
        return self._length

    def feed(self, data: bytes) -> None:
        """Take the bytes that follow those taken before."""
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._length:
            self._keep(lines[0])
            lines[0] = b"".join(self._begun)
            if self._length > len(lines[0]):  # too long, and thrown away while it came
                self._skip(self._length)
                del lines[0]
            self._begun, self._length = [], 0
        start = self.next
        for line in lines:
            end = start + len(line) + 1
            reason = unfit(line)
            if reason:
                self.damaged.append(Span(start, end, reason))
            else:
                self.records.append(Record(start, end, line))
            start = end
        self.next = start
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > MAX_LINE:
            self._begun.clear()
        elif part:
            self._begun.append(part)

    def _skip(self, length: int) -> None:
        end = self.next + length + 1
        self.damaged.append(Span(self.next, end, f"longer than {MAX_LINE} bytes"))
        self.next = end


# -- the offset file --------------------------------------------------------------------------


def parse_offset(data: bytes) -> Stored:
    """Read an offset file's content, ours or an original program's.

    :raise Damaged: not an object, or a field is no number that an inbox could have.
    """
    fields = _object(data)
    generation = fields.get("generation")
    return Stored(
        offset=_whole(fields.get("offset"), "offset", 0),
        generation=None if generation is None else _whole(generation, "generation", 1),
        session=_text(fields.get("session")),
        foreign_at=_time(fields.get("foreign_at")),
    )


def dump_offset(
    position: Position, session: str, now: float, foreign_at: float | None = None
) -> bytes:
    """Write an offset file's content; ``now`` is in epoch seconds."""
    fields: dict[str, Any] = {
        "offset": position.offset,
        "updated_at": now,
        "generation": position.generation,
        "session": session,
    }
    if foreign_at is not None:
        fields["foreign_at"] = foreign_at
    return json.dumps(fields).encode()


# -- the meta file ----------------------------------------------------------------------------


def parse_meta(data: bytes) -> Meta:
    """Read a meta file's content.

    :raise Damaged: not an object, or without a usable generation or with half a mark.
    """
    fields = _object(data)
    generation = _whole(fields.get("generation"), "generation", 1)
    emptying = fields.get("emptying")
    mark = None
    if emptying is not None:
        if not isinstance(emptying, dict) or not isinstance(emptying.get("head"), str):
            raise Damaged("the mark of an emptying is not whole")
        mark = Mark(
            to=_whole(emptying.get("to"), "generation", 1),
            size=_whole(emptying.get("size"), "size", 0),
            head=emptying["head"],
            keep=_keep(emptying.get("keep")),
            forward=emptying.get("forward") is True,
        )
    return Meta(generation, _text(fields.get("session")), mark)


def dump_meta(session: str, generation: int, mark: Mark | None = None) -> bytes:
    """Write a meta file's content."""
    fields: dict[str, Any] = {"format": FORMAT, "session": session, "generation": generation}
    if mark is not None:
        emptying = {"from": generation, "to": mark.to, "size": mark.size, "head": mark.head}
        if mark.keep is not None:
            emptying |= {"keep": mark.keep._asdict(), "forward": mark.forward}
        fields["emptying"] = emptying
    return json.dumps(fields).encode()


def _keep(fields: object) -> Keep | None:
    if fields is None:
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("digest"), str):
        raise Damaged("the mark of an emptying is not whole")
    return Keep(_whole(fields.get("size"), "size", 0), fields["digest"])


def head_of(beginning: bytes) -> str:
    """What a mark remembers of an inbox's first bytes."""
    import hashlib  # seldom needed, and not for nothing

    return hashlib.blake2b(beginning, digest_size=16).hexdigest()


def _object(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise Damaged("it is not JSON") from error
    if not isinstance(fields, dict):
        raise Damaged("it is not a JSON object")
    return fields


def _whole(value: object, name: str, least: int) -> int:
    if type(value) is not int or not least <= value <= LARGEST:
        raise Damaged(f"its {name} is no number that an inbox can have")
    return value


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _time(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    assert isinstance(value, int | float)
    return float(value) if abs(value) < LARGEST else None


# -- names ------------------------------------------------------------------------------------


def split_name(name: str) -> tuple[str, str] | None:
    """Take a file's name apart: what it is to a session, and the session's encoded id.

    :return: (``inbox`` | ``offset`` | ``meta`` | ``token`` | ``trail`` | ``bell``, encoded id),
        None for other files.
    """
    kind, found, rest = name.partition("_")
    ending = _KINDS.get(kind)
    if not found or ending is None or not rest.endswith(ending):
        return None
    encoded = rest[: len(rest) - len(ending)]
    return (kind, encoded) if encoded else None


def _unescaped(part: bytes) -> bytes:
    """What stands behind a percent sign, its two digits as their byte; what is none stays."""
    try:
        return bytes.fromhex(part[:2].decode()) + part[2:]
    except ValueError:
        return b"%" + part


def decode_name(encoded: str) -> str | None:
    """The session id that a file name stands for, None where only a hash of it is left."""
    try:
        head, *rest = encoded.encode().split(b"%")
        data = head + b"".join(_unescaped(part) for part in rest)
        session = data.decode()
        return session if file_name(session) == encoded else None
    except UnicodeError:
        return None
