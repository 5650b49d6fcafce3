"""One hub behind several socket paths."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread

from intercom.errors import CannotCreate
from intercom.pi import places, sockets
from intercom.pi.sockets import Bound

reactor: Any = _reactor
ALL = ("a/broker.sock", "b/broker.sock")
PROBED = "probed.sock"
DEADLINE_S = 60.0


class Ground:
    """Two private directories and a shared one, and what is bound in them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.required = tuple(str(base / path) for path in ALL)
        self.probed = str(base / PROBED)
        self.bound: list[Bound] = []
        for path in self.required:
            os.mkdir(os.path.dirname(path), 0o700)

    def serve(self) -> sockets.Served:
        served = sockets.serve(self.required, [self.probed])
        self.bound += served.bound
        return served

    def taken(self, path: str) -> Bound:
        self.bound.append(sockets.taken(path))
        return self.bound[-1]

    def names(self) -> list[str]:
        """All that is no directory."""
        return sorted(str(x.relative_to(self.base)) for x in self.base.rglob("*") if not x.is_dir())

    def end(self) -> None:
        for bound in self.bound:
            os.close(bound.fd)


@pytest.fixture
def ground(shared: Path) -> Iterator[Ground]:
    """In a short directory, since paths have a limit."""
    made = Ground(shared)
    yield made
    made.end()


def reaches(path: str, bound: Bound) -> bool:
    """Whether who connects to a path is accepted by that socket."""
    with socket.socket(socket.AF_UNIX) as client, socket.socket(fileno=os.dup(bound.fd)) as server:
        client.connect(path)
        try:
            server.setblocking(False)
            accepted, _ = server.accept()
        except BlockingIOError:
            return False
        accepted.close()
        return True


def dead(path: str) -> None:
    """Leave a socket as a killed process does."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)


def descriptors() -> int:
    """How many are open; always none where the system does not tell."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.mark.parametrize("umask", [0, 0o777])
def test_each_path_is_a_private_socket_that_answers(ground: Ground, umask: int) -> None:
    before = os.umask(umask)
    try:
        served = ground.serve()
    finally:
        os.umask(before)
    assert served.refused == ()
    assert [bound.path for bound in served.bound] == [*ground.required, ground.probed]
    for bound in served.bound:
        assert stat.S_ISSOCK(os.lstat(bound.path).st_mode)
        assert mode(bound.path) == 0o600
        assert os.lstat(bound.path).st_nlink == 1
        assert sockets.stands(bound)
        assert reaches(bound.path, bound)
        assert not os.get_inheritable(bound.fd)
        assert not os.get_blocking(bound.fd)
    assert ground.names() == sorted([*ALL, PROBED])


def test_at_exit_nothing_is_left(ground: Ground) -> None:
    served = ground.serve()
    ground.bound.clear()
    for bound in served.bound:
        sockets.withdraw(bound)
        assert not sockets.stands(bound)
        sockets.close(bound)
    assert ground.names() == []
    assert len(ground.serve().bound) == 3


def test_a_dead_socket_is_replaced(ground: Ground) -> None:
    for path in (*ground.required, ground.probed):
        dead(path)
    served = ground.serve()
    assert all(reaches(bound.path, bound) for bound in served.bound)


def test_one_that_answers_is_left_in_peace(ground: Ground) -> None:
    """Even if nobody accepts, for its process may be stopped."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(ground.required[1])
        other.listen(0)
        for _ in range(3):  # the third finds its backlog full
            with pytest.raises(CannotCreate, match="another broker answers") as caught:
                ground.serve()
            assert "fuser -v" in caught.value.remedy
    assert ground.names() == ["b/broker.sock"]


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_not_replaced(ground: Ground, kind: str) -> None:
    path = Path(ground.required[1])
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("elsewhere")
    with pytest.raises(CannotCreate, match=f"a {kind} stands there"):
        ground.serve()
    assert os.path.lexists(path)
    assert not os.path.lexists(ground.required[0])


def test_an_optional_place_may_be_refused(ground: Ground) -> None:
    Path(ground.probed).write_text("precious")
    served = ground.serve()
    ((path, why),) = served.refused
    assert path == ground.probed
    assert "a file stands there" in why
    assert len(served.bound) == 2


def test_an_optional_place_on_another_file_system_is_refused(ground: Ground) -> None:
    foreign = "/dev/shm/intercom-pi-test.sock"
    if os.stat("/dev/shm").st_dev == os.stat(ground.base).st_dev:
        pytest.skip("there is only one file system")
    served = sockets.serve(ground.required, [foreign])
    ground.bound += served.bound
    assert served.refused == (
        (foreign, f"cannot listen at {foreign}: no directory of ours is on its file system"),
    )


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("step", ["listen", "rename"])
def test_a_failure_leaves_nothing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, step: str, which: int
) -> None:
    """No name and no descriptor, at whichever place it comes."""
    done: list[object] = []

    def failing(real: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object) -> object:
            done.append(words)
            if len(done) == which + 1:
                raise OSError(5, "Input/output error")
            return real(*words)

        return call

    if step == "listen":
        monkeypatch.setattr(socket.socket, "listen", failing(socket.socket.listen))
    else:
        monkeypatch.setattr(os, "rename", failing(os.rename))
    before = descriptors()
    with pytest.raises(CannotCreate, match="Input/output error"):
        ground.serve()
    assert (ground.names(), descriptors()) == ([], before)


def test_what_a_killed_hub_left_is_removed(ground: Ground) -> None:
    workshop = ground.base / "a"
    dead(str(workshop / ".hub-0a1b"))
    (workshop / ".hub-ffff").touch()
    (workshop / ".hub-notes").touch()
    (ground.base / ".hub-0000").touch()
    ground.serve()
    assert [name for name in ground.names() if ".hub-" in name] == [".hub-0000", "a/.hub-notes"]


def test_the_longest_path_can_be_bound(ground: Ground) -> None:
    inside = f"{ground.base}/{'d' * 20}/"
    os.mkdir(inside, 0o700)
    fits = inside + "x" * (places.LONGEST_PATH - len(inside))
    assert sockets.stands(ground.taken(fits))
    with pytest.raises(CannotCreate, match="at most"):
        ground.taken(f"{fits}x")


def test_a_directory_that_is_not_there_is_an_error(ground: Ground) -> None:
    with pytest.raises(CannotCreate, match="No such file"):
        ground.taken(str(ground.base / "nowhere" / "broker.sock"))


# -- afterwards -------------------------------------------------------------------------------


def test_what_stands_is_not_renewed(ground: Ground) -> None:
    for bound in ground.serve().bound:
        assert sockets.renew(bound) is None


@pytest.mark.parametrize("how", ["deleted", "dead", "directory"])
def test_a_socket_that_went_is_made_again(ground: Ground, how: str) -> None:
    served = ground.serve()
    old = served.bound[1]
    os.unlink(old.path)
    if how == "dead":
        dead(old.path)
    elif how == "directory":
        os.rmdir(os.path.dirname(old.path))
    assert not sockets.stands(old)
    fresh = sockets.renew(old)
    assert fresh is not None
    ground.bound.append(fresh)
    assert reaches(old.path, fresh)
    assert sockets.renew(fresh) is None
    sockets.withdraw(old)
    assert sockets.stands(fresh)


def test_a_probed_socket_is_made_again_even_without_its_workshop(ground: Ground) -> None:
    old = ground.serve().bound[2]
    os.unlink(old.path)
    os.unlink(ground.required[0])
    os.rmdir(os.path.dirname(ground.required[0]))
    fresh = sockets.renew(old)
    assert fresh is not None
    ground.bound.append(fresh)
    assert reaches(ground.probed, fresh)
    assert mode(os.path.dirname(ground.required[0])) == 0o700


def test_another_who_took_our_place_keeps_it(ground: Ground) -> None:
    ours = ground.serve().bound[0]
    os.unlink(ours.path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(ours.path)
        other.listen(9)
        assert sockets.renew(ours) is None
        sockets.withdraw(ours)
        assert os.path.lexists(ours.path)
    os.unlink(ours.path)
    Path(ours.path).touch()
    with pytest.raises(CannotCreate, match="a file stands"):
        sockets.renew(ours)


# -- Twisted ----------------------------------------------------------------------------------


class Hello(Protocol):
    """Says hello."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(b"hello")
        self.transport.loseConnection()


def heard(path: str) -> bytes:
    """What is said to who connects, up to the end."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(DEADLINE_S)
        client.connect(path)
        with client.makefile("rb") as said:
            return said.read()


@pytest_twisted.ensureDeferred
async def test_twisted_can_adopt_a_socket_and_let_go_of_it(ground: Ground) -> None:
    served = ground.serve()
    ground.bound.clear()
    factory = Factory.forProtocol(Hello)
    ports = [
        sockets.hand_over(bound, lambda fd: reactor.adoptStreamPort(fd, socket.AF_UNIX, factory))
        for bound in served.bound
    ]
    for bound in served.bound:
        assert mode(bound.path) == 0o600
        assert sockets.stands(bound)
        assert await deferToThread(heard, bound.path) == b"hello"
    assert ground.names() == sorted([*ALL, PROBED])
    for bound, port in zip(served.bound, ports, strict=True):
        sockets.withdraw(bound)
        sockets.stand_in(bound)
        await port.stopListening()
    assert ground.names() == []


def test_the_backlog_is_set_again(ground: Ground) -> None:
    """What adopts it may have cut it to nothing, and opened the name to everybody."""
    bound = sockets.taken(ground.required[0])
    held: list[socket.socket] = []

    def adopt(fd: int) -> str:
        held.append(socket.socket(fileno=os.dup(fd)))
        held[0].listen(0)
        os.chmod(bound.name, 0o666)
        return "port"

    assert sockets.hand_over(bound, adopt) == "port"
    assert ground.names() == ["a/broker.sock"]
    assert mode(bound.path) == 0o600
    for _ in range(20):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].setblocking(False)
        held[-1].connect(bound.path)
    for one in held:
        one.close()


def test_a_failed_adoption_leaves_no_descriptor(ground: Ground) -> None:
    bound = sockets.taken(ground.required[0])

    def adopt(fd: int) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        sockets.hand_over(bound, adopt)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(bound.fd)
    assert not sockets.answers(bound.path)
    sockets.withdraw(bound)
    assert ground.names() == []


# -- two users --------------------------------------------------------------------------------


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")


@needs_root
def test_a_socket_of_another_user_is_neither_asked_nor_replaced(ground: Ground) -> None:
    for path in (ground.required[0], ground.probed):
        dead(path)
        os.chown(path, 65001, 65001)
    with pytest.raises(CannotCreate, match="belongs to uid 65001"):
        ground.serve()
    os.unlink(ground.required[0])
    served = ground.serve()
    assert len(served.bound) == 2
    assert "belongs to uid 65001" in served.refused[0][1]
    assert os.lstat(ground.probed).st_uid == 65001


@needs_root
def test_an_ordinary_user_is_kept_out_and_has_places_of_his_own(ground: Ground) -> None:
    """He cannot connect to root's sockets, nor does root's in the shared place stop him."""
    ground.serve()
    program = (
        "import os, socket, sys\n"
        "from intercom.pi import sockets\n"
        "base, probed, *required = sys.argv[1:]\n"
        "os.setgid(65002); os.setuid(65002); os.chdir('/')\n"
        "for path in (probed, *required):\n"
        "    try: socket.socket(socket.AF_UNIX).connect(path)\n"
        "    except PermissionError: print('kept out')\n"
        "os.mkdir(base + '/his', 0o700)\n"
        "served = sockets.serve([base + '/his/broker.sock'], [probed])\n"
        "print(len(served.bound), served.refused[0][1])\n"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [str(ground.base), ground.probed, *ground.required]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *words],
        capture_output=True,
        timeout=60,
        env=environ,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    refused = f"1 cannot listen at {ground.probed}: the socket there belongs to uid 0\n"
    assert done.stdout == "kept out\n" * 3 + refused
