"""Every public interface of intercom, and nothing else.

An interface exists only where there are two implementations, one of them in
memory; both pass the same contract tests (``tests/contract``). Unless a method
says otherwise it is called in the reactor's thread and fires there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from intercom.core.effects import Effect, TakeBack
    from intercom.errors import IntercomError
    from intercom.messages import Credentials, Message, Reply
    from intercom.records import (
        Batch,
        Entry,
        Moved,
        Outcome,
        Position,
        Receiver,
        Record,
        Remembered,
    )


class IRouter(Interface):
    """The hub's state machine: pure, synchronous; every input returns its effects in order.

    Times are ``now`` in seconds of any monotonic clock; connections are numbers that
    the caller draws and never reuses. No method raises on bad input from a peer.
    """

    pending: int = Attribute("Entries given to the spool of which the last word is not heard.")

    def claim_of(connection: int) -> str | None:
        """The session id that a connection holds or claims, None before its first line."""

    def receivers(now: float) -> Sequence[Receiver]:
        """Who is pushed messages, and has been for longer than a client that only sends stays."""

    def claims(session: str) -> bool:
        """Whether a connection holds or claims this id."""

    def connected(
        connection: int, credentials: Credentials, needs_key: bool, now: float
    ) -> list[Effect]:
        """A connection was accepted; with ``needs_key`` its first line must carry the key.

        Are there too many that have not said who they are, those silent for longest are told
        ``TOO_MANY_SESSIONS`` and closed.
        """

    def begun(connection: int, now: float) -> list[Effect]:
        """A part of its first line is here: it has more time to say the rest. Idempotent."""

    def submit(connection: int, message: Message, now: float) -> list[Effect]:
        """A connection said something. Unknown or already closed connections are ignored."""

    def garbled(connection: int, error: IntercomError, now: float) -> list[Effect]:
        """A connection sent a line that its dialect refuses; it is told so and goes on."""

    def admitted(connection: int, token: str | None, now: float) -> list[Effect]:
        """An :class:`~intercom.core.effects.Admit` is done."""

    def disconnected(connection: int, now: float) -> list[Effect]:
        """A connection is gone, all of its input handled. Idempotent."""

    def written(outcomes: Sequence[Outcome], now: float) -> list[Effect]:
        """The spool's writer reports, per inbox in file order.

        What goes to a live connection is also said as ``NotePushed``. An entry called stored
        early, at level ``memory``, and refused now brings its sender a notice.
        """

    def stored(tickets: Sequence[int], level: str, now: float) -> list[Effect]:
        """Entries reported ``written`` are now as safe as ``level`` says."""

    def inbox_read(connection: int, batch: Batch, now: float) -> list[Effect]:
        """A :class:`~intercom.core.effects.ReadInbox` is done: its lines are pushed, and noted."""

    def inbox_unreadable(connection: int, error: IntercomError, now: float) -> list[Effect]:
        """A :class:`~intercom.core.effects.ReadInbox` failed; it is tried again at a later tick."""

    def commit_refused(
        connection: int, error: IntercomError, message_id: str | None, now: float
    ) -> list[Effect]:
        """A :class:`~intercom.core.effects.CommitPosition` failed."""

    def paused(connection: int, now: float) -> list[Effect]:
        """A connection does not drain: its pushes stop, its cursor lags. Idempotent."""

    def drained(connection: int, now: float) -> list[Effect]:
        """All that was written to a connection has left; pushes go on from where they stopped."""

    def seen(sessions: dict[str, float | None], now: float) -> list[Effect]:
        """Session names found on disk, each with how many seconds ago it read, or None."""

    def remembered(messages: Iterable[Remembered], now: float) -> list[Effect]:
        """What earlier hubs of the channel stored lately, oldest first; told once, at first.

        A retry of one of these is an entry for each of *its* inboxes, and is answered when the
        spool has said how safe each is. Other content is refused as ``MESSAGE_ID_REUSE``.
        """

    def moved(moves: Sequence[Moved], now: float) -> list[Effect]:
        """Lines of inboxes were shown, read or skipped, whoever did it.

        Senders with the feature ``progress`` are told of their own messages: each state once
        per recipient, on the connection that sent it, and nothing after ``read`` or
        ``skipped``. Who counts as present is not changed by it (see ``seen``).
        """

    def elsewhere_changed(now: float) -> list[Effect]:
        """Sessions of other dialects came, left or changed."""

    def pushed_elsewhere(
        inbox: str, generation: int, start: int, end: int, now: float
    ) -> list[Effect]:
        """A line was written to a connection of another dialect."""

    def taken_back(back: TakeBack, found: bool, now: float) -> list[Effect]:
        """Whether another core knew a message that is taken back, and has told its receiver."""

    def notice(to: str, text: str, about: str, details: dict[str, Any], now: float) -> list[Effect]:
        """Another core has something to say to a session; nothing happens if it is unknown."""

    def forgotten(sessions: Sequence[str], now: float) -> list[Effect]:
        """Names of which nothing is left on disk: unless connected, nobody knows them."""

    def open_desk(connection: int, now: float) -> list[Effect]:
        """Begin to read the hub's own inbox; what lies there is pushed to ``connection``.

        Each line pushed there is to come back as ``filed`` (or ``misfiled``), and the
        cursor that follows them as ``desk_read``.
        """

    def filed(message: Message, now: float) -> list[Effect]:
        """A line of the hub's inbox, decoded: it is handled as if it had come by socket."""

    def misfiled(sender: str, message_id: str, error: IntercomError, now: float) -> list[Effect]:
        """A line of the hub's inbox that its dialect refuses: its sender gets a notice."""

    def desk_read(position: Position, now: float) -> list[Effect]:
        """All lines of the hub's inbox up to ``position`` have come back."""

    def expired(inbox: str, records: Sequence[Record], now: float) -> list[Effect]:
        """Unread messages of an inbox were dropped: each known sender gets one notice of his."""

    def tick(now: float) -> list[Effect]:
        """Time has passed: pings, silent peers, retries. Call about once a second."""

    def closing(now: float) -> list[Effect]:
        """The hub is going: everybody is told ``SHUTTING_DOWN`` and closed."""


class ISpoolListener(Interface):
    """Who is told what became of entries. Methods must not raise."""

    def written(outcomes: Sequence[Outcome]) -> None:
        """Entries reached their inbox files, or will not, and lines of others were found.

        Per inbox in file order: what others appended comes before the entry that was
        appended behind it. Every entry is reported exactly once, as Written or Refused.
        A compaction is told (Shifted) before anything of the generation that it began;
        what it has kept is not told again.
        """

    def stored(tickets: Sequence[int], level: str) -> None:
        """These written entries are now safe to ``level``, the level *really* reached.

        Called once per written entry, after its ``written``; never for a failed sync.
        """

    def unsynced(tickets: Sequence[int], text: str) -> None:
        """A sync failed: these are written, yet nobody may ever be told that they are safe."""

    def remembered(messages: Iterable[Remembered]) -> None:
        """Messages that earlier hubs stored lately, oldest first. Told before ``seen``, once.

        Their ids are spent: the same message again is appended nowhere, and reported
        as ``duplicate`` for each of the inboxes that have (or had) it.
        """

    def moved(moves: Sequence[Moved]) -> None:
        """Lines were ``shown``, ``read`` or ``skipped``, by our own commits or others'.

        Per inbox in the order in which it happened; each once.
        """

    def seen(sessions: dict[str, float | None]) -> None:
        """Sessions known by their files, each with the seconds since it last read (None: never)."""

    def forgotten(sessions: Sequence[str]) -> None:
        """Sessions of which no file shows that they were used (any more); perhaps repeatedly."""


class ISpool(Interface):
    """The inboxes of one channel: append-only files of lines, and how far each was read.

    All-or-nothing per entry, ordered per inbox by the order of ``append`` calls; a busy
    lock delays only its own inbox and ends as ``INBOX_LOCKED`` after two seconds. No order
    across inboxes is promised.
    """

    def open(listener: ISpoolListener) -> Deferred[None]:
        """Begin: report known sessions to ``listener.seen``, watch for lines of others."""

    def append(entries: Sequence[Entry]) -> None:
        """Store entries; outcomes go to the listener, in a later turn.

        Idempotent by sender and id within what the inbox's tail still shows. After
        ``close`` every entry is reported Refused.
        """

    def read(inbox: str, start: Position | None, limit: int) -> Deferred[Batch]:
        """Read complete lines, about ``limit`` bytes (at least one line if there is one).

        :param start: where to begin, or None for the stored position. A start of an older
            generation, or past the end, begins at the current generation's start.
        :raise SpoolError: the file cannot be read or stays locked.
        """

    def commit(inbox: str, position: Position, state: str = "read") -> Deferred[Position]:
        """Move the stored position forward; fires with what is stored now.

        They may gather for 0.2 s (1 s where hundreds are busy), until :meth:`hurry`.
        :param state: ``read``, or ``skipped`` for what is passed without being shown.
            ``shown`` moves nothing, and is only remembered; fires with the stored position.

        Monotonic: a position behind the stored one changes nothing. Durable against the
        death of any process, not against a power cut (then messages are seen again).

        :raise StalePosition: another generation, no record boundary, or past the end.
        """

    def hurry(inbox: str) -> None:
        """Do the commits of an inbox that have gathered: somebody waits for them."""

    def pushed(inbox: str, generation: int, start: int, end: int) -> None:
        """Remember, soon, that lines were written to a live connection."""

    def enrol(session: str) -> Deferred[None]:
        """Remember that this session id is in use. Idempotent."""

    def skip(inbox: str, start: Position, end: int, lost: bool) -> Deferred[None]:
        """Note of one unread line that it is to be shown to nobody, wherever the position is.

        It stays in the file, and is ``skipped``; not told to ``moved``. Idempotent. Nothing is
        noted of one that is read. If ``lost`` (nobody took it back) it becomes a dead letter.
        """

    def skipped(inbox: str) -> Deferred[dict[Position, int]]:
        """Where the unread lines begin of which :meth:`skip` was told, each with its end."""

    def discard(inbox: str) -> Deferred[int]:
        """Remove an inbox; fires with how many lines were unread, which are dead letters."""

    def compact(inbox: str) -> Deferred[bool]:
        """Take what is read out of an inbox, raising its generation; True if done.

        Never drops an unread byte: what is unread begins the new generation. A crash at any
        step is finished or undone by whoever opens the inbox next.
        """

    def list_inboxes() -> Deferred[list[str]]:
        """The sessions that have an inbox, in no order."""

    def expire(
        inbox: str, keep_bytes: int | None, older_than: float | None
    ) -> Deferred[list[Record]]:
        """Drop the oldest messages; fires with the unread ones that went, in their order.

        They are on the list of dead letters before they go. Nothing is dropped while an
        original program may be reading.

        :param keep_bytes: what the inbox may keep; None for everything.
        :param older_than: drop what was sent more than so many seconds ago; None for nothing.
        """

    def close() -> Deferred[None]:
        """Write and sync what was appended, then let go of every file. Idempotent."""


class IRegistry(Interface):
    """What a channel publishes beside its inboxes: who is live, and sessions' tokens."""

    def publish(sessions: Sequence[str]) -> Deferred[None]:
        """Replace the list of live sessions; atomic. Calls take effect in their order."""

    def guard(receivers: Sequence[Receiver]) -> Deferred[None]:
        """Hold the reader locks of these that hold none themselves, and no others.

        Those of a session that a list published later leaves out are let go of at once.
        """

    def token(session: str) -> Deferred[str | None]:
        """The session's secret token, None where none was ever made (or it is unsafe to trust)."""

    def withdraw() -> Deferred[None]:
        """Take the published list away: the hub is going. Idempotent."""


class IElection(Interface):
    """Who leads a channel: at most one at any time, decided by the kernel, never by a pid."""

    def campaign() -> Deferred[Any]:
        """Try to lead; fires with None when we do.

        A lock that is busy is tried again for 300 ms, since probes hold it for a moment.

        :raise AlreadyLed: another leads; its details say who, where known.
        :raise UnsafePlace: the lock is not ours to take.
        """

    def resign() -> None:
        """Stop leading. Idempotent; the lock file itself is never removed."""

    def holds() -> bool:
        """Whether we still lead: our lock is the one that newcomers would try to take."""


class IPeer(Interface):
    """One connection, as the hub's shell sees it."""

    credentials: Credentials = Attribute("Who the kernel says is there.")

    def push(line: bytes) -> None:
        """Write a stored message, in order, joined with what else this turn writes."""

    def answer(reply: Reply) -> None:
        """Say something in the peer's dialect; same order as pushes."""

    def hold() -> None:
        """Keep further input back until ``release``. Idempotent."""

    def release() -> None:
        """Handle input held back, in order, then go on. Idempotent."""

    def close() -> None:
        """Stop speaking after what is written; read on until the peer closes or a second passed."""

    def abort() -> None:
        """End now: nothing more is read; what was written leaves if it can soon. Idempotent."""


class IWorker(Interface):
    """Work off the reactor's thread, strictly one piece after the other."""

    def do(work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Run ``work(*args)`` after everything asked before; fires with its result.

        Cancelling does not undo or stop the work.
        """

    def quit() -> Deferred[None]:
        """Run all that was asked, then end. Later ``do`` fails. Idempotent."""


class IHub(Interface):
    """The hub for those who embed it: connections come and go, the clock ticks."""

    clock: Any = Attribute("Its times and timers: an IReactorTime provider.")

    def room() -> int:
        """How many connections more are served; of those beyond each is told so and closed."""

    def attach(peer: IPeer, needs_key: bool = False) -> int:
        """A connection was made; fires nothing, returns the number to name it by.

        Where there is no :meth:`room`, the peer hears ``TOO_MANY_SESSIONS`` and is closed.
        """

    def begun(connection: int) -> None:
        """A part of a connection's first line has come."""

    def receive(connection: int, messages: Iterable[Message | IntercomError]) -> None:
        """What a connection said, in order; an error stands for a line its dialect refused.

        Each message is drawn from the iterable only after the one before it was handled,
        so that a decoder may ask ``session_of`` in between.
        """

    def detach(connection: int) -> None:
        """The connection is gone and all of its input was received. Idempotent."""

    def pause(connection: int) -> None:
        """The peer does not drain. Idempotent."""

    def resume(connection: int) -> None:
        """The peer has taken everything written to it. Idempotent."""

    def session_of(connection: int) -> str | None:
        """The session id that a connection speaks for or claims, None before it registered."""
