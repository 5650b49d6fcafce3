"""The broker of the pi clients as a process, for the tests of this directory."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from pi_broker_process import BrokerProcess  # noqa: E402  these lie beside this file
from pi_player import plays_of  # noqa: E402
from pi_transcripts import played  # noqa: E402


class Undertaker:
    """Ends the brokers of a test while the next ones run: a broker takes its time to leave."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._ends: list[tuple[str, Future[None]]] = []

    def take(self, test: str, brokers: list[BrokerProcess], root: Path) -> None:
        """Tell them to end; they must do so well, and then their directory goes."""
        for one in brokers:
            one.bid()
        self._ends.append((test, self._pool.submit(self._bury, brokers, root)))

    @staticmethod
    def _bury(brokers: list[BrokerProcess], root: Path) -> None:
        for one in brokers:
            one.finish()
        shutil.rmtree(root)

    def complaints(self) -> list[str]:
        """After which tests a broker did not end well, and how."""
        ends = [(test, end.exception()) for test, end in self._ends]
        return [f"{test}: {error!r}" for test, error in ends if error is not None]


@pytest.fixture(scope="session")
def undertaker() -> Iterator[Undertaker]:
    with ThreadPoolExecutor(4) as pool:
        made = Undertaker(pool)
        yield made
        complaints = made.complaints()
    if complaints:
        pytest.fail("brokers ended badly:\n" + "\n".join(complaints), pytrace=False)


@pytest.fixture
def make_broker(
    undertaker: Undertaker, request: pytest.FixtureRequest
) -> Iterator[Callable[..., BrokerProcess]]:
    """Make a broker that is not started yet; all of a test share their directories.

    These have a short path: a socket's path is limited, and that of tmp_path is long.
    """
    root = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    made: list[BrokerProcess] = []

    def make(channel: str = "", **environ: str) -> BrokerProcess:
        made.append(BrokerProcess(root, channel, **environ))
        return made[-1]

    make.made = made  # type: ignore[attr-defined]
    yield make
    undertaker.take(request.node.nodeid, made, root)


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker that is ready."""
    return make_broker().start()


#: What becomes of the transcripts.
plays = plays_of("test_transcript", HERE, played)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the brokers of a failed test said."""
    report = yield
    make = getattr(item, "funcargs", {}).get("make_broker")
    if report.failed and make is not None:
        for number, one in enumerate(make.made):
            report.sections.append((f"standard error of broker {number}", one.words()))
    return report
