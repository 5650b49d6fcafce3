"""A writer that dies in the middle of a line: ``storm_torn.py '{"session": ..., "cut": ...}'``.

It holds the inbox's lock while it writes, as every writer does, and dies with it. With
``cut`` 0 the line lacks only its line feed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import Any

from storm_history import History
from storm_program import begin

from intercom.paths import ChannelPaths
from intercom.wire.envelope import format_timestamp, make

#: Bytes that the line lacks, where nothing else is said: no message can come of it.
CUT = 40


def torn_line(sender: str, to: str, message_id: str) -> bytes:
    """The line that is not to be finished."""
    return make(
        type="chat",
        message_id=message_id,
        from_session=sender,
        to_session=to,
        channel="storm",
        payload={"text": "these words were never finished, " * 20},
        timestamp=format_timestamp(time.time()),
        reply_to=None,
    )


def leave_torn_line(place: Any, session: str, cut: int = CUT) -> str:
    """Have such a writer die at an inbox of a storm; the id of its message."""
    message_id = f"torn-{time.monotonic_ns()}"
    job = {"session": session, "id": message_id, "cut": cut}
    writer = place.program("storm_torn.py", **job)
    assert writer.wait(60) == -signal.SIGKILL
    return message_id


def _write_and_die(job: dict[str, Any]) -> None:
    path = ChannelPaths(job["base"], job["channel"]).inbox(job["session"])
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    line = torn_line("mayfly", job["session"], job["id"])
    if not job["cut"]:  # somebody may end it, and then it is a message
        History(job["history"], job["id"]).sending(job["id"], [job["session"]], line)
    os.write(fd, b"\n"[: _torn_already(path)] + line[: len(line) - job["cut"]])
    os.kill(os.getpid(), signal.SIGKILL)


def _torn_already(path: str) -> int:
    """Whether another has died here before us: ours would not be a line of its own."""
    with open(path, "rb") as file:
        content = file.read()
    return bool(content) and not content.endswith(b"\n")


if __name__ == "__main__":
    _write_and_die(begin())
