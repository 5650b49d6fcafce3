"""The extension bus: who owns a namespace, messages within it, its state."""

from __future__ import annotations

from collections.abc import Iterable

from intercom.core.bus.directory import Session
from intercom.core.bus.effects import LoadState, SaveState
from intercom.core.bus.extensions import Owner, State
from intercom.core.bus.keys import state_namespace
from intercom.core.bus.turns import Step, Work
from intercom.core.bus.world import World
from intercom.wire.pi import replies
from intercom.wire.pi.extensions import commit_fault, publish_fault
from intercom.wire.pi.requests import (
    CapabilitiesUpdate,
    CommitRefusal,
    ExtensionPublish,
    StateCommit,
)

NO_SESSION = "Session not found"


class Sharing:
    """Extensions of this dialect's clients."""

    def __init__(self, world: World) -> None:
        self._world = world

    # -- owners

    def announce_owners(self) -> None:
        """Somebody came, left or changed: tell all that have a namespace who owns it now."""
        world = self._world
        for (scope, namespace), owner in world.extensions.elect(world.directory.everybody()):
            frame = replies.extension_owner(namespace, _told(owner))
            world.tell(self._capable(scope, namespace), frame)

    def introduce(self, number: int, session: Session, namespaces: Iterable[str]) -> Work:
        """Tell a connection owner and state of its namespaces, in its own order."""
        world, scope = self._world, session.key.scope
        for namespace in namespaces:
            state = yield from self._state(scope, namespace)
            owner = world.extensions.owner(scope, namespace)
            world.say(number, replies.extension_owner(namespace, _told(owner)))
            if state.revision:
                frame = replies.extension_state(namespace, state.revision, state.payload)
                world.say(number, frame)

    def update(self, number: int, session: Session, said: CapabilitiesUpdate) -> Work:
        """A session has other extensions from now on."""
        spaces = [(one.namespace, one.owner_eligible) for one in said.extensions]
        self._world.extensions.advertise(number, spaces)
        self.announce_owners()
        yield from self.introduce(number, session, [namespace for namespace, _ in spaces])

    def _capable(self, scope: str | None, namespace: str) -> list[Session]:
        world = self._world
        return [one for one in world.directory.of(scope) if world.extensions.has(one, namespace)]

    # -- messages

    def publish(self, number: int, session: Session, said: ExtensionPublish) -> None:
        """Pass a message on to the owner of a namespace, or to all that have it."""
        world, scope = self._world, session.key.scope
        owner = world.extensions.owner(scope, said.namespace)
        epoch = None if owner is None else owner.epoch
        fault = publish_fault(said, epoch, _owns(owner, number))
        if fault is not None:
            world.say(number, replies.error(fault))
            return
        audience = self._capable(scope, said.namespace)
        if said.audience == "owner":
            audience = [one for one in audience if _owns(owner, one.number)]
        told = _told(owner)
        frame = replies.extension_message(said.namespace, session.key.id, told, said.payload)
        world.tell(audience, frame)

    # -- state

    def refused(self, number: int, session: Session, refusal: CommitRefusal) -> Work:
        """A commit that is none; the answer may name the revision that counts."""
        revision = 0
        if refusal.tells_revision:
            state = yield from self._state(session.key.scope, refusal.namespace)
            revision = state.revision
        self._tell_result(number, refusal.namespace, revision, refusal.reason)

    def commit(self, number: int, session: Session, said: StateCommit) -> Work:
        """Replace the state of a namespace, if nobody did since; then tell all that have it."""
        world, scope, namespace = self._world, session.key.scope, said.namespace
        state = yield from self._state(scope, namespace)
        while state.saving:
            yield ("state", scope, namespace)
        owner = world.extensions.owner(scope, namespace)
        epoch = None if owner is None else owner.epoch
        fault = commit_fault(said, epoch, _owns(owner, number))
        if fault is None and said.expected_revision != state.revision:
            fault = "Revision mismatch"
        if fault is None:
            fault = yield from self._save(scope, said, state)
        self._tell_result(number, namespace, state.revision, fault)
        if fault is None:
            frame = replies.extension_state(namespace, state.revision, state.payload)
            world.tell(self._capable(scope, namespace), frame)

    def _save(self, scope: str | None, said: StateCommit, state: State) -> Step[str | None]:
        """Write a new state; why that failed, if it did."""
        world, ticket = self._world, self._world.ticket()
        revision = state.revision + 1
        name = state_namespace(scope, said.namespace)
        world.do(SaveState(ticket, name, revision, said.payload))
        state.saving = True
        saved = yield ("saved", ticket)
        state.saving = False
        if saved:
            state.revision, state.payload = revision, said.payload
        world.turns.answer(("state", scope, said.namespace))
        return None if saved else "Failed to persist extension state"

    def _state(self, scope: str | None, namespace: str) -> Step[State]:
        """The state of a namespace, read from its file at first."""
        world = self._world
        state = world.extensions.state(scope, namespace)
        if state is None:
            ticket = world.ticket()
            world.do(LoadState(ticket, state_namespace(scope, namespace)))
            revision, payload = yield ("loaded", ticket)
            state = world.extensions.loaded(scope, namespace, revision, payload)
        return state

    def _tell_result(self, number: int, namespace: str, revision: int, fault: str | None) -> None:
        frame = replies.extension_state_result(namespace, fault is None, revision, fault)
        self._world.say(number, frame)


def _owns(owner: Owner | None, number: int) -> bool:
    return owner is not None and owner.number == number


def _told(owner: Owner | None) -> tuple[str, str] | None:
    return None if owner is None else (owner.key.id, owner.epoch)
