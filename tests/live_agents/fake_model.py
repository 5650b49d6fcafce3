"""A server of models that plays scripts: on loopback, streaming, for real agent programs.

It speaks the dialects of three vendors, and answers every request for a conversation with the
next turn of its script. What it was asked is kept, so that a test can see what the model saw.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import gemini_api
import messages_api
import responses_api
from model_script import Asked, Say, Script, Turn
from twisted.internet.defer import Deferred
from twisted.internet.task import Cooperator
from twisted.web.http import BAD_REQUEST, NOT_FOUND
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

#: What a program asks for beside its conversation (a title, a probe of the account).
ASIDE = Say("ok")


class FakeModel(Resource):
    """One model, listening on a port of its own.

    :param note: is told of every turn, with what was asked.
    :ivar asked: the requests of the conversation, in order, as they were understood.
    :ivar strays: requests for anything else, and those that made no sense.
    """

    isLeaf = True

    def __init__(
        self, reactor: Any, script: Script, note: Callable[[Asked, Turn], None] | None = None
    ) -> None:
        super().__init__()
        self.script = script
        self._note = note or (lambda asked, turn: None)
        self.asked: list[Asked] = []
        self.strays: list[str] = []
        self._numbers = itertools.count(1)
        self._cooperator = Cooperator(scheduler=lambda step: reactor.callLater(0, step))
        # without a time-out: no connection outlives its program, and no call the test
        site = Site(self, timeout=None)
        self._port = reactor.listenTCP(0, site, interface="127.0.0.1")

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self._port.getHost().port}"

    def close(self) -> Deferred[None]:
        """Listen no more, and end the streams that still run."""
        self._cooperator.stop()
        closed: Deferred[None] = self._port.stopListening()
        return closed

    def render_HEAD(self, request: Request) -> bytes:
        """Programs ask whether anybody is there."""
        return b""

    def render_GET(self, request: Request) -> bytes:
        """There are no pages here, no lists of models either."""
        return self._stray(request, NOT_FOUND, "is not there")

    def render_POST(self, request: Request) -> bytes | int:
        """The next turn of the conversation."""
        path = request.path.decode()
        if path == messages_api.PATH + "/count_tokens":
            return self._json(request, {"input_tokens": 1})
        try:
            body = json.loads(request.content.read())
            found = self._understood(path, body)
        except (ValueError, KeyError, TypeError) as error:
            return self._stray(request, BAD_REQUEST, f"makes no sense: {error!r}")
        if found is None:
            return self._stray(request, NOT_FOUND, "is not there")
        api, asked, streams = found
        turn: Turn = ASIDE
        if asked.tools:  # no conversation of an agent is without
            self.asked.append(asked)
            turn = self.script.answer(asked)
            self._note(asked, turn)
        number = next(self._numbers)
        if not streams:
            return self._json(request, api.whole(turn, asked, number))
        request.setHeader("content-type", "text/event-stream")
        self._send(request, api.stream(turn, asked, number))
        return NOT_DONE_YET

    @staticmethod
    def _understood(path: str, body: dict[str, Any]) -> tuple[Any, Asked, bool] | None:
        """The dialect of a request, what it asks, and whether the answer is to be a stream."""
        if path == messages_api.PATH:
            return messages_api, messages_api.understand(body), bool(body.get("stream"))
        if path == responses_api.PATH:
            return responses_api, responses_api.understand(body), True
        if gemini := gemini_api.PATH.fullmatch(path):
            asked = gemini_api.understand(body, gemini["model"])
            return gemini_api, asked, gemini[2] is not None
        return None

    def _send(self, request: Request, events: Iterator[bytes]) -> None:
        """Write one event at a time, for as long as the program listens."""
        task = self._cooperator.cooperate(request.write(event) for event in events)
        gone: list[Any] = []

        def left(reason: Any) -> None:
            gone.append(reason)
            task.stop()

        request.notifyFinish().addErrback(left)
        # stopped tasks fail: the program left, or the model was closed
        task.whenDone().addCallbacks(lambda _: request.finish(), lambda _: None)

    def _json(self, request: Request, what: dict[str, Any]) -> bytes:
        request.setHeader("content-type", "application/json")
        return json.dumps(what).encode()

    def _stray(self, request: Request, code: int, why: str) -> bytes:
        self.strays.append(f"{request.method.decode()} {request.path.decode()} {why}")
        request.setResponseCode(code)
        return self._json(request, {"error": {"type": "invalid_request", "message": why}})
