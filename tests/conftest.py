"""What every test gets: nothing may go wrong unseen, and nothing is left behind.

Test modules are imported in pytest's ``importlib`` mode: the test tree has no
``__init__.py``, and file names must be unique in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from intercom.paths import ChannelPaths

# Whoever runs the tests may have settings of his own: they are not what is tested.
os.environ["XDG_CONFIG_HOME"] = os.devnull

# What runs the tests in several processes tells each how wide the terminal is; ours have none.
os.environ.pop("COLUMNS", None)

# What is started in the background by a shell is deaf to Ctrl-C, and so would be all it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that is busy elsewhere makes no test fail, and in CI a red run can be repeated.
settings.register_profile("default", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


# -- nothing goes wrong unseen ----------------------------------------------------------------


def _is_trial_case(request: pytest.FixtureRequest) -> bool:
    """Whether Twisted's own test case watches the log for this test."""
    trial = sys.modules.get("twisted.trial.unittest")
    return trial is not None and issubclass(request.cls or object, trial.SynchronousTestCase)


def _ran_in_reactor(request: pytest.FixtureRequest) -> bool:
    """Whether pytest-twisted had something to wait for in this test."""
    function = request.function
    return inspect.iscoroutinefunction(function) or hasattr(function, "_pytest_twisted_mark")


@pytest.fixture
def logged_failures() -> Iterator[list[Any]]:
    """The exceptions that Twisted's log was told of during this test, as Failures.

    A test that provokes some takes them out of this list; what is left fails it.
    """
    from twisted.logger import globalLogPublisher

    failures: list[Any] = []

    def observe(event: dict[str, Any]) -> None:
        if "log_failure" in event:
            failures.append(event["log_failure"])

    globalLogPublisher.addObserver(observe)
    try:
        yield failures
    finally:
        globalLogPublisher.removeObserver(observe)


@pytest.fixture(scope="session", autouse=True)
def end_with_the_reactor(request: pytest.FixtureRequest) -> None:
    """End the whole run when its reactor is stopped, for no test can run after that.

    A signal does it (the reactor takes SIGTERM), or a test that stopped the wrong reactor.
    """
    from twisted.internet import reactor

    def ended() -> None:
        request.session.shouldstop = "the reactor was stopped, by a signal or by a test"

    reactor.addSystemEventTrigger("before", "shutdown", ended)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def no_unseen_failures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which an exception was only logged, or a Deferred's failure dropped.

    pytest and its Twisted plugin look at neither. ``SynchronousTestCase`` does so itself.
    """
    if _is_trial_case(request) or "twisted.logger" not in sys.modules:
        yield
        return
    failures = request.getfixturevalue("logged_failures")
    yield
    if _ran_in_reactor(request):
        gc.collect()  # a Deferred that nobody awaited speaks when it is collected
    if failures:
        texts = [failure.getTraceback() for failure in failures]
        pytest.fail("failures were logged:\n" + "\n".join(texts), pytrace=False)


@pytest.fixture(autouse=True)
def no_leftover_calls() -> Iterator[None]:
    """Fail a test that leaves delayed calls in the real reactor, for they would run in another."""
    reactor = sys.modules.get("twisted.internet.reactor")
    before = set(reactor.getDelayedCalls()) if reactor is not None else set()
    yield
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is None:
        return
    now = reactor.seconds()  # what is due already runs before the next test does
    calls = reactor.getDelayedCalls()
    left = [call for call in calls if call not in before and call.active() and call.getTime() > now]
    for call in left:
        call.cancel()
    if left:
        pytest.fail("delayed calls were left:\n" + "\n".join(map(str, left)), pytrace=False)


# -- nothing is left behind -------------------------------------------------------------------


@pytest.fixture
def channel_dir() -> Iterator[Path]:
    """A private directory for channels (``--dir``): short, for a socket's path is limited.

    Hubs that commands of the test started in it are ended with it.
    """
    directory = Path(tempfile.mkdtemp(prefix="ic-", dir="/tmp"))
    try:
        yield directory
    finally:
        try:
            for lock in sorted(directory.glob("*/hub.lock")):
                end_hub(lock)
        finally:
            shutil.rmtree(directory)


def end_hub(lock: Path, patience: float = 60.0) -> None:
    """End the hub that holds a channel's lock, and wait until the lock is free."""
    deadline = time.monotonic() + patience
    told: set[int] = set()
    while is_held(lock):
        pid = leader_of(lock)
        if pid is not None and pid not in told and str(lock.parent.parent) in command_line(pid):
            told.add(pid)
            os.kill(pid, signal.SIGTERM)
        if time.monotonic() > deadline:
            said = last_words(pid, lock) if pid in told else ""
            text = f"the hub of {lock.parent.name} (pid {pid}) does not end\n{said}"
            pytest.fail(text, pytrace=False)
        time.sleep(0.02)


def last_words(pid: int, lock: Path) -> str:
    """End a hub that does not end by itself; the end of its log, where it then says why."""
    os.kill(pid, signal.SIGABRT)
    deadline = time.monotonic() + 10
    while is_held(lock) and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # if it is stopped
    with contextlib.suppress(FileNotFoundError):
        return lock.with_name("hub.log").read_text(errors="replace")[-8000:]
    return ""


def is_held(lock: Path) -> bool:
    """Whether some process holds this lock file."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def leader_of(lock: Path) -> int | None:
    """The pid that the holder wrote into its lock file."""
    try:
        written = json.loads(lock.read_bytes())
    except ValueError:
        return None
    pid = written.get("pid") if isinstance(written, dict) else None
    return pid if isinstance(pid, int) else None


def command_line(pid: int) -> str:
    """What a process was started with, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


# -- commands as processes ----------------------------------------------------------------------

ROOT = str(Path(__file__).resolve().parents[1])
TIMEOUT = 60


class Ended:
    """What a command printed, and its status."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out = out
        self.err = err.decode()
        assert "Traceback" not in self.err or "last words" in self.err, self.err

    @property
    def result(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def ok(self) -> dict[str, Any]:
        """The result of a command that must have succeeded."""
        assert self.status == 0, (self.status, self.out, self.err)
        return self.result


class Agent:
    """One project with its session, on a channel in a directory of its own."""

    def __init__(self, base: Path, project: Path, session: str) -> None:
        self.project = project
        self.session = session
        self.paths = ChannelPaths(str(base), "default")
        self.base = base
        self.program = [sys.executable, "-m", "intercom"]
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith("INTERCOM_")
        }
        self.environ |= {"PYTHONPATH": ROOT, "INTERCOM_DIR": str(base)}
        self.environ["INTERCOM_SESSION"] = session

    def command(self, *words: str) -> list[str]:
        """The command line for these words."""
        return [*self.program, *words]

    def run(self, *words: str, stdin: bytes | None = None, **environ: str) -> Ended:
        """Run a command to its end; without ``stdin`` it has /dev/null."""
        done = subprocess.run(
            self.command(*words),
            stdin=subprocess.DEVNULL if stdin is None else None,
            input=stdin,
            capture_output=True,
            cwd=self.project,
            env=self.environ | environ,
            timeout=TIMEOUT,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Start a command and go on."""
        settings = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "bufsize": 0,
        } | settings
        return subprocess.Popen(
            self.command(*words), cwd=self.project, env=self.environ, **settings
        )

    def texts(self, *words: str) -> list[str]:
        """The texts that a poll shows."""
        return [one["payload"]["text"] for one in self.run("poll", *words).ok()["messages"]]

    def hub_pid(self) -> int:
        """The pid of the hub that leads the channel, as soon as that stands in its lock file."""
        found: list[int] = []

        def written() -> bool:
            with contextlib.suppress(OSError):
                found.extend(filter(None, [leader_of(Path(self.paths.lock))]))
            return bool(found)

        self.wait_until(written)
        return found[0]

    @staticmethod
    def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait for a condition, and fail if it does not come true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)


@pytest.fixture
def agent(channel_dir: Path, tmp_path: Path) -> Callable[[str], Agent]:
    """Make agents, each with a project of its own, on one channel."""

    def make(session: str) -> Agent:
        project = tmp_path / session
        # A working tree: what somebody has left in a directory above is no concern of it.
        (project / ".git").mkdir(parents=True, exist_ok=True)
        (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        return Agent(channel_dir, project, session)

    return make


@pytest.fixture
def stopped(channel_dir: Path) -> Iterator[Callable[[int], None]]:
    """Stop processes, for the length of a test or until somebody lets them go on.

    None is stopped while it holds the lock of an inbox, which others would meet then.
    """
    pids: list[int] = []

    def stop(pid: int) -> None:
        stop_without_lock(pid, channel_dir)
        pids.append(pid)

    yield stop
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def stop_without_lock(pid: int, directory: Path, patience: float = 60.0) -> None:
    """Stop a process at a moment at which no inbox of the channels here is locked."""
    deadline = time.monotonic() + patience
    while True:
        os.kill(pid, signal.SIGSTOP)
        while not is_stopped(pid):
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            time.sleep(0.001)
        if not any(map(is_locked, directory.glob("*/inbox_*.ndjson"))):
            return
        assert time.monotonic() < deadline, "some inbox is always locked"
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.001)


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process has stopped, or ended."""
    states = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return states <= set("TtZX")


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock of a file, alone or with others."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
