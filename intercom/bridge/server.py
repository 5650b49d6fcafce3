"""The Model Context Protocol as hosts speak it over a pipe, up to revision 2025-11-25.

Nothing here knows what the tools do. A client of a later revision opens with
``server/discover``, or puts its revision into each request; both are refused in the way
after which it says ``initialize``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom import __version__
from intercom.bridge import rpc
from intercom.bridge.tools import TOOLS, BadArguments

#: Revisions that differ in nothing that we say; the last is offered to all others.
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
#: Where a request of a later revision names that.
REVISION_KEY = "io.modelcontextprotocol/protocolVersion"
UNSUPPORTED_REVISION = -32022
#: Calls at one time; a model makes a handful.
MOST_CALLS = 64


@dataclass(frozen=True, slots=True)
class Host:
    """Who started us, as ``initialize`` tells it."""

    name: str = ""
    version: str = ""


@dataclass(slots=True)
class Said:
    """What a tool answers.

    :ivar failed: whether it is an error, which a model sees, too.
    :ivar settle: called once, with whether the text was written out to the host.
    """

    text: str
    failed: bool = False
    settle: Callable[[bool], Awaitable[None]] | None = None


@dataclass(slots=True)
class Call:
    """A call of a tool that is under way.

    :ivar arguments: checked; those left out are not there.
    :ivar meta: what the host says beside them.
    :ivar over: whether nobody waits for the answer any more.
    """

    arguments: dict[str, Any]
    meta: dict[str, Any]
    over: bool = False
    _ended: list[Callable[[], None]] = field(default_factory=list)

    def when_over(self, then: Callable[[], None]) -> None:
        """Have something called as soon as nobody waits any more."""
        if self.over:
            then()
        else:
            self._ended.append(then)

    def end(self) -> None:
        """Nobody waits for it any more. Idempotent."""
        self.over = True
        waiting, self._ended = self._ended, []
        for then in waiting:
            then()


class Toolbox(Protocol):
    """What the tools are to the server."""

    async def opened(self, host: Host) -> str:
        """A host has begun to speak: what its model is told first."""

    async def call(self, name: str, call: Call) -> Said:
        """Carry out a call of a tool that is in the table."""

    async def refuse(self, call: Call, text: str) -> Said:
        """Say that a call makes no sense.

        :param text: what to mend.
        """


class Server:
    """One host's conversation.

    :param send: writes a line to the host; fires when it was written, fails if it never will be.
    """

    _log = Logger()

    def __init__(self, toolbox: Toolbox, send: Callable[[bytes], Deferred[None]]) -> None:
        self._toolbox = toolbox
        self._send = send
        self._opened = self._leaving = False
        self._calls: dict[rpc.RequestId, Call] = {}
        self._busy = 0
        self._methods: dict[str, Callable[[rpc.Request], Coroutine[Any, Any, None]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._list,
            "tools/call": self._call,
        }

    @property
    def busy(self) -> int:
        """Requests that are not answered yet."""
        return self._busy

    def received(self, line: bytes | None) -> None:
        """Take a line of the host's; None stands for one that was too long."""
        if line is None:
            return self._refuse(None, rpc.INVALID_REQUEST, "the message is too long")
        if not line.strip():
            return None
        message = rpc.read(line)
        if isinstance(message, rpc.Malformed):
            return self._refuse(message.id, message.code, message.text)
        if isinstance(message, rpc.Notification):
            return self._noted(message)
        if isinstance(message, rpc.Request):
            self._busy += 1
            handled = Deferred.fromCoroutine(self._handle(message))
            handled.addErrback(self._failed, message)
        return None

    def leave(self) -> None:
        """The host says no more, and may not listen, either: nobody waits for mail any more.

        What does not depend on being seen is still said.
        """
        self._leaving = True
        for call in list(self._calls.values()):
            call.end()

    # -- what has no answer

    def _noted(self, message: rpc.Notification) -> None:
        if message.method == "notifications/cancelled":
            about = message.params.get("requestId")
            call = self._calls.get(about) if isinstance(about, str | int | float) else None
            if call is not None:
                call.end()

    # -- what has one

    async def _handle(self, request: rpc.Request) -> None:
        """Answer a request, whatever it is."""
        try:
            revision = _revision(request)
            if revision is not None and request.method in ("tools/list", "tools/call"):
                text = f"this server does not speak revision {revision}; say initialize"
                data = {"supported": list(REVISIONS), "requested": revision}
                return self._refuse(request.id, UNSUPPORTED_REVISION, text, data)
            method = self._methods.get(request.method)
            if method is None:
                text = f"there is no method {request.method[:100]!r}"
                return self._refuse(request.id, rpc.METHOD_NOT_FOUND, text)
            if not self._opened and request.method not in ("initialize", "ping"):
                text = "say initialize first"
                return self._refuse(request.id, rpc.INVALID_REQUEST, text)
            await method(request)
        finally:
            self._busy -= 1
        return None

    async def _initialize(self, request: rpc.Request) -> None:
        params = request.params
        asked, info = params.get("protocolVersion"), params.get("clientInfo")
        if not isinstance(asked, str):
            text = "initialize names a protocolVersion"
            return self._refuse(request.id, rpc.INVALID_PARAMS, text)
        info = info if isinstance(info, dict) else {}
        host = Host(str(info.get("name", "")), str(info.get("version", "")))
        self._opened = True
        instructions = await self._toolbox.opened(host)
        return self._answer(
            request.id,
            {
                "protocolVersion": asked if asked in REVISIONS else REVISIONS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "intercom", "version": __version__},
                "instructions": instructions,
            },
        )

    async def _ping(self, request: rpc.Request) -> None:
        self._answer(request.id, {})

    async def _list(self, request: rpc.Request) -> None:
        if request.params.get("cursor") is not None:
            text = "there is one page of tools only; leave the cursor out"
            return self._refuse(request.id, rpc.INVALID_PARAMS, text)
        return self._answer(request.id, {"tools": [tool.listed() for tool in TOOLS.values()]})

    async def _call(self, request: rpc.Request) -> None:
        name, meta = request.params.get("name"), request.params.get("_meta")
        tool = TOOLS.get(name) if isinstance(name, str) else None
        if tool is None:
            text = f"there is no tool {str(name)[:100]!r}; there are {', '.join(TOOLS)}"
            return self._refuse(request.id, rpc.INVALID_PARAMS, text)
        if request.id in self._calls:
            text = "a call with this id is under way"
            return self._refuse(request.id, rpc.INVALID_REQUEST, text)
        if len(self._calls) >= MOST_CALLS:
            text = f"RATE_LIMITED: {MOST_CALLS} calls are under way; wait until one has ended"
            return self._say(request.id, Said(text, failed=True))
        call = Call({}, meta if isinstance(meta, dict) else {})
        self._calls[request.id] = call
        try:
            call.arguments = tool.check(request.params.get("arguments") or {})
            said = await self._toolbox.call(tool.name, call)
        except BadArguments as error:
            said = await self._toolbox.refuse(call, f"{error}")
        finally:
            del self._calls[request.id]
        await self._hand_over(request.id, call, said)
        return None

    async def _hand_over(self, about: rpc.RequestId, call: Call, said: Said) -> None:
        """Write what a tool said, unless nobody waits for it, and let the tool know."""
        written = False
        try:
            if not call.over or (self._leaving and said.settle is None):
                await self._send(rpc.result(about, _content(said)))
                written = True
        except Exception:  # the host is gone, and so is who would be told
            self._log.debug("a result could not be written")
        finally:
            if said.settle is not None:
                await said.settle(written)

    # -- saying it

    def _say(self, about: rpc.RequestId, said: Said) -> None:
        self._answer(about, _content(said))

    def _answer(self, about: rpc.RequestId, value: dict[str, Any]) -> None:
        self._write(rpc.result(about, value))

    def _refuse(
        self, about: rpc.RequestId | None, code: int, text: str, data: dict[str, Any] | None = None
    ) -> None:
        self._write(rpc.error(about, code, text, data))

    def _write(self, line: bytes) -> None:
        self._send(line).addErrback(lambda _failure: None)  # then the host is gone

    def _failed(self, failure: Failure, request: rpc.Request) -> None:
        """A fault of our own: the host must not wait for ever."""
        self._log.failure("answering {method} failed", failure, method=request.method)
        self._refuse(request.id, rpc.INTERNAL_ERROR, f"a fault of ours: {failure.value!r}")


def _revision(request: rpc.Request) -> str | None:
    """The revision that a request of a later one names."""
    meta = request.params.get("_meta")
    found = meta.get(REVISION_KEY) if isinstance(meta, dict) else None
    return found if isinstance(found, str) and found not in REVISIONS else None


def _content(said: Said) -> dict[str, Any]:
    content: dict[str, Any] = {"content": [{"type": "text", "text": said.text}]}
    if said.failed:
        content["isError"] = True
    return content
