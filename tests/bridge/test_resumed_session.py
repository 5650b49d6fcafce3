"""The bridge of a session that Claude Code has resumed has the name of the session's commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.bridge.resumed import VARIABLE, environ_of_session
from intercom.client.processes import Table


def noted(place: Path, host: int, **changed: Any) -> dict[str, str]:
    """What a host's process has noted of its session; and the environment of a bridge of it."""
    status = Table().status(host)
    if status is None:
        pytest.skip("no /proc to see processes in")
    told = {"pid": host, "procStart": str(status.start), "sessionId": "the-old-one"} | changed
    (place / "sessions").mkdir(exist_ok=True)
    (place / "sessions" / f"{host}.json").write_text(json.dumps(told))
    return {VARIABLE: "a-new-one", "CLAUDE_CONFIG_DIR": str(place), "HOME": str(place)}


def test_the_id_is_that_which_the_host_has_noted(tmp_path: Path) -> None:
    environ = noted(tmp_path, os.getppid())
    assert environ_of_session(environ, Table()) == environ | {VARIABLE: "the-old-one"}
    home = tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    environ = noted(home / ".claude", os.getppid()) | {"HOME": str(home), "CLAUDE_CONFIG_DIR": ""}
    assert environ_of_session(environ, Table())[VARIABLE] == "the-old-one"


@pytest.mark.parametrize(
    "changed",
    [
        {"procStart": "1"},
        {"procStart": None},
        {"pid": 1},
        {"sessionId": ""},
        {"sessionId": 7},
        {"sessionId": "two\nlines"},
        {"sessionId": "x" * 201},
    ],
    ids=str,
)
def test_what_is_not_surely_the_host_s_own_word_is_not_followed(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    environ = noted(tmp_path, os.getppid(), **changed)
    assert environ_of_session(environ, Table()) == environ


def test_without_such_a_file_or_host_the_environment_holds(tmp_path: Path) -> None:
    environ = noted(tmp_path, os.getppid())
    for text in ("", "{", "[]", "[" * 30_000):
        (tmp_path / "sessions" / f"{os.getppid()}.json").write_text(text)
        assert environ_of_session(environ, Table()) == environ
    elsewhere = environ | {"HOME": "/nowhere", "CLAUDE_CONFIG_DIR": "x"}
    assert environ_of_session(elsewhere, Table()) == elsewhere
    noted(tmp_path, os.getppid())
    other = {"CODEX_THREAD_ID": "t", "CLAUDE_CONFIG_DIR": str(tmp_path)}
    assert environ_of_session(other, Table()) == other


def test_a_bridge_has_the_name_of_its_session_s_commands(
    start: Callable[..., Any], agent: Callable[[str], Any], tmp_path: Path
) -> None:
    environ = noted(tmp_path, os.getpid()) | {"INTERCOM_SESSION": ""}
    own = environ | {VARIABLE: "the-old-one"}
    name = agent("web").run("name", "--id-only", **own).out.decode().strip().strip('"')
    agent("web").run("name", **(own | {VARIABLE: "another"})).ok()
    assert start("web", **environ).call("peers").startswith(f"you are {name} on")
