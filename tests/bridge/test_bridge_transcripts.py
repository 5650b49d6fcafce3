"""The protocol, line by line, with tools that only the test carries out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from intercom import __version__
from intercom.bridge import rpc
from intercom.bridge.server import MOST_CALLS, Call, Host, Said, Server
from intercom.bridge.tools import TOOLS

INFO = {"name": "a-host", "version": "9"}
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "intercom", "version": __version__},
    "instructions": "be brief",
}


class Bench:
    """A server, a host, and calls that the test answers when it likes."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.calls: list[tuple[str, Call, Deferred[Said]]] = []
        self.host: Host | None = None
        self.settled: list[bool] = []
        self.stuck: list[Deferred[None]] | None = None
        self.server = Server(self, self._send)

    def _send(self, line: bytes) -> Deferred[None]:
        self.lines.append(json.loads(line))
        if self.stuck is None:
            return succeed(None)
        self.stuck.append(Deferred())
        return self.stuck[-1]

    async def opened(self, host: Host) -> str:
        self.host = host
        return "be brief"

    async def call(self, name: str, call: Call) -> Said:
        done: Deferred[Said] = Deferred()
        self.calls.append((name, call, done))
        return await done

    async def refuse(self, call: Call, text: str) -> Said:
        return Said(f"mend it: {text}", failed=True)

    async def _settle(self, written: bool) -> None:
        self.settled.append(written)

    def say(self, fields: dict[str, Any] | bytes | None) -> list[dict[str, Any]]:
        """What a host's line is answered with, at once."""
        before = len(self.lines)
        if isinstance(fields, dict):
            fields = json.dumps({"jsonrpc": "2.0"} | fields).encode()
        self.server.received(fields)
        return self.lines[before:]

    def ask(self, about: object, method: str, **params: Any) -> list[dict[str, Any]]:
        return self.say({"id": about, "method": method, "params": params})

    def begin(self, about: object, tool: str = "inbox", **arguments: Any) -> Call:
        assert self.ask(about, "tools/call", name=tool, arguments=arguments) == []
        return self.calls[-1][1]

    def finish(self, index: int, text: str = "done", failed: bool = False) -> None:
        self.calls[index][2].callback(Said(text, failed, self._settle))


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.ask(0, "initialize", **OPENING)
    bench.lines.clear()
    return bench


def result(about: object, value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": about, "result": value}


def refusal(answers: list[dict[str, Any]]) -> tuple[object, int]:
    (answer,) = answers
    return answer["id"], answer["error"]["code"]


def test_the_first_lines_of_a_host() -> None:
    bench = Bench()
    assert bench.ask(0, "ping") == [result(0, {})]
    assert refusal(bench.ask(1, "tools/list")) == (1, rpc.INVALID_REQUEST)
    assert bench.ask(2, "initialize", **OPENING) == [result(2, GREETING)]
    assert bench.host == Host("a-host", "9")
    assert bench.say({"method": "notifications/initialized"}) == []
    assert bench.ask("x", "tools/list") == [
        result("x", {"tools": [tool.listed() for tool in TOOLS.values()]})
    ]


def test_the_first_lines_of_a_host_of_2026() -> None:
    """It probes, is refused in the two ways that make it begin anew, and is served."""
    bench = Bench()
    assert refusal(bench.ask(1, "server/discover", _meta=MODERN)) == (1, rpc.METHOD_NOT_FOUND)
    (answer,) = bench.ask(2, "tools/list", _meta=MODERN)
    assert answer["error"]["code"] == -32022
    assert answer["error"]["data"] == {
        "supported": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"],
        "requested": "2026-07-28",
    }
    assert bench.ask(3, "initialize", **OPENING) == [result(3, GREETING)]


@pytest.mark.parametrize(
    ("asked", "given"),
    [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("2031-01-01", "2025-11-25")],
)
def test_the_revision_is_the_hosts_if_we_speak_it(asked: str, given: str) -> None:
    (answer,) = Bench().ask(1, "initialize", **OPENING | {"protocolVersion": asked})
    assert answer["result"]["protocolVersion"] == given


def test_an_opening_may_lack_all_but_the_revision() -> None:
    bench = Bench()
    (answer,) = bench.ask(1, "initialize", protocolVersion="2025-06-18", clientInfo="me")
    assert answer["result"]["serverInfo"]["name"] == "intercom"
    assert refusal(bench.ask(2, "initialize")) == (2, rpc.INVALID_PARAMS)


def test_misuse_is_refused_and_the_conversation_goes_on(bench: Bench) -> None:
    assert refusal(bench.say(b"not json")) == (None, rpc.PARSE_ERROR)
    assert refusal(bench.say(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]')) == (None, -32600)
    assert refusal(bench.say(None)) == (None, rpc.INVALID_REQUEST)
    assert refusal(bench.ask(1, "resources/list")) == (1, rpc.METHOD_NOT_FOUND)
    assert refusal(bench.ask(2, "tools/list", cursor="x")) == (2, rpc.INVALID_PARAMS)
    assert refusal(bench.ask(3, "tools/call", name="shout")) == (3, rpc.INVALID_PARAMS)
    assert refusal(bench.ask(4, "tools/call", name=["send"])) == (4, rpc.INVALID_PARAMS)
    assert bench.say(b" \r") == []
    assert bench.say({"id": 9, "result": {}}) == []
    assert bench.say({"method": "notifications/whatever"}) == []
    assert bench.ask(5, "ping") == [result(5, {})]


def test_calls_are_answered_as_they_end(bench: Bench) -> None:
    call = bench.begin("a", wait_s="3")
    assert call.arguments == {"wait_s": 3.0}
    bench.begin("b", "peers")
    assert bench.ask("c", "ping") == [result("c", {})]
    bench.finish(1, "second")
    bench.finish(0, "first", failed=True)
    second = {"content": [{"type": "text", "text": "second"}]}
    first = {"content": [{"type": "text", "text": "first"}], "isError": True}
    assert bench.lines[1:] == [result("b", second), result("a", first)]
    assert bench.settled == [True, True]
    assert bench.server.busy == 0


def test_what_a_call_says_beside_its_arguments_reaches_the_tool(bench: Bench) -> None:
    bench.ask(1, "tools/call", name="peers", _meta={"x": 1})
    assert bench.calls[0][1].meta == {"x": 1}


@pytest.mark.parametrize("about", [1, "one", 1.5])
def test_a_cancelled_call_is_not_answered(bench: Bench, about: object) -> None:
    call = bench.begin(about)
    woken: list[bool] = []
    call.when_over(lambda: woken.append(True))
    bench.say({"method": "notifications/cancelled", "params": {"requestId": about}})
    assert (call.over, woken) == (True, [True])
    bench.finish(0)
    assert bench.lines == []
    assert bench.settled == [False]


def test_nobody_elses_call_is_cancelled(bench: Bench) -> None:
    call = bench.begin(1)
    for about in (2, None, [], {}):
        bench.say({"method": "notifications/cancelled", "params": {"requestId": about}})
    assert not call.over


def test_a_tool_hears_when_its_result_has_been_written_and_not_before(bench: Bench) -> None:
    bench.stuck = []
    bench.begin(1)
    bench.finish(0)
    assert bench.settled == []
    bench.stuck[0].callback(None)
    assert bench.settled == [True]


def test_a_tool_hears_that_its_result_could_not_be_written(bench: Bench) -> None:
    bench.stuck = []
    bench.begin(1)
    bench.finish(0)
    bench.stuck[0].errback(BrokenPipeError())
    assert bench.settled == [False]


def test_when_the_host_leaves_mail_is_not_handed_over(bench: Bench) -> None:
    """What would count as read by being written is not; what was done is still said."""
    bench.begin(1)
    bench.begin(2, "send", to="bob", text="hello")
    bench.server.leave()
    assert all(call.over for _name, call, _done in bench.calls)
    bench.finish(0)
    bench.calls[1][2].callback(Said("sent"))
    assert [line["id"] for line in bench.lines] == [2]
    assert bench.settled == [False]


def test_bad_arguments_are_a_result_that_says_what_to_mend(bench: Bench) -> None:
    (answer,) = bench.ask(1, "tools/call", name="send", arguments={"to": "bob"})
    assert answer["result"]["isError"] is True
    assert answer["result"]["content"][0]["text"] == "mend it: send needs 'text': the message"
    assert bench.calls == []


def test_so_many_calls_and_no_more(bench: Bench) -> None:
    for number in range(1, MOST_CALLS + 1):
        bench.begin(number)
    assert refusal(bench.ask(1, "tools/call", name="peers")) == (1, rpc.INVALID_REQUEST)
    (answer,) = bench.ask(0, "tools/call", name="peers")
    assert answer["result"]["content"][0]["text"].startswith("RATE_LIMITED: ")


def test_a_fault_of_ours_is_answered(bench: Bench, logged_failures: list[Any]) -> None:
    bench.begin(1)
    bench.calls[0][2].errback(ZeroDivisionError("oops"))
    assert refusal(bench.lines) == (1, rpc.INTERNAL_ERROR)
    assert len(logged_failures) == 1
    logged_failures.clear()
