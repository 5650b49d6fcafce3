"""Another user who exchanges the place of a channel as fast as he can, while it is used."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections import Counter
from typing import Any

import pytest
from storm_place import record

SWAPS = int(os.environ.get("INTERCOM_SWAPS", "10000"))

#: In a directory like /tmp: a link to the victim's files, a directory open to all, nothing.
EXCHANGE = """
import os, sys
base, treasure, swaps = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.umask(0)
print("ready", flush=True)
done = 0
while done < swaps:
    try:
        os.symlink(treasure, base)
        os.unlink(base)
        os.mkdir(base, 0o777)
        os.rmdir(base)
        done += 1
    except OSError:
        pass
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root")
@pytest.mark.usefixtures("protection")
def test_a_place_that_is_exchanged_all_the_time_is_used_safely_or_not_at_all(
    attacker: Any, user: Any, treasure: Any
) -> None:
    """Whatever is seen between two looks: nothing outside is read, made or changed."""
    treasure.watch()
    racing = attacker.start(EXCHANGE, user.paths.base, treasure.folder, SWAPS)
    ends: Counter[int] = Counter()
    while racing.poll() is None:
        for words in (("send", "--to", "bob", "--text", "secret"), ("poll",), ("init",)):
            ended = user.run(*words)
            ends[ended.status] += 1
            assert ended.status in (0, 73, 77), ended.err
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(user.paths.base)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == user.uid:
                shutil.rmtree(user.paths.base)  # so that there is something to exchange again
    treasure.assert_untouched()
    record(f"exchanged places, uid {user.uid}", {str(code): times for code, times in ends.items()})
    assert sum(ends.values()) > 10
