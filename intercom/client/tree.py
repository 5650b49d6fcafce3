"""Which working tree a command is in. Standard library only, and no program is asked."""

from __future__ import annotations

import os

from intercom.plain import suppress
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def project_directory(option: str | None, cwd: str) -> str:
    """The working tree that a command works for: ``option``, or what is around ``cwd``.

    A tree is what holds ``.git``, as a directory or (a worktree, a submodule) a file; the
    innermost counts. Where there is none, the innermost directory in which a name was
    taken before, else ``cwd`` itself.
    """
    if option:
        return os.path.realpath(os.path.join(cwd, os.path.expanduser(option)))
    start = os.path.realpath(cwd)
    for here in _upwards(start):
        if _is_repository(os.path.join(here, ".git")):
            return here
    for here in _upwards(start):
        with suppress(OSError):
            found = os.lstat(os.path.join(here, ".intercom", "session.json"))
            if found.st_uid == os.geteuid():  # a shared directory may hold another's
                return here
    return start


def _is_repository(path: str) -> bool:
    """Whether a ``.git`` is that of a repository, as git itself tells: by its ``HEAD``.

    Sandboxes put an empty directory of this name into what may be written, ``/tmp`` for
    example, as long as a command runs: whoever worked below it would be another then.
    """
    return os.path.isfile(path) or os.path.lexists(os.path.join(path, "HEAD"))


def _upwards(start: str) -> Iterator[str]:
    here = start
    while True:
        yield here
        above = os.path.dirname(here)
        if above == here:
            return
        here = above


def root_inode(project: str) -> tuple[int, int]:
    """Device and number of a tree's root, which stay when it is renamed and differ for a copy."""
    try:
        found = os.stat(project)
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)
