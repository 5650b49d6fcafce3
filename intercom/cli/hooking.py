"""What ``intercom hook`` does: one event of a host, answered in that host's form, or nothing.

Loads no click, since it runs at every prompt. Whatever goes wrong is said on standard error,
and its status is 0: hosts take any other for a reason to stop the agent, or to go on.
"""

from __future__ import annotations

import os

from intercom.cli import output
from intercom.errors import IntercomError
from intercom.hooks.hosts import HOSTS
from intercom.settings.lookup import Settings
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def call(words: Sequence[str], by_click: Callable[[list[str]], int]) -> int:
    """Do what a command line behind ``hook`` says; never raises.

    :param by_click: reads a whole line that is more than a host and an event.
    :return: the status, which is 0.
    """
    try:
        if len(words) == 2 and not any(word.startswith("-") for word in words):
            work(words[0], words[1], Settings(os.environ))
        else:
            by_click(["hook", *words])
    except KeyboardInterrupt:
        pass
    except Exception as error:  # a bug of ours is no reason to stop an agent, either
        output.note(f"hook: {error!r}")
    return 0


def work(host_name: str, word: str, settings: Settings, command: str | None = None) -> None:
    """Answer one event, on standard output.

    :param command: how a shell reads the mail, where that needs more than the verb.
    """
    try:
        _answer(host_name, word, settings, command)
    except IntercomError as error:
        output.note(f"hook: {error.text}\n  {error.remedy or 'see: intercom doctor'}")
    except OSError as error:
        output.note(f"hook: {error}")


def _answer(host_name: str, word: str, settings: Settings, command: str | None) -> None:
    host = HOSTS.get(host_name)
    event = None if host is None else host.event(word)
    if host is None or event is None:
        known = (f"{one.name} {moment.word}" for one in HOSTS.values() for moment in one.events)
        output.note(f"hook: {host_name} {word} is none of ours\n  these are: {', '.join(known)}")
        return
    if host.is_stranger(os.environ):
        return
    from intercom.hooks.calls import Surroundings, answer, read_input

    said = {} if os.isatty(output.STDIN) else read_input(output.STDIN)
    at = Surroundings.here(settings.paths(), os.environ)
    found = answer(host, event, said, at if command is None else at._replace(command=command))
    if found:
        output.write(output.to_json(found) + b"\n")
