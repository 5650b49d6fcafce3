"""One client of a storm, as a program: ``storm_client.py '{"role": ..., "base": ..., ...}'``.

Roles: ``sender`` (one message after another, as ``intercom send`` does), ``burst`` (several on
one connection before the first receipt), ``listener`` (as ``intercom listen``) and ``poller``
(reads the inbox file and commits). All write a history, and end when told by SIGTERM.
"""

from __future__ import annotations

import random
import signal
import time
from typing import Any

from storm_history import History
from storm_program import begin

from intercom.client.blocking import HubConnection
from intercom.client.listening import Listener
from intercom.client.outbox import compose, deliver
from intercom.client.spawn import ensure_hub
from intercom.client.tokens import own_token
from intercom.errors import InboxLocked, IntercomError, StalePosition
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox

#: Seconds for which a message is tried before its fate counts as unknown.
PATIENCE = 60.0
#: Messages on their way at once, in a burst; seconds to wait for one receipt.
BURST = 6
RECEIPT_WITHIN = 10.0


class Client:
    """What all roles share.

    :ivar who: this process; ``session``: whose name it uses.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self.paths = ChannelPaths(job["base"], job["channel"])
        self.who: str = job["who"]
        self.session: str = job["session"]
        self.to: list[str] = job.get("to", [])
        self.size: int = job.get("size", 200)
        self.count: int = job.get("count", 1 << 30)
        self.pause: float = job.get("pause", 0.01)
        self.random = random.Random(self.who)
        self.history = History(job["history"], self.who)
        self.token = own_token(self.paths, self.session)
        self.stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_signal: object) -> None:
        self.stopping = True

    def work(self) -> None:
        """Do one piece of the role's work again and again."""
        done = 0
        while not self.stopping and done < self.count:
            done += self.step(done)
            time.sleep(self.pause)

    def step(self, number: int) -> int:
        """Do one piece of work; how much of ``count`` it was."""
        raise NotImplementedError

    def letter(self, number: int) -> Any:
        """The ``number``-th message of this process, noted as about to be sent."""
        target = self.random.choice(self.to)
        text = self.random.randbytes(self.size // 2).hex()
        name = f"{self.who}-{number}"
        letter = compose(self.paths, self.session, target, {"text": text}, message_id=name)
        self.history.sending(name, [target], letter.line)
        return letter


class Sender(Client):
    """Sends one message after another, through hubs or into the file."""

    def step(self, number: int) -> int:
        letter = self.letter(number)
        try:
            outcome = deliver(self.paths, letter, self.token, patience=PATIENCE)
        except IntercomError:  # an earlier try of it may have got through
            self.history.sent(letter.message_id, "info")
        else:
            kind = "ok" if outcome.state == "stored" else "info"
            self.history.sent(letter.message_id, kind)
        return 1


class Burst(Client):
    """Sends several messages before the first receipt, and again to the next hub if need be."""

    def step(self, number: int) -> int:
        waiting = {}
        for at in range(number, number + BURST):
            letter = self.letter(at)
            waiting[letter.message_id] = letter.line
        deadline = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < deadline:
            try:
                self._exchange(waiting)
            except IntercomError:  # the hub died: the next one gets what has no receipt
                time.sleep(0.02)
        for message_id in waiting:
            self.history.sent(message_id, "info")
        return BURST

    def _exchange(self, waiting: dict[str, bytes]) -> None:
        """Send what waits on one connection, in order, and take its receipts out."""
        with HubConnection(ensure_hub(self.paths), self.paths, self.session) as hub:
            hub.register(features=("receipts",), role="sender", token=self.token)
            for line in waiting.values():
                hub.send_line(line)
            deadline = time.monotonic() + RECEIPT_WITHIN
            while waiting:
                received = hub.receive(deadline - time.monotonic())
                if received is None:
                    return
                about = received.envelope["reply_to"] if received.envelope else None
                if received.type == "receipt" and about in waiting:
                    stored = received.payload.get("state") == "stored"
                    self.history.sent(about, "ok" if stored else "info")
                    del waiting[about]


class Hearer(Client):
    """Listens; each message counts as read once it stands in the history."""

    def work(self) -> None:
        Listener(self.paths, self.session, self.token, self).run()

    def _stop(self, *_signal: object) -> None:
        raise SystemExit

    def show(self, line: bytes, message: dict[str, Any]) -> None:
        """See ``Audience``. The listener promises never to show it again in this process."""
        self.history.pushed(self.session, line)
        self.history.committed(self.session, None, time.monotonic())

    def note(self, text: str) -> None:
        """See ``Audience``."""

    def report(self, letter: object, result: object) -> None:
        """See ``Audience``."""


class Poller(Client):
    """Reads what is unread, and commits it when it stands in the history."""

    def step(self, number: int) -> int:
        with Inbox(self.paths, self.session) as inbox:
            try:
                since = time.monotonic()
                batch = inbox.read()
                if batch.records or batch.damaged:
                    self.history.read(self.session, batch, since)
                    since = time.monotonic()
                    stored = inbox.commit(batch.next)
                    self.history.committed(self.session, stored, since)
            except (InboxLocked, StalePosition):
                return 0  # somebody was killed or stopped with the lock, or emptied the inbox
        return 1


ROLES = {"sender": Sender, "burst": Burst, "listener": Hearer, "poller": Poller}

if __name__ == "__main__":
    given = begin()
    ROLES[given["role"]](given).work()
