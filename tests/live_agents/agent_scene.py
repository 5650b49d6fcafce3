"""A person at a shell whom agents ask, and what the tests of them have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from agent_home import AgentHome, Finished
from agent_programs import Program
from fake_model import FakeModel
from transcript import Transcript
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

Installed = Callable[[Program], Path]
Make = Callable[..., FakeModel]
QUESTION = "May I change the schema of /orders?"
ANSWER = "Yes, but keep `total`; the tests read it."
TASK = "Ask the person at the shell whether you may change the schema."
LOOKS = 200


class Shell:
    """A person at a shell, in a project of the same home."""

    def __init__(self, home: AgentHome, transcript: Transcript) -> None:
        self.home = home
        self.transcript = transcript
        self.project = home.project("shell")

    async def types(self, *words: str, stdin: str = "") -> str:
        """Run a command, and return what it prints as text."""
        done: Finished = await deferToThread(
            self.home.run,
            self.project,
            "intercom",
            *words,
            stdin=stdin,
            INTERCOM_SESSION="shell",
            INTERCOM_FORMAT="text",
        )
        printed = done.ok() + done.err
        shown = " ".join(("intercom", *words))
        self.transcript.hear("shell", f"echo '{stdin}' | {shown}" if stdin else shown, printed)
        return printed

    async def until_somebody_is_here(self) -> None:
        """Look until a session is connected."""
        for _ in range(LOOKS):
            done = await deferToThread(self.home.run, self.project, "intercom", "--json", "peers")
            if json.loads(done.ok())["sessions"]:
                return
            await deferLater(reactor, 0.2)
        raise AssertionError("nobody came")


def to_the_end(*models: FakeModel) -> None:
    """Every script came to its end, and nothing else was asked for."""
    for one in models:
        assert not one.script.mishaps
        assert one.script.over()


async def answered(shell: Shell) -> str:
    """The person hears the question and answers it; return which message it was."""
    heard = await shell.types("poll", "--wait", "60")
    message, sender = head(heard)
    assert QUESTION in heard
    await shell.types("send", "--to", sender, "--reply-to", message, stdin=ANSWER)
    return message


def head(shown: str) -> tuple[str, str]:
    """The id and the sender of the message that is shown."""
    found = re.search(r"^\[intercom \w+ (msg_\w+) from ([\w-]+)", shown, re.MULTILINE)
    assert found, shown
    return found[1], found[2]


def heard_the_answer(message: str, shown: str) -> None:
    """The answer to this message is among what is shown."""
    heads = rf"\[intercom \w+ msg_\w+ from shell[^\]]* in reply to {message}[^\]]*\]\n"
    assert re.search(rf"{heads}(\| )?{re.escape(ANSWER)}\n", shown), shown
