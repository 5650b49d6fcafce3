"""Where the fakes of this directory are found, and the fixtures of real agent programs.

``INTERCOM_AGENT_PROGRAMS`` is the directory where npm installs them (about 2 GB; without it a
temporary one), ``INTERCOM_AGENT_TRANSCRIPTS`` where each test leaves what was said.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from agent_home import AgentHome  # noqa: E402  the path comes first
from agent_programs import Program, missing  # noqa: E402
from agent_scene import Shell  # noqa: E402
from fake_model import FakeModel  # noqa: E402
from model_script import Script, Turn  # noqa: E402
from transcript import Transcript  # noqa: E402


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Program], Path]:
    """Install programs, each once."""
    if missing():
        pytest.skip(missing())
    cache = os.environ.get("INTERCOM_AGENT_PROGRAMS")
    place = Path(cache) if cache else tmp_path_factory.mktemp("programs")
    found: dict[str, Path] = {}

    def install(program: Program) -> Path:
        if program.command not in found:
            found[program.command] = program.install(place)
        return found[program.command]

    return install


@pytest.fixture
def home(tmp_path: Path, channel_dir: Path) -> Iterator[AgentHome]:
    """A home of its own; what still runs in it is ended after the test."""
    made = AgentHome(tmp_path, channel_dir)
    yield made
    made.end()


@pytest.fixture
def transcript(
    home: AgentHome, channel_dir: Path, request: pytest.FixtureRequest
) -> Iterator[Transcript]:
    """What is said in this test; it is left behind also if the test fails."""
    made = Transcript({str(home.path): "~", str(channel_dir): "$INTERCOM_DIR"})
    yield made
    where = os.environ.get("INTERCOM_AGENT_TRANSCRIPTS")
    name = request.node.name.removeprefix("test_").replace("[", "_").removesuffix("]")
    made.leave(Path(where) if where else home.path.parent, name)


@pytest_twisted.async_yield_fixture
async def model(transcript: Transcript) -> AsyncIterator[Callable[..., FakeModel]]:
    """Make models, one for each agent; a script that did not work out fails the test."""
    made: list[FakeModel] = []

    def make(who: str, program: Program, *turns: Turn) -> FakeModel:
        note: Any = transcript.of(who, program.named)
        made.append(FakeModel(reactor, Script(list(turns)), note))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def shell(home: AgentHome, transcript: Transcript) -> Shell:
    """A person at a shell."""
    return Shell(home, transcript)
