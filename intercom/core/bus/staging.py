"""Replace mode: a message waits a moment for a later one of its thread, which takes its place.

Nothing of it is in an inbox until the wait ends; then it is delivered as any other. A
replacement begins the wait anew, as with pi-subagents' own broker; but when the first of them
has waited that long already the next one ends it, so that who replaces all the time is heard,
too. And what was accepted is never lost without a word: its sender is told if it is dropped
since the receiver left, and when the hub goes it is put into the inbox. After a crash the next
hub does that: what waits is remembered in a file before its sender hears that it waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from intercom.core.bus.delivering import entry_of
from intercom.core.bus.directory import SUBAGENTS, Session
from intercom.core.bus.effects import DropStaged, SaveStaged, Wake
from intercom.core.bus.judging import GONE, Case, Plan, Undeliverable
from intercom.core.bus.keys import Key
from intercom.core.bus.letters import Content
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.core.effects import Note
from intercom.wire.pi.replies import delivery_failed

#: For so long a message waits for the next of its thread.
DELAY_MS = 1500
#: Messages that wait.
MAX_STAGED = 1000
MAX_OF_A_SENDER = 100
FULL = "Replace-mode delivery queue is full; retry after pending updates are delivered."

#: Sender, receiver, and the thread between them.
Thread = tuple[Key, Key, str]


class Staged(NamedTuple):
    """A message that waits: until ``due`` (epoch ms), and its thread since ``began``.

    :ivar mark: by which it is remembered on disk.
    """

    case: Case
    plan: Plan
    content: Content
    due: int
    began: int
    mark: int


class Stage:
    """What waits."""

    def __init__(self) -> None:
        self._staged: dict[Thread, Staged] = {}
        self._of: Counter[Key] = Counter()

    def __len__(self) -> int:
        return len(self._staged)

    def put(self, staged: Staged) -> tuple[int, Staged | None]:
        """Let a message wait, instead of an earlier one of its thread.

        :return: until when, and the earlier one. :raise Undeliverable: too many wait.
        """
        thread, now = thread_of(staged), staged.began
        before = self._staged.get(thread)
        if before is not None:
            due = now if now - before.began >= DELAY_MS else staged.due
            self._staged[thread] = staged._replace(due=due, began=before.began)
            return due, before
        if len(self) >= MAX_STAGED or self._of[thread[0]] >= MAX_OF_A_SENDER:
            raise Undeliverable(FULL, "E_DELIVERY_FAILED", retryable=True)
        self._staged[thread] = staged
        self._of[thread[0]] += 1
        return staged.due, None

    def due(self, now: int) -> list[Staged]:
        """What has waited long enough, the longest first; it is let go."""
        over = [staged for staged in self._staged.values() if staged.due <= now]
        return self._let_go(sorted(over, key=lambda staged: staged.due))

    def all(self) -> list[Staged]:
        """Everything; it is let go."""
        return self._let_go(list(self._staged.values()))

    def of(self, left: Key) -> list[Staged]:
        """What nobody waits for any more when a session leaves; it is let go."""
        return self._let_go([one for one in self._staged.values() if _is_over(one, left)])

    def _let_go(self, some: list[Staged]) -> list[Staged]:
        for staged in some:
            thread = thread_of(staged)
            del self._staged[thread]
            self._of[thread[0]] -= 1
            if not self._of[thread[0]]:
                del self._of[thread[0]]
        return some


def thread_of(staged: Staged) -> Thread:
    """In which messages take one another's place; the thread's name counts as it is written."""
    message = staged.case.message
    return staged.case.sender.key, staged.plan.target, message["threadId"]


def _is_over(staged: Staged, left: Key) -> bool:
    """Whether a message came to nothing as a session left: to it, or its own question."""
    own = staged.case.sender.key == left
    return staged.plan.target == left or (own and _asks(staged.case))


def _asks(case: Case) -> bool:
    return case.message.get("expectsReply") is True


class Staging:
    """Lets messages wait.

    :param bring: delivers one, and raises ``Undeliverable`` if that cannot be done.
    """

    def __init__(self, world: World, bring: Callable[[Staged], Work]) -> None:
        self._world = world
        self._bring = bring
        self._stage = Stage()
        self._untold: dict[int, str] = {}  # why they failed before it was said that they wait

    def put(self, case: Case, plan: Plan, content: Content, line: bytes) -> Work:
        """Let a message wait.

        :raise Undeliverable: too many do, or it has failed already.
        """
        world, now, mark = self._world, self._world.now, self._world.ticket()
        staged = Staged(case, plan, content, now + DELAY_MS, now, mark)
        due, before = self._stage.put(staged)
        world.do(Wake(due))
        keeps = not _asks(case)  # a question is over when its sender is gone
        if keeps:
            world.do(SaveStaged(mark, entry_of(case, plan, line, world.level)))
        if before is not None:
            world.do(DropStaged(before.mark))
        if keeps:
            self._untold[mark] = ""
            yield ("saved", mark)  # where it is not, the message waits all the same
            if reason := self._untold.pop(mark):
                raise Undeliverable(reason, "E_DELIVERY_FAILED")

    def tick(self) -> None:
        """Time has passed: deliver what has waited long enough."""
        for staged in self._stage.due(self._world.now):
            self._deliver(staged)

    def flush(self) -> None:
        """The hub goes: what waits is put into its inbox, for a later hub to bring."""
        for staged in self._stage.all():
            self._deliver(staged)

    def left(self, session: Session) -> None:
        """A session left: what waited for it is dropped, and so are its own questions."""
        for staged in self._stage.of(session.key):
            if staged.plan.elsewhere and staged.plan.target == session.key:
                self._deliver(staged)  # it lies there until it comes back
            else:
                self._fail(staged, GONE[0])

    def _deliver(self, staged: Staged) -> None:
        self._world.turns.start(self._delivery(staged), lambda: None)

    def _delivery(self, staged: Staged) -> Work:
        try:
            yield from self._bring(staged)
        except Undeliverable as no:
            self._fail(staged, no.reason)
        else:
            self._world.do(DropStaged(staged.mark))

    def _fail(self, staged: Staged, reason: str) -> None:
        """What was accepted goes nowhere: its sender hears it if it is here."""
        world, message_id = self._world, staged.case.message["id"]
        world.do(DropStaged(staged.mark))
        fields = {"message": message_id, "to": staged.plan.target.id, "reason": reason}
        world.do(Note("staged_message_failed", fields))
        if staged.mark in self._untold:
            self._untold[staged.mark] = reason
            return
        sender = world.directory.get(staged.case.sender.key)
        if sender is not None and sender.dialect == SUBAGENTS:
            world.say(sender.number, delivery_failed(message_id, reason))
