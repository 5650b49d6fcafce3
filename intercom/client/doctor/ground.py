"""What the channel stands on: disk, file system, locks, sockets."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator

from intercom import mounts as mounted
from intercom.client.doctor.findings import NOTE, OK, PROBLEM, WARNING, Finding
from intercom.client.doctor.patient import Patient, World
from intercom.errors import IntercomError
from intercom.paths import file_level, forgetful
from intercom.settings.files import ChannelFile
from intercom.settings.lookup import DEFAULT, Settings

#: File systems on which what we rely on is not certain, and why.
_FAR = "other machines may use it, which have kernels of their own: locks, sockets and the order \
of writes are not certain there"
_OUTSIDE = "a program, or another machine, stands between it and the kernel: locks, sockets and \
syncs are as good as that is"
_KINDS = {
    "nfs nfs4 cifs smb3 smbfs afs ceph lustre gpfs beegfs ocfs2 gfs2 coda": _FAR,
    "fuse.sshfs fuse.glusterfs fuse.ceph fuse.s3fs fuse.rclone": _FAR,
    "9p virtiofs vboxsf fuse.vmhgfs-fuse prl_fs drvfs": _OUTSIDE,
    "vfat exfat msdos": "it knows no owners, no modes and no sockets",
}
UNCERTAIN = {kind: why for kinds, why in _KINDS.items() for kind in kinds.split()}
_DENIED = frozenset({errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT})
#: Seconds in which another process has tried a lock.
_CHILD_WITHIN = 10.0
_CHILD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], int(sys.argv[2]))
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(10)
sys.exit(11)
"""
_HELD, _TAKEN = 10, 11
_ELSEWHERE = "choose a place on a local disk: --dir DIR, or INTERCOM_DIR"


def durability(patient: Patient) -> Iterator[Finding]:
    """Whether what is called stored there survives the power."""
    directory, mounts = patient.paths.directory, patient.world.mounts
    if file_level(directory, mounts) == "disk":
        text = "what was stored at level disk survives a power cut"
        yield Finding(OK, "durability", text, file=directory)
        return
    asked, source = "disk", DEFAULT
    with contextlib.suppress(IntercomError):  # of which another check tells
        settings = Settings(patient.world.environ, channel=ChannelFile(patient.paths))
        asked, source, _ = settings.find("durability")
    yield Finding(
        WARNING if asked == "disk" and source != DEFAULT else NOTE,
        "not-durable",
        "messages there do not survive a restart of the machine: " + forgetful(directory, mounts),
        "choose a place on disk: --dir DIR, or for all your channels: "
        "intercom config --user dir ~/.local/state/intercom",
        directory,
    )


def file_system(patient: Patient) -> Iterator[Finding]:
    """Network file systems, and others on which locks may not be what they seem."""
    directory = patient.paths.directory
    point, kind = mount_of(directory, patient.world.mounts)
    why = UNCERTAIN.get(kind) or (_OUTSIDE if kind.startswith("fuse") else "")
    if why:
        text = f"the channel is on a file system of type {kind} ({point}): {why}"
        yield Finding(WARNING, "file-system", text, _ELSEWHERE, directory)


def mount_of(path: str, mounts: str) -> tuple[str, str]:
    """On which mount a path is, and of what type; empty where that is not known."""
    found = mounted.file_system(path, mounts)
    return ("", "") if found is None else (found.point, found.kind)


# -- locks ------------------------------------------------------------------------------------


def exclusion(patient: Patient) -> Iterator[Finding]:
    """Whether a lock keeps out another descriptor of this process, and another process."""
    directory = patient.paths.directory
    probe = _Probe(patient)
    try:
        with contextlib.closing(probe):
            verdict = probe.verdict()
    except OSError as error:
        text = f"the file system of the channel refuses locks: {error.strerror}"
        yield Finding(PROBLEM, "locks-refused", text, _ELSEWHERE, directory)
        return
    if verdict is None:
        text = "whether locks exclude others there could not be tried: one is held just now"
        yield Finding(NOTE, "locks-untried", text, "try again", directory)
    elif verdict:
        text = f"a lock in the channel does not keep out {verdict}: two hubs could lead it"
        yield Finding(PROBLEM, "locks-fail", text, _ELSEWHERE, directory)
    else:
        yield Finding(OK, "locks", "locks exclude other processes", file=directory)


class _Probe:
    """A file to be locked that has no name; where there is no such file, the base directory."""

    def __init__(self, patient: Patient) -> None:
        self._flock = patient.world.flock
        self._fds: list[int] = []
        self._flags = os.O_RDWR | os.O_CLOEXEC
        try:
            self._path = patient.paths.directory
            self._fds.append(os.open(self._path, self._flags | os.O_TMPFILE, 0o600))
            self._path = f"/proc/{os.getpid()}/fd/{self._fds[0]}"
            self._second()
        except (OSError, AttributeError):
            self.close()
            self._path = patient.paths.base
            self._flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._second()
            self._second()

    def _second(self) -> None:
        """Open it once more: a lock belongs to what one opening gave."""
        self._fds.append(os.open(self._path, self._flags))

    def close(self) -> None:
        """Let go of the file and of every lock on it."""
        while self._fds:
            os.close(self._fds.pop())

    def verdict(self) -> str | None:
        """Whom a lock does not keep out, empty for nobody; None if it could not be had.

        :raise OSError: locks are refused.
        """
        first, second = self._fds
        if not self._locked(first):
            return None
        if self._locked(second):
            return "the same process"
        # In the same way as any other program of ours would open the file.
        words = [sys.executable, "-I", "-S", "-c", _CHILD, self._path, str(self._flags)]
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CHILD_WITHIN,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""  # no other process can be had here
        return "another process" if done.returncode == _TAKEN else ""

    def _locked(self, fd: int) -> bool:
        try:
            self._flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# -- sockets ----------------------------------------------------------------------------------


def sandbox(world: World) -> Iterator[Finding]:
    """Whether a Unix socket can be made and connected: sandboxes of agents deny it."""
    try:
        _connect(world)
    except OSError as error:
        if error.errno not in _DENIED:
            text = f"Unix sockets could not be tried: {error.strerror}"
            yield Finding(NOTE, "sockets-untried", text)
            return
        yield Finding(
            WARNING,
            "sockets-denied",
            f"this process may not use Unix sockets ({error.strerror}), it probably runs in a "
            "sandbox: it works by files alone, and nothing is pushed to it",
            "allow Unix sockets for it; without them work: intercom send --to NAME, and "
            "intercom poll --wait SECONDS",
        )
        return
    yield Finding(OK, "sockets", "Unix sockets can be used")


def _connect(world: World) -> None:
    """Connect two sockets of ours, under a name that the kernel gives and no file system sees."""
    with world.open_socket() as server, world.open_socket() as client:
        if sys.platform == "linux":
            server.bind("")
            server.listen(1)
            client.settimeout(1.0)
            client.connect(server.getsockname())
