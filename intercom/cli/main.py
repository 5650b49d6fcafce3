"""The command ``intercom``: runs a verb, and turns every failure into words and a status.

A verb's module is imported when it is called, so that none pays for another's
imports; the list of verbs with their one-line help stands here. Plain lines of the
verbs that agents use most are read without click (:mod:`intercom.cli.quick`).
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from intercom.cli import output, quick
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

#: verb: (module, attribute, one line of help), in the order in which help lists them.
VERBS = {
    "init": ("intercom.cli.init", "init", "Take a place on the channel and start afresh."),
    "name": ("intercom.cli.name", "name", "Show who you are, or be called otherwise."),
    "forget": ("intercom.cli.forget", "forget", "Remove a name, and tell what it had unread."),
    "send": ("intercom.cli.send", "send", "Send a message, its text from standard input."),
    "poll": ("intercom.cli.poll", "poll", "Show what lies unread."),
    "listen": ("intercom.cli.listen", "listen", "Show what lies unread, then whatever comes."),
    "peers": ("intercom.cli.peers", "peers", "Show who is here."),
    "status": ("intercom.cli.status", "status", "Show how far a message has come."),
    "ack": ("intercom.cli.ack", "ack", "Say how far messages were dealt with."),
    "dead": ("intercom.cli.dead", "dead", "Show what was given up unread."),
    "hook": ("intercom.cli.hook", "hook", "Tell an agent that mail waits, as its host asks."),
    "skill": ("intercom.cli.skill", "skill", "Print what an agent has to know of this."),
    "config": ("intercom.cli.config", "config", "Show what is set and who says so; set it."),
    "paths": ("intercom.cli.paths", "paths", "Show where everything is, and what that promises."),
    "version": ("intercom.cli.version", "version", "Show the versions of command and hub."),
    "hub": ("intercom.cli.hub", "hub", "Start, stop, look at and replace the channel's hub."),
    "doctor": ("intercom.cli.doctor", "doctor", "Find what is wrong with a channel; cure it."),
    "cleanup": ("intercom.cli.cleanup", "cleanup", "Remove what the dead left, or all sessions."),
    "mcp": ("intercom.cli.mcp", "mcp", "Serve an agent's host with tools of MCP."),
    "pi-broker": ("intercom.cli.pi_broker", "pi_broker", "Serve pi-intercom and pi-subagents."),
    "daemon": ("intercom.cli.daemon", "daemon", "Run the channel's hub in the foreground."),
}

INTERRUPTED = 130


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status (see ``intercom.errors``)."""
    output.secure_descriptors()
    if arguments is None:
        gc.disable()  # until all is loaded, which stays
    words = list(sys.argv[1:] if arguments is None else arguments)
    status = _status(words)
    if arguments is None and _may_leave():
        _leave(status)
    sys.exit(status)


def _may_leave() -> bool:
    """Whether nothing is lost, or much is risked, if what is loaded is not taken apart."""
    if sys.getprofile() or sys.gettrace():
        return False  # what is measured is told at the end
    if {"intercom.bridge.main", "intercom.hub.service"} & sys.modules.keys():
        return True  # their threads die holding locks, for which what is taken apart may wait
    return not {"click", "threading"} & sys.modules.keys()


def _leave(status: int) -> None:
    """End at once: of a short life, to take its modules apart would be a good part."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):  # all that is ours was written already
        if stream is not None:
            stream.flush()
    os._exit(status)


def _status(words: list[str]) -> int:
    """Run one command line; every expected failure becomes words and a status."""
    if words[:1] == ["hook"]:
        return _hook(words[1:])
    line = quick.read(words, os.environ)
    try:
        return _by_click(words) if line is None else _quickly(line)
    except BaseException as error:
        from intercom.cli.scope import format_of  # the verb has loaded it

        is_spoken_to = words[:1] == ["mcp"]  # then standard output is for that conversation only
        as_json = not is_spoken_to and output.wants_json(format_of(words))
        status = output.fail(error, as_json)
        if status is None:
            raise
        return status


def _hook(words: list[str]) -> int:
    """Run a hook, which has its own way with failures."""
    from intercom.cli import hooking

    return hooking.call(words, lambda line: _by_click(line, as_json=False))


def _by_click(words: list[str], as_json: bool | None = None) -> int:
    gc.enable()
    from intercom.cli import group  # loads click

    return group.call(words, as_json)


def _quickly(line: quick.Line) -> int:
    """Do what a line says that was read without click, as click would have it done."""
    closing: list[Callable[[], object]] = []
    try:
        from intercom.cli.scope import Given

        verb: Any = __import__(line.work, fromlist=("work",))
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return verb.work(Given(line.common.get, closing.append), **line.values) or 0
    except KeyboardInterrupt:
        output.write(b"\n", output.STDERR)
        return INTERRUPTED
    finally:
        while closing:
            closing.pop()()
