"""What a person sees of sessions that speak other dialects."""

from __future__ import annotations

import os
import subprocess
import sys

from mesh_hub import Hub
from pi_broker_process import until


def command(hub: Hub, *words: str) -> str:
    """What a command prints for a person."""
    begin = [sys.executable, "-m", "intercom", "--dir", str(hub.channels), "--channel", "pi"]
    environ = {**hub.surroundings(), "INTERCOM_FORMAT": "text"}
    done = subprocess.run(
        [*begin, *words], env=environ, cwd=hub.home, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_peers_shows_by_which_name_a_session_can_be_written_to(hub: Hub) -> None:
    ada = hub.join("id-of-ada", session={"name": "Ada [x]", "pid": os.getpid()})
    hub.subagents("id-of-sue", name="sue")
    named = f'  id-of-ada, called "Ada \\x5bx\\x5d", pi-intercom, pid {os.getpid()}: reading'
    sue = "  id-of-sue, called sue, pi-subagents: reading"
    until(
        lambda: {named, sue} <= {*command(hub, "peers", "--session", "bob").splitlines()},
        "they are not shown as those who read",
    )
    command(hub, "send", "--session", "bob", "--to", "ada [x]", "--text", "hello")
    assert ada.take("message")["message"]["content"]["text"] == "hello"
