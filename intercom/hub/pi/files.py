"""The small files behind the bus: pending asks, extension states, the roll; off the reactor.

One worker does all of it in the order of asking, and one of its own looks at the directories
that clients name, since those may lie where nothing answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from twisted.internet.defer import Deferred

from intercom.core.bus.directory import Known
from intercom.errors import IntercomError, SpoolError
from intercom.interfaces import IWorker
from intercom.paths import ChannelPaths
from intercom.pi import askfiles, moving, rollfile, statefiles
from intercom.pi.calls import Calls
from intercom.pi.places import Places, prepare_directory
from intercom.pi.stagedfile import StagedFile
from intercom.records import Entry


class Found(NamedTuple):
    """What earlier hubs left.

    :ivar asks: the hash of each one's scope, and what its file holds.
    :ivar staged: what they had accepted and put into no inbox, with its marks.
    :ivar troubles: what could not be read, in words for the log.
    """

    asks: list[tuple[str | None, dict[str, Any]]]
    roll: list[Known]
    troubles: list[str]
    staged: list[tuple[str, Entry]]


class BusFiles:
    """Reads and writes them.

    :param worker: does it. :param looker: resolves directories; the caller ends both.
    :param now: milliseconds since 1970.
    """

    def __init__(
        self,
        worker: IWorker,
        looker: IWorker,
        paths: ChannelPaths,
        now: Callable[[], int],
        calls: Calls | None = None,
    ) -> None:
        self._worker = worker
        self._looker = looker
        self._paths = paths
        self._now = now
        self._calls = calls or Calls()
        self._asks = paths.file("pending-asks")
        self._states = paths.file("extension-state")
        self._staged = StagedFile(paths, self._calls)
        self._era = f"{now()}:"  # marks of two hubs are not the same

    def quit(self) -> Deferred[None]:
        """Finish what was asked. A directory that is still looked at is not waited for."""
        self._looker.quit()
        return self._worker.quit()

    def start(self) -> Deferred[Found]:
        """Read what earlier hubs left."""
        return self._worker.do(self._start)

    def _start(self) -> Found:
        found = self._load()
        try:
            return found._replace(staged=self._staged.load())
        except (IntercomError, OSError) as error:
            return found._replace(troubles=[*found.troubles, str(error)])

    def take(self, places: Places) -> Deferred[Found]:
        """Keep asks and states in the clients' own directory, and bring there what we have.

        :raise IntercomError: it cannot be done; then they stay where they are.
        """
        return self._worker.do(self._take, places)

    def _take(self, places: Places) -> Found:
        statefiles.open_states(places.states, self._calls)
        prepare_directory(places.asks)
        moving.bring_asks(self._asks, places.asks, self._now(), self._calls)
        moving.bring_states(self._states, places.states, self._calls)
        self._asks, self._states = places.asks, places.states
        return self._load()

    def _load(self) -> Found:
        asks, troubles = [], []
        if os.path.isdir(self._asks):
            try:
                sweep = askfiles.load(self._asks, self._now(), self._calls)
                asks = [(ask.scope, _record(ask)) for ask in sweep.asks]
                troubles += [f"{path}: {why}" for path, why in sweep.failed]
            except IntercomError as error:
                troubles.append(error.text)
        records, trouble = rollfile.load(self._paths)
        roll = []
        for record in records:
            try:
                roll.append(msgspec.convert(record, Known))
            except msgspec.ValidationError as error:
                trouble = trouble or f"a session on the roll is none: {error}"
        return Found(asks, roll, [*troubles, *filter(None, [trouble])], [])

    # -- asks

    def save_ask(self, scope: str | None, record: dict[str, Any]) -> Deferred[None]:
        """Write the file of a pending ask; fails as :func:`askfiles.save` raises."""
        return self._worker.do(lambda: askfiles.save(self._asks, _ask(scope, record), self._calls))

    def remove_ask(self, scope: str | None, message_id: str) -> Deferred[None]:
        """Remove it, if it is there."""
        return self._worker.do(lambda: askfiles.remove(self._asks, message_id, scope, self._calls))

    # -- states

    def load_state(self, namespace: str) -> Deferred[tuple[int, Any]]:
        """Revision and payload of a state; 0 if there is none."""
        return self._worker.do(self._load_state, namespace)

    def _load_state(self, namespace: str) -> tuple[int, Any]:
        state = statefiles.load(self._states, namespace, self._calls)
        return (0, None) if state is None else (state.revision, state.payload)

    def save_state(self, namespace: str, revision: int, payload: Any) -> Deferred[None]:
        """Replace a state durably by the next revision; fails if that is not kept."""
        return self._worker.do(self._save_state, namespace, revision, payload)

    def _save_state(self, namespace: str, revision: int, payload: Any) -> None:
        statefiles.open_states(self._states, self._calls)
        done = statefiles.commit(
            self._states, namespace, revision - 1, payload, now=self._now(), calls=self._calls
        )
        if not done.committed:
            raise SpoolError(done.cause or f"the state was not kept: {done.reason}")

    # -- what waits to be put into an inbox

    def save_staged(self, mark: int, entry: Entry) -> Deferred[None]:
        """Remember a message that was accepted."""
        return self._worker.do(self._staged.save, f"{self._era}{mark}", entry)

    def drop_staged(self, mark: int | str) -> Deferred[None]:
        """Remember it no longer."""
        named = f"{self._era}{mark}" if isinstance(mark, int) else mark
        return self._worker.do(self._staged.drop, named)

    # -- who is known

    def save_roll(self, roll: Sequence[Known]) -> Deferred[None]:
        """Write down who is known."""
        return self._worker.do(self._save_roll, list(roll))

    def _save_roll(self, roll: list[Known]) -> None:
        rollfile.save(self._paths, [msgspec.to_builtins(one) for one in roll])

    def resolve(self, directory: str) -> Deferred[str]:
        """What directory a path leads to; where that cannot be found out, the cleaned path."""
        return self._looker.do(resolved, directory)


def resolved(directory: str) -> str:
    """A path cleaned as it is written, then without links; only cleaned if there is no such one."""
    cleaned = os.path.abspath(directory.replace("\0", ""))
    try:
        return os.path.realpath(cleaned, strict=True)
    except OSError:
        return cleaned


def _record(ask: askfiles.Ask) -> dict[str, Any]:
    """A pending ask as the bus takes it."""
    return {
        "messageId": ask.message_id,
        "asker": {"sessionId": ask.asker, "name": ask.asker_name},
        "target": {"sessionId": ask.target, "name": ask.target_name},
        "createdAt": ask.created_at,
        "expiresAt": ask.expires_at,
    }


def _ask(scope: str | None, record: dict[str, Any]) -> askfiles.Ask:
    """A pending ask as its file takes it."""
    asker, target = record["asker"], record["target"]
    return askfiles.Ask(
        record["messageId"],
        asker["sessionId"],
        asker["name"],
        target["sessionId"],
        target["name"],
        record["question"],
        record["createdAt"],
        record["expiresAt"],
        scope,
    )
