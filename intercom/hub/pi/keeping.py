"""What the broker keeps in small files, and hears of when it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.core.bus import effects as fx
from intercom.core.bus.broker import Broker
from intercom.errors import IntercomError
from intercom.hub.pi.files import BusFiles
from intercom.hub.pi.memory import MemoryBusFiles

#: Seconds for which it gathers once the roll was written who of those that speak lines came or
#: went: the roll has a place for everybody, and a thousand who come would have it written as often.
ROLL_PAUSE_S = 0.25


class Keeping:
    """Asks, states and the roll.

    :param feed: gives the broker one input, with the time, and performs what it answers.
    """

    _log = Logger()

    def __init__(
        self,
        files: BusFiles | MemoryBusFiles,
        broker: Broker,
        clock: IReactorTime,
        feed: Callable[..., None],
    ) -> None:
        self._files = files
        self._broker = broker
        self._clock = clock
        self._feed = feed
        self._roll_writing = self._roll_changed = self._roll_urgent = self._closed = False
        self._roll_call: IDelayedCall | None = None

    def save_ask(self, effect: fx.SaveAsk) -> None:
        """See :class:`fx.SaveAsk`."""
        self._save(effect.ticket, self._files.save_ask(effect.scope, effect.record))

    def remove_ask(self, effect: fx.RemoveAsk) -> None:
        """See :class:`fx.RemoveAsk`."""
        self._save(effect.ticket, self._files.remove_ask(effect.scope, effect.message_id))

    def save_state(self, effect: fx.SaveState) -> None:
        """See :class:`fx.SaveState`."""
        saving = self._files.save_state(effect.namespace, effect.revision, effect.payload)
        self._save(effect.ticket, saving)

    def save_staged(self, effect: fx.SaveStaged) -> None:
        """See :class:`fx.SaveStaged`; where it fails, only a crash loses the message."""
        self._save(effect.mark, self._files.save_staged(effect.mark, effect.entry))

    def drop_staged(self, effect: fx.DropStaged) -> None:
        """See :class:`fx.DropStaged`; if it fails, a later hub finds the message in its inbox."""
        self._files.drop_staged(effect.mark).addErrback(
            lambda failure: self._log.error(
                "what waited is not forgotten: {why}", why=failure.getErrorMessage()
            )
        )

    def _save(self, ticket: int, saving: Deferred[None]) -> None:
        """Tell the broker what became of a file."""

        def failed(failure: Failure) -> bool:
            failure.trap(IntercomError, OSError)
            self._log.error("not kept: {why}", why=failure.getErrorMessage())
            return False

        saving.addCallbacks(lambda _: True, failed)
        saving.addCallback(lambda ok: self._feed(self._broker.saved, ticket, ok))
        saving.addErrback(self._bug)

    def load_state(self, effect: fx.LoadState) -> None:
        """See :class:`fx.LoadState`."""

        def failed(failure: Failure) -> tuple[int, Any]:
            failure.trap(IntercomError, OSError)
            self._log.error("a state cannot be read: {why}", why=failure.getErrorMessage())
            return 0, None

        loading = self._files.load_state(effect.namespace)
        loading.addErrback(failed)
        loading.addCallback(lambda found: self._feed(self._broker.loaded, effect.ticket, *found))
        loading.addErrback(self._bug)

    def save_roll(self, effect: fx.SaveRoll) -> None:
        """See :class:`fx.SaveRoll`; written once for all that changes while it is written.

        Of sessions that speak lines the files say more than it does, so that has time.
        """
        self._roll_changed = True
        self._roll_urgent = self._roll_urgent or not effect.elsewhere
        if self._roll_writing or (self._roll_call is not None and not self._roll_urgent):
            return
        if self._roll_call is not None:
            self._roll_call.cancel()
        self._roll_call = self._clock.callLater(0, self._write_roll)

    def _write_roll(self) -> None:
        self._roll_call = None
        if not self._roll_changed:
            return
        self._roll_changed, self._roll_urgent, self._roll_writing = False, False, True
        writing = self._files.save_roll(self._broker.roll)
        writing.addErrback(
            lambda failure: self._log.error("no roll: {why}", why=failure.getErrorMessage())
        )
        writing.addCallback(self._roll_written)

    def _roll_written(self, _result: object) -> None:
        self._roll_writing = False
        if not self._closed:
            pause = 0 if self._roll_urgent else ROLL_PAUSE_S
            self._roll_call = self._clock.callLater(pause, self._write_roll)

    def close(self) -> None:
        """Write what is still to be written, and nothing later."""
        self._closed = True
        if self._roll_call is not None:
            self._roll_call.cancel()
        self._write_roll()

    def _bug(self, failure: Failure) -> None:
        self._log.failure("bug in the bus's small files", failure)
