"""One storm's place: its channel, the processes that were started there, and their histories."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from checker import Report, check
from storm_history import History, load

from intercom.client.blocking import HubConnection
from intercom.client.spawn import ensure_hub
from intercom.client.tokens import own_token
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.files import Inbox
from intercom.spool.format import decode_name, parse_meta, parse_offset, split_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: For whatever must happen on a machine that is busy elsewhere.
PATIENCE = 60.0
#: Variables of whoever runs the tests that would change what is tested.
_PREFIXES = ("INTERCOM_", "AGY_")


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait for something that must become true, and return what it became."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: waited for {seconds:g} s in vain"
        time.sleep(0.01)
    return found


class Place:
    """A channel with a durability level, its processes and their histories.

    :param environ: for all processes that are started here, beside what they need.
    """

    def __init__(
        self, base: str, level: str, history: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.paths = ChannelPaths(base, "storm")
        self.paths.prepare()
        self.level = level
        self.history_directory = history
        history.mkdir()
        self.history = History(history, "driver")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_PREFIXES)}
        path = os.pathsep.join([str(HERE), str(ROOT)])
        self.environ = kept | {"PYTHONPATH": path, "INTERCOM_DURABILITY": level}
        self.environ |= dict(environ or {})
        self.hubs: set[int] = set()
        self._started: list[subprocess.Popen[bytes]] = []
        self._names = 0

    # -- processes ----------------------------------------------------------------------------

    def spawn(self, *command: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Start a program of this interpreter; it is ended with the storm."""
        place: dict[str, Any] = {"stdin": subprocess.DEVNULL, "cwd": self.paths.base}
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, *command], env=self.environ, **place | settings
        )
        self._started.append(process)
        return process

    def program(self, script: str, **job: Any) -> subprocess.Popen[bytes]:
        """Start one of the proof's own programs, which takes its job as one word."""
        place = {"base": self.paths.base, "channel": self.paths.name}
        given = place | {"history": str(self.history_directory)} | job
        return self.spawn(str(HERE / script), json.dumps(given))

    def client(self, role: str, session: str, **job: Any) -> subprocess.Popen[bytes]:
        """Start a client of ``storm_client.py`` under a name that is used once."""
        self._names += 1
        who = f"{session}.{self._names}"
        return self.program("storm_client.py", role=role, session=session, who=who, **job)

    def end(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Ask clients to finish what they do, and wait until they have."""
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            assert process.wait(PATIENCE) in (0, -signal.SIGTERM), process.args

    def kill(self, process: subprocess.Popen[bytes], what: str) -> None:
        """End a client by force, wherever it is."""
        process.kill()
        process.wait(PATIENCE)
        self.history.killed(what)

    def close(self) -> None:
        """End every process of this place that is left."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(PATIENCE)
        until(self._nobody_leads, "the end of the last hub")

    def _nobody_leads(self) -> bool:
        """Whether the channel's lock is free; its holder is ended, if it is of this place."""
        if not self.is_led():
            return True
        pid = self.hub_pid()
        if pid is not None and self.paths.base in command_line(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        return False

    # -- the hub ------------------------------------------------------------------------------

    def is_led(self) -> bool:
        """Whether somebody holds ``hub.lock``."""
        try:
            with open(self.paths.lock, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def hub_pid(self) -> int | None:
        """The pid that the hub wrote into its lock file."""
        try:
            return int(json.loads(Path(self.paths.lock).read_bytes())["pid"])
        except (OSError, ValueError, KeyError):
            return None

    def connection(self, session: str = "probe") -> HubConnection:
        """A registered connection to the hub, which is started if there is none."""
        hub = HubConnection(ensure_hub(self.paths, environ=self.environ), self.paths, session)
        try:
            token = own_token(self.paths, session)
            hub.register(features=("receipts",), role="sender", token=token)
        except BaseException:
            hub.close()
            raise
        return hub

    def serving(self) -> int:
        """Wait until a hub answers a registration, and return its pid."""

        def registered() -> int | None:
            try:
                with self.connection() as hub:
                    return hub.pid
            except IntercomError:
                return None

        pid: int = until(registered, "a hub that answers")
        self.hubs.add(pid)
        return pid

    def kill_hub(self, pid: int) -> None:
        """End a hub by force, and wait until its lock is let go by it."""
        assert self.paths.base in command_line(pid), f"{pid} is no hub of ours"
        os.kill(pid, signal.SIGKILL)
        self.history.killed("hub")
        until(lambda: state_of(pid) in ("", "Z"), f"the end of hub {pid}")

    # -- what it came to ----------------------------------------------------------------------

    def enrol(self, *sessions: str) -> None:
        """Make sessions known, as their first command would."""
        for session in sessions:
            with Inbox(self.paths, session) as inbox:
                inbox.enrol()

    def observe(self, *sessions: str) -> None:
        """Write down what the inbox files hold now."""
        for session in sessions:
            with contextlib.suppress(FileNotFoundError):
                content = Path(self.paths.inbox(session)).read_bytes()
                self.history.observed(session, self._generation(session), content)

    def _observe_position(self, session: str) -> None:
        """Write down the stored position: whoever moved it there has committed it."""
        since = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            stored = parse_offset(Path(self.paths.offset(session)).read_bytes())
            position = Position(stored.generation or 1, stored.offset)
            self.history.committed(session, position, since)

    def _generation(self, session: str) -> int:
        try:
            return parse_meta(Path(self.paths.meta(session)).read_bytes()).generation
        except FileNotFoundError:
            return 1

    def inboxes(self) -> list[str]:
        """The sessions that have an inbox here."""
        names = [split_name(name) for name in os.listdir(self.paths.directory)]
        sessions = [decode_name(one[1]) for one in names if one is not None and one[0] == "inbox"]
        return sorted(session for session in sessions if session is not None)

    def judge(self) -> Report:
        """Observe every inbox a last time, and let the checker judge all histories."""
        for session in self.inboxes():
            self.observe(session)
            self._observe_position(session)
        return check(load(self.history_directory))

    def require(self, report: Report, **least: int) -> None:
        """Fail on any anomaly, and on a run that proves nothing."""
        complaints = report.vacuous(**least)
        if report.anomalies or complaints:
            raise AssertionError("\n".join([str(report), *complaints]))


def command_line(pid: int) -> str:
    """What a process was started with, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def state_of(pid: int) -> str:
    """A process's state letter, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def record(name: str, figures: Mapping[str, Any]) -> None:
    """Add a run's figures to the JSON file that INTERCOM_PROOF_REPORT names, if it does.

    With them stand those of all runs so far, together: sums, and the worst of what is measured.
    """
    path = os.environ.get("INTERCOM_PROOF_REPORT")
    if not path:
        return
    file = Path(path)
    runs = json.loads(file.read_text())["runs"] if file.exists() else {}
    runs[name] = dict(figures)
    total: dict[str, Any] = {}
    for run in runs.values():
        for key, value in run.items():
            if isinstance(value, float):
                total[key] = max(value, total.get(key, 0.0))
            elif isinstance(value, int):
                total[key] = value + total.get(key, 0)
    file.write_text(json.dumps({"total": total, "runs": runs}, indent=2) + "\n")


def rounds(total: int, each: int) -> list[int]:
    """Cut a long form into runs of at most ``each``: no single test may take over five minutes."""
    return [min(each, total - done) for done in range(0, total, each)]


def quantile(values: list[float], share: float) -> float:
    """The value that so large a share of all does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
