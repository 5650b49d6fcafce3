"""A hub as a service: started and stopped step by step, each step awaited.

Start: private directories, election, log, key, sockets bound (under a name that
nobody knows), spool open, socket file in place. Nobody is accepted before the last
step, and everything that usually fails comes before the first that needs a running
reactor, so that whoever starts us learns of it at once. Stop: the same backwards,
leadership last.

Everything begins in ``startService``. ``privilegedStartService`` does nothing: files
made before twistd sheds its privileges would be root's, and the channel refuses
what is not its user's own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.internet.error import CannotListenError, ReactorNotRunning
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocolFactory,
    IPushProducer,
    IStreamServerEndpoint,
)
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom import __version__
from intercom.election.flock import FlockElection
from intercom.errors import AlreadyLed, CannotCreate, IntercomError, SpoolError
from intercom.hub.log import ChannelLog
from intercom.hub.parts import HubParts as HubParts
from intercom.hub.parts import assemble
from intercom.hub.pi.lending import Lending
from intercom.hub.transports import ChannelPort, channel_key, extra_endpoints
from intercom.pi.plan import Plan, plan_of
from intercom.pi.runtime import say_ready
from intercom.settings.files import ChannelFile
from intercom.settings.hub import HubSettings, not_applied

#: How often a hub looks whether its lock and its socket file are still its own.
CHECK_S = 1.0
#: The whole stop takes no longer, whatever peers and disks do.
STOP_WITHIN_S = 1.9

#: Called when the hub is over, or could not start (then with the reason): ends the program.
Leave = Callable[[BaseException | None], None]


def to_stderr(text: str) -> None:
    """Say something to whoever started this process, even where its log takes stderr over.

    Nothing depends on being heard: a closed pipe or terminal is ignored.
    """
    stream = sys.__stderr__
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"intercom: {text}", file=stream, flush=True)


def exit_status(error: BaseException | None) -> int:
    """What a hub's process returns: 0 if it ended in good order, or another leads."""
    if error is None or isinstance(error, AlreadyLed):
        return 0
    return error.exit_code if isinstance(error, IntercomError) else 1


def use_monotonic_time(reactor: Any) -> None:
    """Let a reactor's timers follow the monotonic clock.

    Twisted's follow the wall clock: set back by an hour, it would keep every ping,
    retry and check of the hub waiting for that hour. Call it before any timer is set.
    """
    reactor.seconds = time.monotonic


def stop_reactor(reactor: Any) -> None:
    """Stop a running reactor, unless it is stopping already."""
    with contextlib.suppress(ReactorNotRunning):
        reactor.stop()


class HubService(Service):
    """One channel's hub, from election to resignation. It can be started once.

    :param reactor: for sockets, threads and timers (see :func:`use_monotonic_time`).
    :param settings: what to run.
    :param leave: ends the program: called with None when the hub is to go (it idled, or
        its lock or directory was taken away), and with the error when it could not start.
        An error that is known before ``startService`` returns is passed on from there,
        so that what ``leave`` raises then reaches the caller.
    :param say: tells whoever started us that the hub is ready, or what went wrong.
    :param assemble: makes the parts; called once leadership is won.
    :param settle: says what to run, once leadership is won: by then the last hub has left
        all its settings, and twistd has become the user whose files they are. Until then,
        and without it, ``settings`` says so.
    :param environ: says where the pi clients look, if the settings want them to be served.
    """

    name = "intercom"
    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        settings: HubSettings,
        leave: Leave,
        say: Callable[[str], None] = to_stderr,
        assemble: Callable[..., HubParts] = assemble,
        settle: Callable[[], HubSettings] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._reactor = reactor
        self._settings = settings
        self._paths = settings.paths
        self._leave = leave
        self._say = say
        self._assemble = assemble
        self._settle = settle
        self._environ = environ
        self._lending: Lending | None = None
        self._file_log = ChannelLog(self._paths)
        self._election = FlockElection(reactor, self._paths, __version__, time.time())
        self._parts: HubParts | None = None
        self._door: ChannelPort | None = None
        self._side_doors: list[IListeningPort] = []
        self._starting: Deferred[None] | None = None
        self._stopping: Deferred[None] | None = None
        self._error: BaseException | None = None
        self._returned = False
        self._leaving = False
        self._trouble = ""
        self._checks = LoopingCall(self._check)
        self._checks.clock = reactor

    # -- start

    def startService(self) -> None:
        """Begin, and raise what ``leave`` raises if that fails at once. Idempotent."""
        if self._starting is not None:
            return
        super().startService()
        self._file_log.listen()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._could_not_start)
        if self._error is not None:
            self._leave(self._error)
        self._returned = True

    async def _start(self) -> None:
        self._paths.prepare(self._say)
        await self._election.campaign()
        self._file_log.open()
        if self._settle is not None:
            self._settings = self._settle()
        # Before they are kept: with such as cannot be, no later hub could start either.
        places = extra_endpoints(self._reactor, self._settings.listen)
        plan = plan_of(self._environ) if self._settings.pi else None
        self._keep_settings()
        key = channel_key(self._paths) if self._settings.needs_key else None
        self._parts = self._assemble(self._reactor, self._settings, key, self._fail, self._unused)
        await self._bind(self._parts.factory, places)
        await self._parts.hub.start()
        self._open_doors()
        await self._lend(plan)
        self._checks.start(CHECK_S, now=False)
        self._log.info(
            "leading {channel} at {socket}",
            channel=self._paths.name,
            socket=self._paths.socket,
            pid=os.getpid(),
            version=__version__,
            durability=self._settings.durability,
            listen=self._settings.listen,
        )
        self._say(
            f"the hub of channel {self._paths.name!r} is ready at {self._paths.socket} "
            f"(pid {os.getpid()})"
        )
        if plan is not None:
            say_ready(os.getpid())

    async def _lend(self, plan: Plan | None) -> None:
        """Take the places of the pi clients, or be ready to when somebody asks."""
        parts = self._parts
        if parts is None or parts.pi_factory is None or parts.hub.bus is None:
            return
        self._lending = parts.hub.lending = Lending(
            self._reactor, parts.hub.bus, parts.pi_factory, parts.state_id, self._say
        )
        if plan is not None:
            await self._lending.take(plan)

    def _keep_settings(self) -> None:
        """Let the channel's later hubs be like this one.

        A full disk is no reason not to serve; what is wrong with the file itself is.
        """
        file = ChannelFile(self._paths)
        try:
            file.change(self._settings.kept)
        except CannotCreate as error:
            self._log.error("settings not kept: {reason}", reason=error.text)
            self._say(f"later hubs will not know the settings of this one: {error.text}")

    async def _bind(
        self, factory: IProtocolFactory, places: Sequence[IStreamServerEndpoint]
    ) -> None:
        """Take every address, letting nobody in yet."""
        for string, endpoint in zip(self._settings.listen, places, strict=True):
            try:
                port = await endpoint.listen(factory)
            except CancelledError:
                raise
            except Exception as error:  # each kind of endpoint fails in its own way
                cause = error.socketError if isinstance(error, CannotListenError) else error
                raise CannotCreate(
                    f"cannot listen at {string}: {cause}",
                    remedy="see where that place was set: intercom config listen",
                ) from error
            self._side_doors.append(port)
            if IPushProducer.providedBy(port):
                port.pauseProducing()
        self._door = ChannelPort(self._reactor, self._paths, factory)
        self._door.bind()

    def _open_doors(self) -> None:
        assert self._door is not None
        self._door.publish()
        for port in self._side_doors:
            if IPushProducer.providedBy(port):
                port.resumeProducing()

    def _could_not_start(self, failure: Failure) -> None:
        """Say why, in words where it was foreseen, with a traceback where not; then end."""
        error = failure.value
        if self._leaving and isinstance(error, CancelledError):
            return
        if isinstance(error, OSError):
            error = CannotCreate(
                f"the hub could not start: {error}",
                remedy=f"see what is there: ls -la {self._paths.directory}",
            )
        if isinstance(error, AlreadyLed) and self._settings.kept:
            error.remedy = not_applied(self._settings.kept, self._paths.command)
        self._error = error
        if isinstance(error, IntercomError):
            self._log.error("not started: {reason}", reason=error.text, code=error.code)
            self._say(f"{error.text}\n  {error.remedy}" if error.remedy else error.text)
        else:
            self._log.failure("not started", failure)
            self._say("".join(traceback.format_exception(error)).strip())
        if self._returned:
            self._leave(error)

    # -- while it runs

    def _check(self) -> None:
        """Look whether all that makes us the hub is in place; end where it is not."""
        try:
            if not self._election.holds():
                self._go("the lock file or the directory is gone or replaced")
            elif self._settings.idle_exit is not None and self._idle() >= self._settings.idle_exit:
                self._go("nobody was connected for a while")
            else:
                self._keep_door()
                if self._lending is not None:
                    self._lending.keep()
        except Exception:  # a LoopingCall stops at the first
            self._log.failure("bug in the hub's look at itself")

    def _idle(self) -> float:
        assert self._parts is not None
        return self._parts.hub.idle_for(self._reactor.seconds())

    def _keep_door(self) -> None:
        """Put the socket file back if it is gone or another's; try again each time."""
        assert self._door is not None
        if self._door.is_ours():
            return
        try:
            closing = self._door.rebind()
        except CannotCreate as error:
            if error.text != self._trouble:
                self._log.error("no socket file: {reason}", reason=error.text)
            self._trouble = error.text
            return
        self._trouble = ""
        self._log.warn("the socket file was gone or foreign, and is back")
        closing.addErrback(lambda failure: self._log.failure("closing the old socket", failure))

    def _unused(self) -> None:
        """No pi client has been here for a while: go, if that is how this hub was started."""
        parts = self._parts
        if self._settings.leaves_unused and parts is not None and not parts.hub.line_peers:
            self._go("nobody was connected for a while")

    def _fail(self, reason: str) -> None:
        self._go(reason, SpoolError(reason))

    def _go(self, reason: str, error: BaseException | None = None) -> None:
        """Have the program end, unless it is ending."""
        if not self._leaving:
            self._leaving = True
            self._log.warn("leaving: {reason}", reason=reason)
            if error is not None:
                self._say(f"the hub leaves: {reason}\n  the next one mends what it can")
            self._leave(error)

    # -- stop

    def stopService(self) -> Deferred[None]:
        """Let nobody in, finish what is under way, resign; within two seconds. Idempotent.

        Fires when everything is done, however it went; what went wrong is in the log.
        """
        if self._stopping is None:
            super().stopService()
            self._leaving = True
            if self._starting is not None:
                self._starting.cancel()
            self._stopping = Deferred.fromCoroutine(self._stop())
            self._stopping.addErrback(lambda failure: self._log.failure("bug in the stop", failure))
        waiter: Deferred[None] = Deferred()
        self._stopping.addCallback(waiter.callback)
        return waiter

    async def _stop(self) -> None:
        deadline = self._reactor.seconds() + STOP_WITHIN_S
        try:
            if self._checks.running:
                self._checks.stop()
            ports = [port.stopListening for port in self._side_doors]
            steps = [*ports, self._door.stop] if self._door is not None else ports
            if self._lending is not None:
                steps.insert(0, self._lending.close)
            if self._parts is not None:
                steps += [self._parts.hub.shut_down, self._parts.worker.quit]
                if self._parts.poller is not None:
                    steps.append(self._parts.poller.close)
            for step in steps:
                await self._step(step, deadline)
            if self._parts is not None:
                self._log.info("left {channel}", channel=self._paths.name)
            self._file_log.close()
        finally:
            self._election.resign()

    async def _step(self, step: Callable[[], Any], deadline: float) -> None:
        """Do one step of the stop; neither its failure nor its slowness stops the next."""
        left = max(0.05, deadline - self._reactor.seconds())
        try:
            await maybeDeferred(step).addTimeout(left, self._reactor)
        except TimeoutError:
            self._log.error("{step} took too long during the stop", step=step.__qualname__)
        except Exception:
            self._log.failure("{step} failed during the stop", step=step.__qualname__)
