"""One hub and three kinds of clients, for the tests of this directory."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
#: These hold the modules that are imported below, and by the tests.
for directory in (HERE, str(Path(__file__).parents[1] / "pi_broker")):
    if directory not in sys.path:
        sys.path.insert(0, directory)

from mesh_hub import Hub  # noqa: E402
from mesh_transcripts import played  # noqa: E402
from pi_player import plays_of  # noqa: E402


@pytest.fixture(scope="session")
def mesh_ends() -> Iterator[Callable[[Hub], None]]:
    """Ends hubs while the next tests run, since they take their time to leave."""
    with ThreadPoolExecutor(2) as pool:
        ends: list[Future[None]] = []

        def end(hub: Hub) -> None:
            ends.append(pool.submit(bury, hub))

        yield end
        complaints = [repr(end.exception()) for end in ends if end.exception() is not None]
    if complaints:
        pytest.fail("hubs ended badly:\n" + "\n".join(complaints), pytrace=False)


def bury(hub: Hub) -> None:
    hub.finish()
    shutil.rmtree(hub.root)


@pytest.fixture(scope="session")
def make_hub(mesh_ends: Callable[[Hub], None]) -> Callable[..., Hub]:
    """Start a hub in directories of its own, of a short path, for that of a socket is limited."""

    def make(**environ: str) -> Hub:
        hub = Hub(Path(tempfile.mkdtemp(prefix="pm-", dir="/tmp")), **environ)
        try:
            hub.start()
        except BaseException:
            mesh_ends(hub)
            raise
        return hub

    return make


@pytest.fixture(scope="module")
def shared_hub(make_hub: Callable[..., Hub], mesh_ends: Callable[[Hub], None]) -> Iterator[Hub]:
    """The hub of the tests of a module that do not end it."""
    hub = make_hub()
    hub.stay()
    yield hub
    mesh_ends(hub)


@pytest.fixture
def hub(shared_hub: Hub) -> Iterator[Hub]:
    """The same; who was connected is gone before the next test."""
    yield shared_hub
    shared_hub.empty()


@pytest.fixture
def own_hub(make_hub: Callable[..., Hub], mesh_ends: Callable[[Hub], None]) -> Iterator[Hub]:
    """A hub for one test, which may end it."""
    made = make_hub()
    yield made
    mesh_ends(made)


#: What becomes of the transcripts.
mesh_plays = plays_of("test_mesh_transcript", HERE, played)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the hub of a failed test said."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    for name in ("hub", "own_hub"):
        if report.failed and name in arguments:
            report.sections.append(("standard error of the hub", arguments[name].words()))
    return report
