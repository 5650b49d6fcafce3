"""The socket file of a channel, with real sockets."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from intercom.errors import BadConfig, CannotCreate, UnsafePlace
from intercom.hub.transports import (
    BACKLOG,
    ChannelPort,
    channel_key,
    extra_endpoints,
    peer_credentials,
)
from intercom.messages import Credentials
from intercom.paths import MAX_SOCKET_PATH, ChannelPaths


class Greeter(Protocol):
    """Says who it is and keeps note of whom it met."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.factory.met.append(peer_credentials(self.transport))
        self.transport.write(self.factory.word)


class Greeters(Factory):
    protocol = Greeter
    noisy = False

    def __init__(self, word: bytes = b"hello") -> None:
        self.word = word
        self.met: list[Credentials] = []


class Listener(Protocol):
    def __init__(self) -> None:
        self.heard: Deferred[bytes] = Deferred()
        self.gone: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        if not self.heard.called:
            self.heard.callback(data)

    def connectionLost(self, reason: Any = None) -> None:
        self.gone.callback(None)


async def call(path: str) -> Listener:
    endpoint = UNIXClientEndpoint(reactor, path, timeout=60)
    return await endpoint.connect(Factory.forProtocol(Listener))


async def word_at(path: str) -> bytes:
    listener = await call(path)
    word = await listener.heard
    listener.transport.loseConnection()
    await listener.gone
    return word


async def turn() -> None:
    await deferLater(reactor, 0.01)


def place(channel_dir: Path, name: str = "door") -> ChannelPaths:
    paths = ChannelPaths(str(channel_dir), name)
    paths.prepare()
    return paths


def files(paths: ChannelPaths) -> list[str]:
    return sorted(os.listdir(paths.directory))


@pytest_twisted.async_yield_fixture
async def doors() -> AsyncIterator[Any]:
    made: list[ChannelPort] = []

    def make(paths: ChannelPaths, word: bytes = b"hello", open_it: bool = True) -> ChannelPort:
        door = ChannelPort(reactor, paths, Greeters(word))
        made.append(door)
        door.bind()
        if open_it:
            door.publish()
        return door

    yield make
    for door in made:
        await door.stop()


async def test_a_bound_socket_is_found_by_nobody_until_it_is_published(
    channel_dir: Path, doors: Any
) -> None:
    paths = place(channel_dir)
    door = doors(paths, open_it=False)
    assert not os.path.exists(paths.socket)
    assert not door.is_ours()
    door.publish()
    assert door.is_ours()
    assert files(paths) == ["hub.sock"]
    assert await word_at(paths.socket) == b"hello"


async def test_the_socket_is_ours_alone(channel_dir: Path, doors: Any) -> None:
    paths = place(channel_dir)
    before = os.umask(0)
    try:
        doors(paths)
    finally:
        os.umask(before)
    found = os.lstat(paths.socket)
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o700


async def test_whoever_finds_the_socket_file_of_a_new_hub_is_answered(
    channel_dir: Path, doors: Any
) -> None:
    """At no moment is there a file that refuses: the original client would delete it."""
    paths = place(channel_dir)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(paths.socket)
    dead.close()
    door = doors(paths, open_it=False)
    with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
        early.connect(paths.socket)
    door.publish()
    with socket.socket(socket.AF_UNIX) as late:
        late.connect(paths.socket)


async def test_a_storm_of_connections_is_not_turned_away(channel_dir: Path, doors: Any) -> None:
    """Between two turns of the reactor the kernel keeps them all."""
    paths = place(channel_dir)
    door = doors(paths)
    storm = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    try:
        for each in storm:
            each.setblocking(False)
            each.connect(paths.socket)  # a full backlog would raise BlockingIOError
        while len(door._factory.met) < len(storm):
            await turn()
    finally:
        for each in storm:
            each.close()
    assert BACKLOG == 4096


async def test_stopping_removes_the_socket_and_nothing_is_left(
    channel_dir: Path, doors: Any
) -> None:
    paths = place(channel_dir)
    door = doors(paths)
    await door.stop()
    await door.stop()
    assert files(paths) == []
    assert not door.is_ours()


async def test_stopping_before_publishing_leaves_nothing_either(
    channel_dir: Path, doors: Any
) -> None:
    paths = place(channel_dir)
    await doors(paths, open_it=False).stop()
    assert files(paths) == []


async def test_a_successors_socket_is_not_removed(channel_dir: Path, doors: Any) -> None:
    paths = place(channel_dir)
    old = doors(paths, b"old")
    doors(paths, b"new")
    assert not old.is_ours()
    await old.stop()
    assert files(paths) == ["hub.sock"]
    assert await word_at(paths.socket) == b"new"


@pytest.mark.parametrize("how", ["unlinked", "a dead socket", "renamed"])
async def test_a_socket_file_that_is_gone_or_foreign_is_put_back(
    channel_dir: Path, doors: Any, how: str
) -> None:
    paths = place(channel_dir)
    door = doors(paths)
    kept = await call(paths.socket)
    await kept.heard
    os.rename(paths.socket, paths.file("elsewhere"))
    if how == "a dead socket":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(paths.socket)
    if how != "renamed":
        os.unlink(paths.file("elsewhere"))
    assert not door.is_ours()
    await door.rebind()
    assert door.is_ours()
    assert await word_at(paths.socket) == b"hello"
    assert not kept.gone.called, "who was connected stays connected"
    kept.transport.loseConnection()
    await kept.gone
    assert files(paths) == (["elsewhere", "hub.sock"] if how == "renamed" else ["hub.sock"])


async def test_a_socket_that_cannot_be_put_back_leaves_all_as_it_was(
    channel_dir: Path, doors: Any
) -> None:
    paths = place(channel_dir)
    door = doors(paths)
    os.unlink(paths.socket)
    Path(paths.socket).write_text("precious")
    with pytest.raises(CannotCreate):
        door.rebind()
    assert Path(paths.socket).read_text() == "precious"
    os.unlink(paths.socket)
    await door.rebind()
    assert await word_at(paths.socket) == b"hello"
    assert files(paths) == ["hub.sock"]


async def test_stopping_when_the_whole_directory_is_gone_is_fine(
    channel_dir: Path, doors: Any
) -> None:
    paths = place(channel_dir)
    door = doors(paths)
    port = door._bound.port
    os.unlink(paths.socket)
    os.rmdir(paths.directory)
    await door.stop()
    port.socket.close()  # in a hub the process ends here


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_what_is_no_socket_is_not_replaced(channel_dir: Path, doors: Any, kind: str) -> None:
    paths = place(channel_dir)
    if kind == "file":
        Path(paths.socket).write_text("precious")
    elif kind == "directory":
        os.mkdir(paths.socket)
    else:
        os.symlink(channel_dir / "nowhere", paths.socket)
    with pytest.raises(CannotCreate, match=kind):
        doors(paths)
    assert os.path.lexists(paths.socket)
    assert files(paths) == ["hub.sock"]


async def test_an_occupant_that_comes_between_binding_and_publishing_is_not_replaced(
    channel_dir: Path, doors: Any
) -> None:
    paths = place(channel_dir)
    door = doors(paths, open_it=False)
    Path(paths.socket).write_text("precious")
    with pytest.raises(CannotCreate):
        door.publish()
    assert Path(paths.socket).read_text() == "precious"


async def test_a_directory_where_nothing_can_be_made_is_named(channel_dir: Path) -> None:
    paths = ChannelPaths(str(channel_dir), "absent")
    with pytest.raises(CannotCreate, match=r"absent/hub\.sock: No such file or directory"):
        ChannelPort(reactor, paths, Greeters()).bind()


async def test_what_killed_hubs_left_is_cleared_away(channel_dir: Path, doors: Any) -> None:
    """Half-born sockets go; files of others that look alike stay."""
    paths = place(channel_dir)
    for name in (".hub0000", ".hubffff", ".hub-of-somebody"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(paths.file(name))
    Path(paths.file(".hub1111")).write_text("no socket")
    doors(paths)
    assert files(paths) == [".hub-of-somebody", ".hub1111", "hub.sock"]


async def test_a_place_at_the_very_limit_of_socket_paths_works(
    channel_dir: Path, doors: Any
) -> None:
    """The temporary name may not be longer than the name."""
    room = MAX_SOCKET_PATH - len(str(channel_dir)) - len("//hub.sock")
    paths = place(channel_dir, "n" * room)
    assert len(paths.socket) == MAX_SOCKET_PATH
    assert paths.socket == paths.file("hub.sock")
    door = doors(paths, open_it=False)
    assert len(door._bound.name) <= MAX_SOCKET_PATH
    door.publish()
    assert await word_at(paths.socket) == b"hello"


async def test_a_socket_that_had_to_move_is_pointed_to(channel_dir: Path, doors: Any) -> None:
    deep = channel_dir / ("d" * 60)
    one, two = place(deep, "n" * 40), place(deep, "m" * 40)
    door = doors(one, b"one")
    doors(two, b"two")
    assert files(one) == ["hub.sock.at"]
    assert Path(one.socket_pointer).read_text() == one.socket + "\n"
    assert await word_at(one.socket) == b"one"
    assert await word_at(two.socket) == b"two", "channels that share the place do not meet"
    await door.stop()
    assert files(one) == []
    assert not os.path.exists(one.socket)
    assert await word_at(two.socket) == b"two"


async def test_a_pointer_that_points_nowhere_any_more_is_removed(
    channel_dir: Path, doors: Any
) -> None:
    paths = place(channel_dir)
    Path(paths.socket_pointer).write_text("/tmp/old\n")
    doors(paths)
    assert files(paths) == ["hub.sock"]


async def test_the_kernel_says_who_connected(channel_dir: Path, doors: Any) -> None:
    paths = place(channel_dir)
    door = doors(paths)
    await word_at(paths.socket)
    assert door._factory.met == [Credentials(uid=os.geteuid(), pid=os.getpid())]


async def test_over_tcp_the_kernel_says_nothing() -> None:
    (endpoint,) = extra_endpoints(reactor, ["tcp:0:interface=127.0.0.1"])
    greeters = Greeters()
    port = await endpoint.listen(greeters)
    with socket.create_connection(("127.0.0.1", port.getHost().port)):
        while not greeters.met:
            await turn()
    await port.stopListening()
    await turn()
    assert greeters.met == [Credentials()]


def test_a_transport_without_a_socket_has_no_credentials() -> None:
    assert peer_credentials(object()) == Credentials()


def test_each_endpoint_string_is_understood_in_order() -> None:
    strings = ["tcp:7654:interface=127.0.0.1", "unix:/run/x.sock"]
    assert len(extra_endpoints(reactor, strings)) == 2


@pytest.mark.parametrize("bad", ["", "nonsense", "tcp", "tcp:x", "tcp:1:bogus=2", "ssl:443"])
def test_an_endpoint_string_that_means_nothing_is_named(bad: str) -> None:
    with pytest.raises(BadConfig) as caught:
        extra_endpoints(reactor, ["tcp:0", bad])
    assert repr(bad) in caught.value.text
    assert "tcp:" in caught.value.remedy


def test_the_key_is_made_once_and_kept(channel_dir: Path) -> None:
    paths = place(channel_dir)
    key = channel_key(paths)
    assert len(key) >= 32
    assert channel_key(paths) == key
    assert stat.S_IMODE(os.stat(paths.key).st_mode) == 0o600
    assert channel_key(place(channel_dir, "other")) != key


def test_a_key_that_was_put_there_is_used(channel_dir: Path) -> None:
    paths = place(channel_dir)
    Path(paths.key).write_text("  my own key\n")
    assert channel_key(paths) == "my own key"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"a\nb", b"k" * 3000])
def test_a_key_file_that_holds_no_key_is_refused(channel_dir: Path, content: bytes) -> None:
    """An empty key would let everybody in."""
    paths = place(channel_dir)
    Path(paths.key).write_bytes(content)
    with pytest.raises(BadConfig, match="key"):
        channel_key(paths)


def test_a_linked_key_is_refused(channel_dir: Path) -> None:
    paths = place(channel_dir)
    os.symlink("/etc/hostname", paths.key)
    with pytest.raises(UnsafePlace):
        channel_key(paths)
