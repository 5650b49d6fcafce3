"""Hubs and their channel's settings: a successor is like its predecessor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import BadConfig, UnsafePlace
from intercom.hub.transports import extra_endpoints
from intercom.paths import ChannelPaths, file_level
from intercom.tap import Options

Agent = Any  # see the root's conftest.py
Make = Callable[[str], Agent]
TWISTD = "from twisted.scripts.twistd import run; run()"
TWIST = "from twisted.application.twist._twist import Twist; Twist.main()"


class Host:
    """Starts hubs by hand, and ends them."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, twistd: bool = False) -> dict[str, Any]:
        """Start one, wait until it serves, and return what it says of itself."""
        agent = self.agent
        command = [sys.executable, "-m", "intercom", "daemon"]
        if twistd:
            command = [sys.executable, "-c", TWISTD, "-n", "intercom"]
        self._running.append(
            subprocess.Popen(
                [*command, *options],
                cwd=agent.project,
                env=agent.environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        agent.wait_until(lambda: os.path.exists(agent.paths.socket))
        found = agent.run("peers", INTERCOM_NO_SPAWN="1").ok()["hub"]
        assert found["pid"] == self._running[-1].pid
        return dict(found)

    def kill(self, sign: int = signal.SIGKILL) -> None:
        """End the last one."""
        process = self._running.pop()
        process.send_signal(sign)
        process.wait(timeout=60)


@pytest.fixture
def host(agent: Make) -> Iterator[Host]:
    """Hubs of the channel of agent ``ann``."""
    made = Host(agent("ann"))
    yield made
    for process in made._running:
        process.kill()
        process.wait()


def hub_now(agent: Agent) -> dict[str, Any]:
    """What the channel's hub says of itself; one is started if there is none."""
    return dict(agent.run("peers").ok()["hub"])


def channel_file(agent: Agent) -> dict[str, Any]:
    """What the channel's file holds, but for the stamp."""
    found = json.loads(Path(agent.paths.settings).read_text())
    return {key: value for key, value in found.items() if key not in ("format", "version")}


@pytest.mark.parametrize("twistd", [False, True], ids=["daemon", "twistd"])
def test_a_hub_that_a_command_starts_is_like_the_one_that_died(host: Host, twistd: bool) -> None:
    """What the options of one said holds for all after it."""
    endpoint = f"unix:{host.agent.base}/side.sock"
    options = ("--durability", "process", "--idle-exit", "77", "--listen", endpoint)
    first = host.start(*options, twistd=twistd)
    expected = {"durability": "process", "idle_exit": 77, "listen": [endpoint]}
    assert {key: first[key] for key in expected} == expected
    assert channel_file(host.agent) == expected
    host.kill()
    second = hub_now(host.agent)
    assert second["pid"] != first["pid"]
    assert {key: second[key] for key in expected} == expected
    sent = host.agent.run("send", "--to", "ann", "--text", "x").ok()
    assert sent["level"] == "process"


def test_a_hub_told_nothing_keeps_nothing(host: Host) -> None:
    """So what a command starts after it leaves when idle, which it itself would not have."""
    assert host.start()["idle_exit"] is None
    host.kill()
    assert channel_file(host.agent) == {}
    assert hub_now(host.agent)["idle_exit"] == 600


def test_a_hub_that_does_not_lead_changes_nothing(host: Host) -> None:
    """Its options are those of a hub that never was."""
    host.start("--durability", "process")
    ended = host.agent.run("daemon", "--durability", "memory")
    assert ended.status == 0
    assert channel_file(host.agent) == {"durability": "process"}


def test_a_later_option_replaces_an_earlier_one_and_leaves_the_rest(host: Host) -> None:
    host.start("--durability", "process", "--idle-exit", "77")
    host.kill(signal.SIGTERM)
    found = host.start("--durability", "memory", "--idle-exit", "never")
    assert (found["durability"], found["idle_exit"]) == ("memory", None)
    assert channel_file(host.agent) == {"durability": "memory", "idle_exit": "never"}
    host.kill(signal.SIGTERM)
    assert host.start("--idle-exit", "5")["durability"] == "memory"


def test_a_variable_wins_for_its_hub_and_is_not_kept(host: Host) -> None:
    """The next hub is as the channel's file has it."""
    host.agent.run("config", "durability", "process").ok()
    host.agent.environ["INTERCOM_DURABILITY"] = "memory"
    assert host.start()["durability"] == "memory"
    assert channel_file(host.agent) == {"durability": "process"}
    assert host.agent.run("send", "--to", "ann", "--text", "x").ok()["level"] == "memory"
    host.kill(signal.SIGTERM)
    del host.agent.environ["INTERCOM_DURABILITY"]
    assert hub_now(host.agent)["durability"] == "process"


def test_a_change_holds_from_the_next_hub_on(agent: Make) -> None:
    """A restart is a next one; messages are as safe as it says from then on."""
    ann = agent("ann")
    first = hub_now(ann)
    ann.run("config", "durability", "process").ok()
    ann.run("config", "idle_exit", "42").ok()
    assert hub_now(ann) == first
    ann.run("hub", "restart").ok()
    second = hub_now(ann)
    assert second["pid"] != first["pid"]
    assert (second["durability"], second["idle_exit"]) == ("process", 42)
    assert channel_file(ann) == {"durability": "process", "idle_exit": 42}
    ann.run("config", "--unset", "durability").ok()
    ann.run("config", "--unset", "idle_exit").ok()
    ann.run("hub", "restart").ok()
    third = hub_now(ann)
    assert (third["durability"], third["idle_exit"]) == ("disk", 600)
    sent = ann.run("send", "--to", "ann", "--text", "x").ok()
    assert sent["level"] == file_level(str(ann.base))


def test_a_restarted_hub_that_stays_goes_on_staying(host: Host) -> None:
    """One that was started by hand, and so leaves only when told."""
    host.start()
    host.agent.run("hub", "restart").ok()
    assert hub_now(host.agent)["idle_exit"] is None
    assert channel_file(host.agent) == {}


def test_a_hub_that_cannot_keep_what_it_was_told_serves_nevertheless(host: Host) -> None:
    """It says so; a full disk is no reason to be without a hub."""
    host.agent.paths.prepare()
    path = Path(host.agent.paths.settings)
    path.write_text("{}")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\nfile = open(sys.argv[1])\nfcntl.flock(file, fcntl.LOCK_EX)\n"
            "print('held', flush=True)\nsys.stdin.read()",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    try:
        assert host.start("--durability", "process")["durability"] == "process"
        log = Path(host.agent.paths.log).read_text()
        assert "settings not kept: another process keeps" in log
    finally:
        holder.communicate()


# -- what cannot be used ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "{file} is not JSON"),
        ("[]", "{file} holds no JSON object"),
        ('{"durability": "paper"}', '{file}: durability cannot be "paper"'),
        ('{"idle_exit": 0}', "{file}: idle_exit cannot be 0"),
        ('{"listen": "tcp:1"}', '{file}: listen cannot be "tcp:1"'),
        ('{"listen": ["nonsense"]}', "cannot listen at 'nonsense'"),
    ],
)
def test_a_hub_does_not_start_on_settings_that_cannot_be(
    agent: Make, content: str, said: str
) -> None:
    """78, with file, key and remedy; what needs no hub goes on, in the files."""
    ann = agent("ann")
    ann.paths.prepare()
    Path(ann.paths.settings).write_text(content)
    said = said.format(file=ann.paths.settings)
    ended = ann.run("daemon")
    assert ended.status == 78
    assert said in ended.err
    ended = ann.run("peers")
    assert (ended.status, ended.result["code"]) == (78, "BAD_CONFIG")
    assert said in ended.err
    sent = ann.run("send", "--to", "ann", "--text", "hi")
    assert (sent.ok()["status"], sent.ok()["cause"]) == ("spooled_offline", "failed")
    assert said in sent.err
    assert ann.texts() == ["hi"]
    if "nonsense" not in content:  # that is found out once the hub leads, and has stamped it
        assert Path(ann.paths.settings).read_text() == content


@pytest.mark.parametrize("words", [[TWISTD, "-n"], [TWIST]], ids=["twistd", "twist"])
def test_twisted_s_programs_do_not_start_on_them_either(agent: Make, words: list[str]) -> None:
    """With the same status, and nobody's defaults instead."""
    ann = agent("ann")
    ann.paths.prepare()
    Path(ann.paths.settings).write_text('{"durability": "paper"}')
    ann.program = [sys.executable, "-c", words[0]]
    ended = ann.run(*words[1:], "intercom")
    assert ended.status == 78, ended.err
    assert f'{ann.paths.settings}: durability cannot be "paper"' in ended.err
    assert os.listdir(ann.paths.directory) == ["channel.json"]


def test_twistd_reads_no_file_of_a_user_who_it_is_to_become_later(
    channel_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """While it is still root, that user's files are not its own, and so are not safe."""
    paths = ChannelPaths(str(channel_dir), "default")
    paths.prepare()
    os.symlink("/dev/null", paths.settings)
    for uid, daemon in ((None, 0), (None, 1), (65534, 0), (65534, 1)):
        options = Options()
        options.parent = {"uid": uid, "nodaemon": not daemon, "debug": False, "pidfile": "x"}
        options.parent |= {"logfile": None, "logger": None, "syslog": False}
        words = ["--dir", str(channel_dir), "--durability", "process"]
        if uid is None:
            with pytest.raises(SystemExit) as ended:
                options.parseOptions(words)
            assert ended.value.code == 77
            assert "channel.json is a symbolic link" in capfd.readouterr().err
        else:
            options.parseOptions(words)
            assert options["settings"].paths.directory == paths.directory
            with pytest.raises(UnsafePlace):
                options["settle"]()
            os.rename(paths.settings, paths.settings + ".away")
            assert options["settle"]().kept == {"durability": "process"}
            os.rename(paths.settings + ".away", paths.settings)


def test_a_listener_outlives_settings_that_keep_hubs_from_starting(agent: Make) -> None:
    """It goes on through the inbox file, says why, and comes back when they are mended."""
    ann = agent("ann")
    listening = ann.start("listen")
    ann.wait_until(lambda: os.path.exists(ann.paths.socket))
    ann.wait_until(lambda: ann.run("peers").ok()["sessions"])
    good = Path(ann.paths.settings).read_text()
    Path(ann.paths.settings).write_text("{")
    os.kill(ann.hub_pid(), signal.SIGKILL)
    sent = ann.run("send", "--session", "bob", "--to", "ann", "--text", "meanwhile").ok()
    assert sent["status"] == "spooled_offline"
    assert json.loads(listening.stdout.readline())["payload"] == {"text": "meanwhile"}
    assert listening.stderr is not None
    said = iter(listening.stderr.readline, b"")
    assert any(b"is not JSON" in line for line in said)
    assert listening.poll() is None
    Path(ann.paths.settings).write_text(good)
    assert any(b"connected to the hub" in line for line in said)
    assert ann.run("peers").ok()["sessions"]
    listening.terminate()
    listening.communicate(timeout=60)


def test_where_an_endpoint_comes_from_can_be_found_out() -> None:
    """It may have been set long ago."""
    with pytest.raises(BadConfig) as caught:
        extra_endpoints(None, ["nonsense"])
    assert "intercom config listen" in caught.value.remedy


def test_what_a_hub_does_not_know_it_names_and_keeps(host: Host) -> None:
    """A newer version may have written it, and may come back."""
    host.agent.paths.prepare()
    Path(host.agent.paths.settings).write_text('{"later": {"x": 1}, "durability": "process"}')
    ended = host.agent.run("daemon", "--idle-exit", "0.2")
    assert ended.status == 0
    assert ended.err.count("'later' is no setting that intercom") == 1
    expected = {"later": {"x": 1}, "durability": "process", "idle_exit": 0.2}
    assert channel_file(host.agent) == expected
