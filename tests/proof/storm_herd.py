"""Many clients released at once, as a program: ``storm_herd.py '{"clients": 100, ...}'``.

One process loads what a client needs, then forks the clients. Each waits at a barrier,
and then sends one message as ``intercom send`` does. What each saw and how long it took is in
the histories; every hub process that was started leaves an event there, too.
With ``sweep`` one more process removes what the dead left, again and again, meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from storm_history import History
from storm_program import begin, fork

from intercom.client import cleaning
from intercom.client.outbox import compose, deliver
from intercom.client.tokens import own_token
from intercom.paths import ChannelPaths

#: Seconds in which a client must be served; how long that took is told.
PATIENCE = 50.0


def client(paths: ChannelPaths, history: History, session: str, to: str, barrier: int) -> None:
    """Send one message once the barrier falls."""
    note_spawns(history)
    token = own_token(paths, session)
    letter = compose(paths, session, to, {"text": f"from {session}"}, message_id=f"{session}-1")
    os.read(barrier, 1)  # returns when the other end is closed
    history.sending(letter.message_id, [to], letter.line)
    begun = time.monotonic()
    outcome = deliver(paths, letter, token, patience=PATIENCE)
    stored = outcome.status == "sent" and outcome.state == "stored"
    history.sent(letter.message_id, "ok" if stored else "info")
    history.tell("ok", "served", seconds=time.monotonic() - begun, status=outcome.status)


def note_spawns(history: History) -> None:
    """Have every process that this one starts leave an event."""
    popen: Any = subprocess.Popen

    def noted(command: list[str], *args: Any, **kwargs: Any) -> Any:
        history.tell("ok", "spawn", command=command)
        return popen(command, *args, **kwargs)

    subprocess.Popen = noted  # type: ignore[misc,assignment]


def sweeper(paths: ChannelPaths, history: History, barrier: int) -> None:
    """Do what ``intercom cleanup --stale`` does, until this process is killed."""
    os.read(barrier, 1)
    while True:
        cleaning.sweep(paths)
        history.tell("ok", "sweep")
        time.sleep(0.002)


def main(job: dict[str, Any]) -> int:
    """Run the herd; how many clients failed."""
    paths = ChannelPaths(job["base"], job["channel"])
    barrier, gate = os.pipe()

    def begin(name: str, work: Callable[..., None], *args: Any) -> int:
        def alone() -> None:
            os.close(gate)
            work(paths, History(job["history"], name), *args, barrier)

        return fork(alone)

    sweeps = [begin("sweeper", sweeper)] if job.get("sweep") else []
    names = [f"herd-{number}" for number in range(job["clients"])]
    clients = [begin(name, client, name, job["to"]) for name in names]
    time.sleep(0.5)  # all of them stand at the barrier by now, or come a little late
    os.close(gate)
    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in clients)
    for pid in sweeps:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return failed


if __name__ == "__main__":
    sys.exit(main(begin()))
