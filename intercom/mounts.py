"""Which file system a path lies on, and whether a channel may. Standard library only.

A channel is kept together by ``flock``, and ``stored`` is said because of a sync. Where
files come from another machine, its locks do not reach ours or are emulated, and a sync
ends at its cache: two hubs could lead one channel, and two writers cut each other's
lines. So such a place is refused before anything is made there.
"""

from __future__ import annotations

import os

from intercom.errors import UnsafePlace
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Where the kernel lists what is mounted for this process.
MOUNTS = "/proc/self/mountinfo"

_NETWORK = "is on another machine, and neither locks nor syncs can be trusted across the network"
_CLUSTER = "is shared by several machines, and locks may hold on one of them only"
_HOST = "belongs to the host of this virtual machine, whose processes do not see our locks"
_REMOTE = "is fetched from a service that knows no locks"

#: Types of file systems on which no channel is kept, and why. What is not named here is
#: judged by the locks themselves (:mod:`intercom.election.locks`): FUSE has many that are
#: local, and ``virtiofs`` is the root of whole virtual machines, within which locks hold.
UNFIT: dict[str, str] = {
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda"), _NETWORK),
    **dict.fromkeys(("fuse.sshfs", "fuse.curlftpfs", "fuse.gvfsd-fuse", "fuse.kio-fuse"), _NETWORK),
    **dict.fromkeys(("ceph", "fuse.ceph", "fuse.ceph-fuse", "lustre", "gpfs", "beegfs"), _CLUSTER),
    **dict.fromkeys(("fuse.glusterfs", "orangefs", "pvfs2", "ocfs2", "gfs2"), _CLUSTER),
    **dict.fromkeys(("fuse.juicefs", "fuse.mfs", "fuse.lizardfs"), _CLUSTER),
    **dict.fromkeys(("9p", "vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs"), _HOST),
    **dict.fromkeys(("drvfs", "fuse.grpcfuse", "fuse.osxfs"), _HOST),
    **dict.fromkeys(("fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.mount-s3"), _REMOTE),
}


class Mount(NamedTuple):
    """One line of the kernel's list.

    :ivar number: of the mount; ``parent``: of the one that it is mounted on.
    :ivar point: where it begins, ``kind``: its type, ``source``: what was mounted.
    """

    number: int
    parent: int
    point: str
    kind: str
    source: str


def parse_mounts(text: str) -> list[Mount]:
    """The mounts that a ``mountinfo`` file tells of; lines that are none are passed over."""
    found = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not dash or len(fields) < 6 or len(rest) < 2:
            continue
        if fields[0].isdecimal() and fields[1].isdecimal():
            number, parent = int(fields[0]), int(fields[1])
            found.append(Mount(number, parent, _plain(fields[4]), rest[0], _plain(rest[1])))
    return found


def _plain(text: str) -> str:
    """A word of the list without its octal escapes."""
    if "\\" not in text:
        return text
    import re  # seldom needed, and not for nothing

    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def mount_of(real: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that a path lies on, None where the list does not tell.

    It is gone down from the root as the kernel does: what another mount hides does not count.

    :param real: absolute and without links.
    """
    around = [mount for mount in mounts if _is_inside(real, mount.point)]
    numbers = {mount.number for mount in around}
    here: Mount | None = None
    below = [mount for mount in around if mount.parent not in numbers]
    while below:
        # Of two on one point that have one parent the later hides the earlier.
        here = min(reversed(below), key=lambda mount: len(mount.point))
        around.remove(here)
        below = [mount for mount in around if mount.parent == here.number]
    return here


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def file_system(path: str, mounts: str = MOUNTS) -> Mount | None:
    """The mount that ``path`` lies on, or would if it were made; None if it cannot be told.

    :param mounts: the kernel's list.
    """
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
        real = os.path.realpath(path)
    except OSError:
        return None  # no /proc, or a link that is gone again: nothing better is known
    return mount_of(real, parse_mounts(text))


def check_file_system(path: str, mounts: str = MOUNTS) -> None:
    """Refuse a place whose file system keeps no promise of a channel. Makes nothing.

    :param path: the channel's directory, which need not exist yet.
    :raise UnsafePlace: its type is one of :data:`UNFIT`; ``details`` has ``type``, ``mount``
        and ``source``.
    """
    found = file_system(path, mounts)
    reason = UNFIT.get(found.kind) if found is not None else None
    if found is None or reason is None:
        return
    raise UnsafePlace(
        f"{path} {reason} ({found.kind}, {found.source} mounted on {found.point})",
        remedy="keep the channel on a disk of this machine, with --dir or INTERCOM_DIR: "
        f"--dir /var/tmp/intercom-{os.geteuid()}",
        details={"type": found.kind, "mount": found.point, "source": found.source},
    )
