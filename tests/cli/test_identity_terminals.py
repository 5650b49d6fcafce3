"""People at terminals, in panes, in shells that come and go: each has a name of his own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import shutil
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.client.roster import ROSTER

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def api(agent: Make, tmp_path: Path) -> Agent:
    """A project whose commands come from no agent and no pane."""
    made = agent("api")
    keep = ("PATH", "HOME", "PYTHONPATH", "INTERCOM_DIR", "LANG")
    made.environ = {name: made.environ[name] for name in keep if name in made.environ}
    made.environ |= {"INTERCOM_NO_SPAWN": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
    made.environ["TERM"] = "dumb"
    return made


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.ours, self.theirs = pty.openpty()
        modes = termios.tcgetattr(self.theirs)
        modes[3] &= ~termios.ECHO  # nobody reads it
        termios.tcsetattr(self.theirs, termios.TCSANOW, modes)
        self.number = 0
        self.shell = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        def lead() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        return subprocess.Popen(
            ["/bin/sh"],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            cwd=self.agent.project,
            env=self.agent.environ,
            preexec_fn=lead,
        )

    def runs(self, *words: str, redirected: bool = False) -> str:
        """Type a command; the name that it tells."""
        self.number += 1
        answer = self.agent.project.parent / f"answer-{id(self)}-{self.number}"
        command = shlex.join(self.agent.command(*words)) + f" > {answer}.tmp"
        if redirected:
            command += " < /dev/null 2> /dev/null"
        os.write(self.ours, f"{command}; mv {answer}.tmp {answer}\n".encode())
        self.agent.wait_until(answer.exists)
        return answer.read_text().strip()

    def name(self, redirected: bool = False) -> str:
        return self.runs("name", "--id-only", redirected=redirected)

    def restart(self) -> None:
        """End the shell, and start another in the same terminal."""
        self.end_shell()
        self.shell = self._start()

    def end_shell(self) -> None:
        self.shell.kill()
        self.shell.wait()

    def close(self) -> None:
        self.end_shell()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(api: Agent) -> Iterator[Callable[[], Terminal]]:
    """Open terminals."""
    opened: list[Terminal] = []

    def open_one() -> Terminal:
        opened.append(Terminal(api))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_two_terminals_are_two_and_each_keeps_its_name(terminal: Callable[[], Terminal]) -> None:
    """Whatever their commands' input and output are."""
    one, two = terminal(), terminal()
    first = one.name()
    assert first in {persona.slug for persona in ROSTER}
    assert two.name() == f"{first}-2"
    assert one.name(redirected=True) == first
    assert two.name(redirected=True) == f"{first}-2"
    told = json.loads(one.runs("name", "--json"))
    assert told["source"] == "terminal"
    assert told["caller"].startswith("terminal:/dev/pts/")


def test_a_new_shell_takes_the_name_of_one_that_is_gone(terminal: Callable[[], Terminal]) -> None:
    """Not that of one that is there; closing a terminal is enough."""
    one, two = terminal(), terminal()
    first, second = one.name(), two.name()
    two.restart()
    assert two.name() == second
    two.end_shell()
    three = terminal()
    assert three.name() == second
    assert one.name() == first
    assert terminal().name() == f"{first}-3"


def test_a_listener_keeps_its_name_when_its_shell_is_gone(
    terminal: Callable[[], Terminal], api: Agent
) -> None:
    """It went on in the background, and somebody still hears by that name."""
    one = terminal()
    first = one.name()
    pidfile = api.project.parent / "pid"
    listen = shlex.join(api.command("listen"))
    # In a session of its own, as nohup or an agent's tool would have it.
    inner = shlex.quote(f"echo $$ > {pidfile}; INTERCOM_SESSION={first} exec {listen}")
    os.write(one.ours, f"setsid sh -c {inner} < /dev/null > /dev/null 2>&1 &\n".encode())
    api.wait_until(lambda: pidfile.exists() and pidfile.read_text().strip())
    pid = int(pidfile.read_text())
    try:
        api.wait_until(lambda: api.run("name", "--all").ok()["names"][0]["live"])
        one.end_shell()
        assert terminal().name() == f"{first}-2"
    finally:
        os.kill(pid, 9)


# -- tmux -------------------------------------------------------------------------------------


class Tmux:
    """A tmux server of a test's own."""

    def __init__(self, agent: Agent, directory: Path) -> None:
        self.agent = agent
        self.directory = directory
        self.number = 0
        self.socket = str(directory / "t")

    def do(self, *words: str) -> str:
        """A command of tmux."""
        done = subprocess.run(
            ["tmux", "-f", "/dev/null", "-S", self.socket, *words],
            cwd=self.agent.project,
            env=self.agent.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    def open(self, verb: str, *words: str) -> str:
        """Open a pane, and tell its number."""
        return self.do(verb, "-P", "-F", "#{pane_id}", *words, "/bin/sh")

    def name(self, pane: str) -> dict[str, Any]:
        """What a command in a pane is told about itself."""
        self.number += 1
        answer = self.directory / f"answer-{self.number}"
        command = shlex.join(self.agent.command("name", "--json"))
        self.do(
            "send-keys", "-t", pane, f"{command} > {answer}.tmp; mv {answer}.tmp {answer}", "Enter"
        )
        self.agent.wait_until(answer.exists)
        return dict(json.loads(answer.read_text()))


@pytest.fixture
def tmux(api: Agent, channel_dir: Path) -> Iterator[Tmux]:
    """Needs tmux, of which a server is started and ended."""
    if shutil.which("tmux") is None:
        pytest.skip("not run: needs tmux")
    directory = channel_dir / "tmux"
    directory.mkdir(mode=0o700)
    server = Tmux(api, directory)
    yield server
    server.do("kill-server")


def test_two_panes_of_one_tree_are_two(tmux: Tmux, api: Agent) -> None:
    """A shell that is started again in a pane has the pane's name again."""
    one = tmux.open("new-session", "-d", "-x", "200")
    two = tmux.open("split-window", "-d", "-t", one)
    first, second = tmux.name(one), tmux.name(two)
    assert first["source"] == second["source"] == "tmux"
    assert second["session_id"] == f"{first['session_id']}-2"
    tmux.do("respawn-pane", "-k", "-t", two, "/bin/sh")
    again = tmux.name(two)
    assert (again["session_id"], again["is_sticky"]) == (second["session_id"], True)
    assert tmux.name(one)["session_id"] == first["session_id"]


def test_a_closed_panes_name_goes_to_the_next_and_an_open_ones_does_not(tmux: Tmux) -> None:
    """That it is closed the kernel says; tmux is not asked."""
    one = tmux.open("new-session", "-d", "-x", "200")
    two = tmux.open("split-window", "-d", "-t", one)
    first, second = tmux.name(one)["session_id"], tmux.name(two)["session_id"]
    tmux.do("kill-pane", "-t", two)
    three = tmux.open("split-window", "-d", "-t", one)
    found = tmux.name(three)
    assert (found["session_id"], found["is_sticky"]) == (second, False)
    four = tmux.open("split-window", "-d", "-t", one)
    assert tmux.name(four)["session_id"] == f"{first}-3"


def test_an_agent_within_a_pane_is_the_agent(tmux: Tmux, api: Agent) -> None:
    """And a pane whose server an agent has started is the pane."""
    api.environ["CLAUDE_CODE_SESSION_ID"] = "starter"
    pane = tmux.open("new-session", "-d", "-x", "200")
    assert tmux.name(pane)["source"] == "tmux"
    tmux.do("send-keys", "-t", pane, "CODEX_THREAD_ID=inner sh", "Enter")
    assert tmux.name(pane)["caller"] == "codex:inner"
