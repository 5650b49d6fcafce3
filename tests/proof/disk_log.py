"""A disk that writes down what was done to it, and the states in which a crash may leave it.

Every call is really made, in a directory of the test's own, and logged. From the log any
moment can be taken, and for it every state that a power cut could leave: what was synced is
there; of what was not, any write may be missing or cut at any byte, whatever was written
behind it, and any name that was made, moved or taken away may be as it was before. A kill
leaves just one state for each moment, but the last write may be cut.

The model is harsher than ext4 is: a rename needs a sync of its directory, and nothing that
was done later proves anything of what was done earlier.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from intercom.spool.calls import FileCalls

#: The calls that change a disk, and that :class:`LoggingCalls` therefore writes down.
CHANGING = {
    "open",
    "write",
    "pwrite",
    "allocate",
    "ftruncate",
    "sync",
    "rename",
    "unlink",
    "sync_directory",
}
#: Those that change nothing, or are made of others.
HARMLESS = {
    "close",
    "lock",
    "unlock",
    "fstat",
    "stat",
    "pread",
    "small",
    "space",
    "open_directory",
    "sync_names",
    "replace",
}


class Write(NamedTuple):
    """Bytes of a file were written at a place."""

    file: int
    offset: int
    data: bytes


class Resize(NamedTuple):
    """A file was cut, or (``longer``) given room."""

    file: int
    length: int
    longer: bool = False


class Name(NamedTuple):
    """Names of the directory came to mean other files, None for nothing."""

    changes: tuple[tuple[str, int | None], ...]


class Sync(NamedTuple):
    """A file's content is safe; with None, the directory's names are."""

    file: int | None


class Told(NamedTuple):
    """Something was said, or begun, of which a promise is to hold from here on."""

    what: str
    about: Any


Op = Write | Resize | Name | Sync | Told


class LoggingCalls(FileCalls):
    """The file system, and what was done to it.

    :ivar log: operations in their order; files are numbered in the order of their making.
    """

    def __init__(self) -> None:
        self.log: list[Op] = []
        self._files: dict[tuple[int, int], int] = {}
        self._next = 0

    def tell(self, what: str, about: Any = None) -> None:
        """Note that something was said at this moment."""
        self.log.append(Told(what, about))

    def open(self, path: str, flags: int) -> int:
        new = not os.path.lexists(path)
        fd = super().open(path, flags)
        found = os.fstat(fd)
        identity = (found.st_dev, found.st_ino)
        if new:
            self._next += 1
            self._files[identity] = self._next
            self.log.append(Name(((os.path.basename(path), self._next),)))
        assert identity in self._files, f"{path} was made behind the log's back"
        if flags & os.O_TRUNC:
            self.log.append(Resize(self._files[identity], 0))
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        done = super().write(fd, data)
        offset = os.lseek(fd, 0, os.SEEK_CUR) - done
        self.log.append(Write(self._number(fd), offset, bytes(data[:done])))
        return done

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        done = os.pwrite(fd, data, offset)
        self.log.append(Write(self._number(fd), offset, bytes(data[:done])))
        return done

    def allocate(self, fd: int, length: int) -> None:
        if os.fstat(fd).st_size < length:
            os.ftruncate(fd, length)
            self.log.append(Resize(self._number(fd), length, longer=True))

    def ftruncate(self, fd: int, length: int) -> None:
        super().ftruncate(fd, length)
        self.log.append(Resize(self._number(fd), length))

    def sync(self, fd: int) -> None:
        self.log.append(Sync(self._number(fd)))

    def rename(self, source: str, target: str) -> None:
        number = self._at(source)
        super().rename(source, target)
        gone, came = os.path.basename(source), os.path.basename(target)
        self.log.append(Name(((gone, None), (came, number))))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.log.append(Name(((os.path.basename(path), None),)))

    def sync_directory(self, fd: int) -> None:
        self.log.append(Sync(None))

    def begin(self, directory: str) -> None:
        """Take note of files that are there already, and safe."""
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            self.adopt(entry.path)
            self.log.append(Sync(self._at(entry.path)))
        self.log.append(Sync(None))

    def adopt(self, path: str) -> None:
        """Take note of a file that another program made, or changed without this door.

        It counts as written now, and as synced by nobody.
        """
        found = os.lstat(path)
        identity = (found.st_dev, found.st_ino)
        number = self._files.get(identity)
        if number is None:
            self._next += 1
            number = self._files[identity] = self._next
            self.log.append(Name(((os.path.basename(path), number),)))
        self.log.append(Resize(number, 0))
        with open(path, "rb") as file:
            self.log.append(Write(number, 0, file.read()))

    def _number(self, fd: int) -> int:
        found = os.fstat(fd)
        return self._files[found.st_dev, found.st_ino]

    def _at(self, path: str) -> int:
        found = os.lstat(path)
        return self._files[found.st_dev, found.st_ino]


# -- states -----------------------------------------------------------------------------------


#: What a directory holds after a crash: each file's content by its name.
State = dict[str, bytes]


class _Moment:
    """The log up to a crash, taken apart into what is safe and what is not."""

    def __init__(self, log: Sequence[Op], end: int) -> None:
        self.safe: dict[int, list[Write | Resize]] = {}
        self.loose: dict[int, list[Write | Resize]] = {}
        self.names: list[Name] = []
        self.loose_names: list[Name] = []
        for op in log[:end]:
            if isinstance(op, Name):
                self.loose_names.append(op)
            elif isinstance(op, Write | Resize):
                self.loose.setdefault(op.file, []).append(op)
            elif isinstance(op, Sync):
                if op.file is None:
                    self.names += self.loose_names
                    self.loose_names = []
                else:
                    self.safe.setdefault(op.file, []).extend(self.loose.pop(op.file, []))

    def state(self, kept: dict[int, list[Write | Resize]], names: Sequence[Name]) -> State:
        """The directory, with these of the loose operations and of the loose names."""
        directory: dict[str, int] = {}
        for name in [*self.names, *names]:
            for text, number in name.changes:
                if number is None:
                    directory.pop(text, None)
                else:
                    directory[text] = number
        return {
            text: _content([*self.safe.get(number, []), *kept.get(number, [])])
            for text, number in directory.items()
        }


def _content(ops: Sequence[Write | Resize]) -> bytes:
    data = bytearray()
    for op in ops:
        if isinstance(op, Resize):
            if not op.longer:
                del data[op.length :]
            data.extend(bytes(max(0, op.length - len(data))))
        else:
            data.extend(bytes(max(0, op.offset - len(data))))  # what was to be before it is not
            data[op.offset : op.offset + len(op.data)] = op.data
    return bytes(data)


def after_a_kill(log: Sequence[Op], end: int, cuts: int) -> Iterator[State]:
    """What the death of every process may leave at this moment of the log.

    :param cuts: at how many places the last write is cut (from its end, and spread).
    """
    moment = _Moment(log, end)
    yield moment.state(moment.loose, moment.loose_names)
    last = log[end - 1]
    if isinstance(last, Write) and len(last.data) > 1:
        ops = moment.loose[last.file]
        for cut in _places(len(last.data), cuts):
            kept = {**moment.loose, last.file: [*ops[:-1], last._replace(data=last.data[:cut])]}
            yield moment.state(kept, moment.loose_names)


def after_a_power_cut(
    log: Sequence[Op], end: int, cuts: int, mixtures: int, chance: random.Random
) -> Iterator[State]:
    """What a loss of power may leave at this moment of the log: a choice of all that it may.

    Every choice for one file, with all others wholly there and wholly lost; every choice for
    the names, likewise; and mixtures of them.

    :param cuts: at how many places an unsynced write is cut.
    :param mixtures: how many mixtures, drawn by ``chance``.
    """
    moment = _Moment(log, end)
    everything, nothing = moment.loose, dict[int, list[Write | Resize]]()
    choices = {number: list(_choices(ops, cuts)) for number, ops in moment.loose.items()}
    names = list(_name_choices(moment.loose_names))
    for some in names:
        yield moment.state(everything, some)
        yield moment.state(nothing, some)
    for number, variants in choices.items():
        for variant in variants:
            yield moment.state({**everything, number: variant}, moment.loose_names)
            yield moment.state({number: variant}, moment.loose_names)
            yield moment.state({number: variant}, [])
    for _ in range(mixtures if choices or len(names) > 1 else 0):
        kept = {number: chance.choice(variants) for number, variants in choices.items()}
        yield moment.state(kept, chance.choice(names))


def _choices(ops: list[Write | Resize], cuts: int) -> Iterator[list[Write | Resize]]:
    """Of one file's unsynced operations: a beginning, the last of it cut; or all but one."""
    for count, op in enumerate(ops):
        yield ops[:count]
        if isinstance(op, Write):
            for cut in _places(len(op.data), cuts):
                yield [*ops[:count], op._replace(data=op.data[:cut])]
        if count < len(ops) - 1:
            yield [*ops[:count], *ops[count + 1 :]]


def _name_choices(names: list[Name]) -> Iterator[list[Name]]:
    """All of them, a beginning of them, all but one, or only one."""
    yield names
    for count in range(len(names)):
        yield names[:count]
        if count < len(names) - 1:
            yield [*names[:count], *names[count + 1 :]]
            yield [names[count + 1]]


def _places(length: int, cuts: int) -> list[int]:
    """Where to cut so many bytes: in the middles of their parts, and just before their end."""
    if cuts >= length:
        return list(range(1, length))
    spread = {length * (2 * n + 1) // (2 * cuts) for n in range(cuts)}
    return sorted(({length - 1} if cuts > 1 else set()) | spread - {0, length})


def lay_out(state: State, directory: str) -> None:
    """Make a directory what the state says, and nothing else."""
    for entry in os.scandir(directory):
        if entry.is_file(follow_symlinks=False) and entry.name not in state:
            os.unlink(entry.path)
    for name, data in state.items():
        fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
