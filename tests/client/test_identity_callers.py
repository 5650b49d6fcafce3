"""Who calls, as environment and kernel tell it; on machines that are made of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from intercom.client.callers import Caller, find_caller
from intercom.client.processes import Process, Table, dump, parse

#: Pids that no process has: above the kernel's highest.
SERVER, SHELL, AGENT, COMMAND = range(1 << 23, (1 << 23) + 4)
TMUX = {"TMUX": "/tmp/tmux-0/default,77,0", "TMUX_PANE": "%3"}


class Machine:
    """A ``/proc`` of a test's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/kernel/random").mkdir(parents=True)
        (root / "self/ns").mkdir(parents=True)
        self.boot("first")
        (root / "self/ns/pid").symlink_to("pid:[1]")

    def boot(self, name: str) -> None:
        (self.root / "sys/kernel/random/boot_id").write_text(f"{name}\n")

    def process(
        self,
        pid: int,
        parent: int,
        environ: dict[str, str] | None = None,
        *,
        session: int = 1,
        terminal: int = 0,
        start: int = 100,
        state: str = "S",
    ) -> None:
        """Let a process be there."""
        place = self.root / str(pid)
        place.mkdir(exist_ok=True)
        rest = ["0"] * 14
        fields = [str(pid), "(a) b (c", state, str(parent), "1", str(session), str(terminal)]
        (place / "stat").write_text(
            " ".join([fields[0], fields[1] + ")", *fields[2:], *rest, str(start)])
        )
        words = [f"{name}={value}" for name, value in (environ or {}).items()]
        (place / "environ").write_bytes("\0".join([*words, ""]).encode())

    def ends(self, pid: int) -> None:
        (self.root / str(pid) / "stat").unlink()

    def table(self) -> Table:
        return Table(str(self.root))

    def caller(self, environ: dict[str, str]) -> Caller:
        return find_caller(environ, self.table())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with process 1 and nothing else."""
    found = Machine(tmp_path / "proc")
    found.process(1, 0)
    return found


# -- what the environment says ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"CLAUDE_CODE_SESSION_ID": "a"}, "claude:a"),
        ({"CODEX_THREAD_ID": "a"}, "codex:a"),
        ({"CODEX_SESSION_ID": "a"}, "codex:a"),
        ({"CODEX_THREAD_ID": "a", "CODEX_SESSION_ID": "b"}, "codex:a"),
        ({"KIMI_SESSION_ID": "a"}, "kimi:a"),
        ({"COPILOT_AGENT_SESSION_ID": "a"}, "copilot:a"),
        (TMUX, "tmux:/tmp/tmux-0/default,77:%3"),
        ({"WEZTERM_PANE": "1", "WEZTERM_UNIX_SOCKET": "/s"}, "wezterm:/s:1"),
        ({"WEZTERM_PANE": "1"}, "wezterm::1"),
        ({"KITTY_WINDOW_ID": "1", "KITTY_PID": "9"}, "kitty:9:1"),
        ({"ZELLIJ_PANE_ID": "1", "ZELLIJ_SESSION_NAME": "x"}, "zellij:x:1"),
        ({"STY": "1.pts", "WINDOW": "0"}, "screen:1.pts:0"),
        ({"CLAUDE_CODE_SESSION_ID": "a", **TMUX, "KITTY_WINDOW_ID": "1"}, "claude:a"),
        ({**TMUX, "KITTY_WINDOW_ID": "1"}, "tmux:/tmp/tmux-0/default,77:%3"),
        ({"WINDOW": "3"}, "none"),
        ({"TMUX_PANE": "%3"}, "none"),
        ({"CLAUDECODE": "1", "CURSOR_AGENT": "1", "GEMINI_CLI": "1", "TMUX": "/t,1,2"}, "none"),
        ({"CLAUDE_CODE_SESSION_ID": ""}, "none"),
    ],
)
def test_the_environment_names_session_or_pane(
    machine: Machine, environ: dict[str, str], key: str
) -> None:
    """An agent's session comes first, then a pane; mere flags tell nothing apart."""
    machine.process(os.getpid(), 1)
    assert machine.caller(environ).key == key


def test_a_pane_stays_the_same_when_it_moves_to_another_session_of_its_server(
    machine: Machine,
) -> None:
    """The third part of TMUX is where the pane was born."""
    machine.process(os.getpid(), 1)
    moved = {**TMUX, "TMUX": "/tmp/tmux-0/default,77,5"}
    assert machine.caller(moved).key == machine.caller(TMUX).key
    other_server = {**TMUX, "TMUX": "/tmp/tmux-0/default,78,0"}
    assert machine.caller(other_server).key != machine.caller(TMUX).key


def test_what_is_set_nearest_counts(machine: Machine) -> None:
    """An agent that once started the tmux server has left its id in every pane of it."""
    leaked = {"CLAUDE_CODE_SESSION_ID": "old"}
    machine.process(SERVER, 1, leaked)
    machine.process(SHELL, SERVER, leaked | TMUX, session=SHELL)
    machine.process(os.getpid(), SHELL, leaked | TMUX, session=SHELL)
    assert machine.caller(leaked | TMUX).kind == "tmux"
    # A second agent within the pane is nearer than the pane.
    inner = leaked | TMUX | {"CODEX_THREAD_ID": "new"}
    machine.process(AGENT, SHELL, leaked | TMUX, session=SHELL)
    machine.process(os.getpid(), AGENT, inner, session=SHELL)
    assert machine.caller(inner).key == "codex:new"


# -- whose end is the caller's end ------------------------------------------------------------


def test_an_agents_session_ends_with_the_process_that_set_its_variables(machine: Machine) -> None:
    """It has them not itself; the shell between it and the command has."""
    mine = {"CODEX_THREAD_ID": "t"}
    machine.process(AGENT, 1, {}, start=7)
    machine.process(SHELL, AGENT, mine)
    machine.process(os.getpid(), SHELL, mine)
    found = machine.caller(mine)
    assert found.process is not None
    assert (found.process.pid, found.process.start) == (AGENT, 7)
    machine.process(os.getpid(), AGENT, {})  # started without a shell
    assert machine.caller(mine).process == found.process


def test_an_agent_that_names_its_process_is_believed_if_that_is_above_us(machine: Machine) -> None:
    """One that exports its id to itself would otherwise be taken for what started it."""
    mine = {"CLAUDE_CODE_SESSION_ID": "s", "CLAUDE_PID": str(AGENT)}
    machine.process(SHELL, 1, {})
    machine.process(AGENT, SHELL, {"CLAUDE_CODE_SESSION_ID": "s"})
    machine.process(os.getpid(), AGENT, mine)
    found = machine.caller(mine).process
    assert found is not None
    assert found.pid == AGENT
    found = machine.caller(mine | {"CLAUDE_PID": str(COMMAND)}).process
    assert found is not None
    assert found.pid == SHELL


def test_an_orphans_agent_is_not_known(machine: Machine) -> None:
    """Process 1 takes in the children of the dead, and tells nothing of them."""
    mine = {"KIMI_SESSION_ID": "k"}
    machine.process(SHELL, 1, mine)
    machine.process(os.getpid(), SHELL, mine)
    assert machine.caller(mine) == Caller("kimi:k", "kimi", None)


def test_a_pane_ends_with_the_process_that_leads_its_terminal(machine: Machine) -> None:
    """Not with a shell in between that some program has started there."""
    machine.process(SERVER, 1, {})
    machine.process(SHELL, SERVER, TMUX, session=SHELL, start=5)
    machine.process(AGENT, SHELL, TMUX, session=AGENT)
    machine.process(os.getpid(), AGENT, TMUX, session=AGENT)
    found = machine.caller(TMUX).process
    assert found is not None
    assert (found.pid, found.start) == (SHELL, 5)


def test_of_a_pane_that_somebody_only_named_the_end_is_not_known(machine: Machine) -> None:
    """A script that sets TMUX_PANE for one command makes that command no pane."""
    machine.process(SHELL, 1, {})
    machine.process(os.getpid(), SHELL, TMUX, session=SHELL)
    assert machine.caller(TMUX).process is None


def test_a_terminals_caller_is_its_device_and_its_leading_shell(machine: Machine) -> None:
    """Another shell on the same device is another caller."""
    device = os.makedev(136, 3)
    machine.process(SHELL, 1, {}, session=SHELL, terminal=device, start=5)
    machine.process(os.getpid(), SHELL, {}, session=SHELL, terminal=device)
    found = machine.caller({})
    assert found.key == f"terminal:/dev/pts/3:{SHELL}:5"
    assert found.process is not None
    assert found.process.pid == SHELL
    machine.process(SHELL, 1, {}, session=SHELL, terminal=device, start=6)
    assert machine.caller({}).key != found.key


def test_a_terminal_whose_leader_is_not_to_be_seen_is_known_by_its_device(machine: Machine) -> None:
    """It is in an outer process namespace."""
    machine.process(os.getpid(), 1, {}, session=0, terminal=os.makedev(4, 1))
    assert machine.caller({}) == Caller("terminal:4:1", "terminal", None)


def test_without_a_terminal_all_are_one(machine: Machine) -> None:
    """A cron job, a service, an agent that says nothing of itself."""
    machine.process(os.getpid(), 1, {})
    assert machine.caller({}) == Caller("none", "none", None)


def test_without_proc_the_order_is_fixed_and_no_end_is_claimed(tmp_path: Path) -> None:
    """On such systems a caller's end is never guessed."""
    blind = Table(str(tmp_path / "none"))
    both = TMUX | {"CODEX_THREAD_ID": "t"}
    assert find_caller(both, blind) == Caller("codex:t", "codex", None)
    process = blind.process(os.getpid())
    assert process is not None
    assert blind.has_ended(process) is None
    code = "import sys; from intercom.client.callers import find_caller; "
    code += "from intercom.client.processes import Table; print(find_caller({}, Table('/none')))"
    root = str(Path(__file__).resolve().parents[2])
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root},
        stdin=subprocess.DEVNULL,
        check=True,
    ).stdout
    assert "key='none'" in said


def test_with_another_namespaces_proc_we_are_who_we_are_there(machine: Machine) -> None:
    """Our own pid may there be somebody else's, at another terminal."""
    machine.process(os.getpid(), 1, {}, session=9, terminal=os.makedev(136, 9))
    machine.process(COMMAND, 1, {}, session=0, terminal=0)
    (machine.root / "self" / "ns" / "pid").unlink()
    (machine.root / "self" / "ns").rmdir()
    (machine.root / "self").rmdir()
    (machine.root / "self").symlink_to(str(COMMAND))
    assert machine.caller({}).key == "none"


# -- processes --------------------------------------------------------------------------------


def test_a_process_has_ended_when_its_pid_is_free_or_somebody_elses(machine: Machine) -> None:
    """Zombies have ended, too."""
    machine.process(SHELL, 1, start=5)
    process = machine.table().process(SHELL)
    assert process is not None
    assert machine.table().has_ended(process) is False
    machine.process(SHELL, 1, start=6)
    assert machine.table().has_ended(process) is True
    machine.process(SHELL, 1, start=5, state="Z")
    assert machine.table().has_ended(process) is True
    machine.ends(SHELL)
    assert machine.table().has_ended(process) is True
    assert machine.table().process(SHELL) is None


def test_after_a_restart_of_the_machine_no_process_is_left(machine: Machine) -> None:
    """Whatever has its pid now."""
    machine.process(SHELL, 1)
    process = machine.table().process(SHELL)
    assert process is not None
    machine.boot("second")
    assert machine.table().has_ended(process) is True


def test_of_other_namespaces_and_machines_nothing_is_claimed(machine: Machine) -> None:
    """A sandbox sees none of the pids outside, and takes nobody for dead who lives there."""
    machine.process(SHELL, 1)
    process = machine.table().process(SHELL)
    assert process is not None
    machine.ends(SHELL)
    assert machine.table().has_ended(process._replace(space="pid:[2]")) is None
    assert machine.table().has_ended(process._replace(machine="elsewhere")) is None
    assert machine.table().has_ended(process._replace(boot="other", machine="elsewhere")) is None


def test_a_process_that_is_hidden_from_us_is_not_called_dead(machine: Machine) -> None:
    """``/proc`` may hide what belongs to others; that it exists can still be found out."""
    process = machine.table().process(1)
    assert process is not None
    machine.ends(1)
    assert machine.table().has_ended(process) is None


def test_real_processes_are_told_apart() -> None:
    """Alive, ended and not yet waited for, and gone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    table = Table()
    process = table.process(child.pid)
    assert process is not None
    assert table.has_ended(process) is False
    assert child.stdin
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert table.has_ended(process) is True
    child.wait()
    assert table.has_ended(process) is True


def test_a_process_is_written_and_read() -> None:
    """And what is none is refused."""
    process = Process(7, 9, "b", "s", "m")
    assert parse(dump(process)) == process
    assert parse(dump(None)) is None
    for bad in ([], {}, {"pid": 0, "start": 1}, dict(process._asdict(), boot=3)):
        with pytest.raises(ValueError, match="a process must"):
            parse(bad)
