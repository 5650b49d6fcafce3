"""What can be shown of a channel's safety by one user alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from intercom.client import spawn
from intercom.election.locks import is_led


def modes(base: Path) -> dict[str, tuple[str, int]]:
    """Kind and mode of everything in a directory, by name; the directory itself is ''."""
    found = {}
    for place in [base, *base.rglob("*")]:
        mode = os.lstat(place).st_mode
        name = "" if place == base else str(place.relative_to(base))
        found[name] = (stat.filemode(mode)[0], stat.S_IMODE(mode))
    return found


def test_modes_are_the_same_whatever_the_umask(myself: Any) -> None:
    """Files are private from their first moment, since nothing is left to the umask."""
    base = Path(myself.paths.base)
    seen = []
    for umask in (0o000, 0o022, 0o077):
        hub = myself.serve("--listen", "tcp:0:interface=127.0.0.1", umask=umask)
        myself.run("send", "--to", "bob", "--text", "by the hub", umask=umask).ok()
        myself.run("init", umask=umask).ok()
        myself.run("poll", umask=umask, INTERCOM_SESSION="bob").ok()
        assert myself.stop(hub).status == 0
        spawned = myself.run("peers", umask=umask, INTERCOM_NO_SPAWN="").ok()["hub"]["pid"]
        myself.run("send", "--to", "eve", "--text", "x", umask=umask).ok()
        seen.append(modes(base))
        os.kill(spawned, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while is_led(myself.paths):
            assert time.monotonic() < deadline, "the hub does not end"
            time.sleep(0.01)
        shutil.rmtree(base)
    assert seen[0] == seen[1] == seen[2]
    kinds = {"d": 0o700, "-": 0o600, "s": 0o700}
    assert {mode for _kind, mode in seen[0].values()} == {0o600, 0o700}
    assert not {name: found for name, found in seen[0].items() if kinds[found[0]] != found[1]}
    assert len(seen[0]) >= 12, seen[0]


def test_directories_on_the_way_to_a_new_channel_are_private_too(myself: Any) -> None:
    """Else whoever can write there exchanges what stands below."""
    base = Path(myself.paths.base, "a", "b")
    myself.run("send", "--to", "bob", "--text", "x", umask=0, INTERCOM_DIR=str(base)).ok()
    for place in (base.parent.parent, base.parent, base):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_hub_that_is_started_and_finds_a_planted_log_says_so_to_its_starter(
    myself: Any,
) -> None:
    """Not that no hub can be had, which would be a reason to go on without one."""
    myself.paths.prepare()
    os.symlink("/etc/hostname", myself.paths.log)
    for words in (("peers",), ("send", "--to", "bob", "--text", "x"), ("init",)):
        refused = myself.run(*words, INTERCOM_NO_SPAWN="")
        assert (refused.status, refused.result["code"]) == (77, "UNSAFE_PLACE")
        assert f"{myself.paths.log} is a symbolic link" in refused.result["message"]
    assert not os.path.exists(myself.paths.inbox("bob"))


def test_last_words_are_not_read_through_a_link(myself: Any) -> None:
    """What a hub said last is shown; what another file says is not."""
    myself.paths.prepare()
    secret = Path(myself.paths.base, "secret")
    secret.write_text("precious")
    os.symlink(secret, myself.paths.spawn_output)
    assert spawn._last_words(myself.paths) == ""
    os.unlink(myself.paths.spawn_output)
    os.mkfifo(myself.paths.spawn_output)
    assert spawn._last_words(myself.paths) == ""
    os.unlink(myself.paths.spawn_output)
    secret.rename(myself.paths.spawn_output)
    assert spawn._last_words(myself.paths) == "precious"


IN_A_SANDBOX = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from intercom.paths import ChannelPaths
paths = ChannelPaths(sys.argv[2], "c")
paths.prepare()
print(json.dumps([os.geteuid(), os.lstat("/").st_uid, os.listdir(paths.base)]))
"""


def test_in_a_user_namespace_of_its_own_a_sandbox_finds_its_place(commons: Path) -> None:
    """There root's directories seem to belong to nobody, for root is not known."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("not run: needs unshare")
    root = Path(__file__).resolve().parents[2]
    caches = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(root / "intercom", commons / "copy" / "intercom", ignore=caches)
    command = [unshare, "--map-root-user", sys.executable]
    if os.geteuid() == 0:  # root would be known there, and its own interpreter to root only
        user = ("--reuid=65001", "--regid=65001", "--clear-groups")
        command = ["setpriv", *user, *command[:2], "/usr/bin/python3"]
    command += ["-I", "-c", IN_A_SANDBOX, str(commons / "copy"), str(commons / "base")]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    if "unshare failed" in done.stderr:
        pytest.skip(f"not run: user namespaces are denied here ({done.stderr.strip()})")
    assert done.returncode == 0, done.stderr
    seems, above, found = json.loads(done.stdout)
    assert (seems, found) == (0, ["c"])
    assert above not in (0, os.geteuid()), "root is known there, so nothing was shown"
