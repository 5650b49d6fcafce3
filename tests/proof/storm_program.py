"""How each of the proof's own programs begins: ``program.py '{"base": ..., "channel": ...}'``."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1


def begin() -> dict[str, Any]:
    """Return the job that this program was given; it ends with whoever gave it, however that ends.

    A storm whose driver was killed would go on for ever, and start hub after hub.
    """
    end_with_parent()
    os.umask(0o077)
    job: dict[str, Any] = json.loads(sys.argv[1])
    return job


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def fork(work: Callable[[], None], *, outlives: bool = False) -> int:
    """Do something in a process of its own; its id.

    :param outlives: whether it goes on when its parent is killed.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if not outlives:
                end_with_parent()
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid
