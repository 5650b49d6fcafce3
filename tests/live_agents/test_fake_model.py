"""The fake model speaks the dialects, plays its script, and keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from http.client import HTTPConnection
from typing import Any

import messages_api
import pytest_twisted
import responses_api
from fake_model import FakeModel
from model_script import SHELL, Call, OffScript, Result, Say, Script, Tool, Turn, known_as
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

TEXT = "A sentence that does not fit into one piece of a stream."
SEND = Call("intercom.send", {"to": "api", "text": 'a "quoted" question, with ümlauts'})
Make = Callable[..., FakeModel]


@pytest_twisted.async_yield_fixture
async def model() -> AsyncIterator[Make]:
    """Make models that play turns; they are closed after the test."""
    made: list[FakeModel] = []

    def make(*turns: Turn) -> FakeModel:
        made.append(FakeModel(reactor, Script(list(turns))))
        return made[-1]

    yield make
    for one in made:
        await one.close()


def request(url: str, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Ask, and read all of the answer (this blocks)."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        raw = body if isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, raw)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def events(to: FakeModel, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    status, raw = await deferToThread(request, to.url, "POST", path, body)
    assert status == 200, raw
    found = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + found[-1]["type"]
    return found


# -- the Messages dialect ---------------------------------------------------------------------


def messages(*more: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A request as Claude Code makes them."""
    tools = [
        {"name": "Bash", "description": "Runs a command.", "input_schema": {}},
        {"name": "mcp__intercom__send", "description": "Sends.", "input_schema": {}},
    ]
    first = {"role": "user", "content": "Begin."}
    system = [{"type": "text", "text": "You are an agent."}]
    return {
        "model": "m",
        "stream": True,
        "system": system,
        "tools": tools,
        "messages": [first, *more],
    } | members


def tool_result(content: Any, **members: Any) -> list[dict[str, Any]]:
    """A call, and what follows it."""
    call = {"type": "tool_use", "id": "t", "name": "x", "input": {}}
    block = {"type": "tool_result", "tool_use_id": "t", "content": content, **members}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}]


@pytest_twisted.ensureDeferred
async def test_a_text_streams_as_messages(model: Make) -> None:
    talk = await events(model(Say(TEXT)), messages_api.PATH, messages())
    assert [event["type"] for event in talk][:2] == ["message_start", "content_block_start"]
    pieces = [event["delta"]["text"] for event in talk if event["type"] == "content_block_delta"]
    assert len(pieces) > 2
    assert "".join(pieces) == TEXT
    assert talk[-2]["delta"]["stop_reason"] == "end_turn"
    assert talk[-1] == {"type": "message_stop"}


@pytest_twisted.ensureDeferred
async def test_a_call_streams_as_messages(model: Make) -> None:
    talk = await events(model(SEND), messages_api.PATH, messages())
    (start,) = (event for event in talk if event["type"] == "content_block_start")
    assert start["content_block"]["name"] == "mcp__intercom__send"
    pieces = [event["delta"] for event in talk if event["type"] == "content_block_delta"]
    assert json.loads("".join(piece["partial_json"] for piece in pieces)) == SEND.arguments
    assert talk[-2]["delta"]["stop_reason"] == "tool_use"


@pytest_twisted.ensureDeferred
async def test_what_messages_ask_is_kept_and_moves_the_script(model: Make) -> None:
    def next_command(results: tuple[Result, ...]) -> dict[str, Any]:
        return {"command": f"echo {results[-1].text}"}

    one = model(SEND, Call(SHELL, next_command), Say("Done."))
    await events(one, messages_api.PATH, messages())
    after = tool_result([{"type": "text", "text": "msg_1"}])
    for _ in range(2):  # a request that is repeated gets the same turn
        talk = await events(one, messages_api.PATH, messages(*after))
        assert talk[1]["content_block"]["name"] == "Bash"
    assert one.script.played[1] == Call(SHELL, {"command": "echo msg_1"})
    assert not one.script.over()
    after += tool_result("no such file", is_error=True)
    await events(one, messages_api.PATH, messages(*after))
    assert one.script.over()
    assert one.asked[-1].results == (Result("msg_1", False), Result("no such file", True))
    assert one.asked[-1].tools == {
        SHELL: Tool("Bash", "Runs a command."),
        SEND.tool: Tool("mcp__intercom__send", "Sends."),
    }
    assert one.asked[-1].told_as("system") == "You are an agent."
    assert one.asked[-1].told_as("user") == "Begin."
    assert not one.script.mishaps


@pytest_twisted.ensureDeferred
async def test_what_was_said_moves_the_script_too(model: Make) -> None:
    """A conversation goes on after the model's last word, if its user or a hook has more."""
    one = model(Say("First."), Say("Second."))
    await events(one, messages_api.PATH, messages())
    said = {"role": "assistant", "content": [{"type": "text", "text": "First."}]}
    talk = await events(one, messages_api.PATH, messages(said, {"role": "user", "content": "?"}))
    assert talk[2]["delta"]["text"] == "Second."


@pytest_twisted.ensureDeferred
async def test_asides_do_not_move_the_script(model: Make) -> None:
    """A program asks for a title, counts tokens, or wants no stream."""
    one = model(SEND)
    aside = messages(tools=[], stream=False)
    status, raw = await deferToThread(request, one.url, "POST", messages_api.PATH, aside)
    assert (status, json.loads(raw)["content"]) == (200, [{"type": "text", "text": "ok"}])
    counting = messages_api.PATH + "/count_tokens"
    status, raw = await deferToThread(request, one.url, "POST", counting, messages())
    assert (status, json.loads(raw)) == (200, {"input_tokens": 1})
    assert not one.asked
    whole = messages(stream=False)
    status, raw = await deferToThread(request, one.url, "POST", messages_api.PATH, whole)
    assert json.loads(raw)["content"][0]["input"] == SEND.arguments
    assert not one.strays


# -- the Responses dialect --------------------------------------------------------------------


def responses(*more: dict[str, Any]) -> dict[str, Any]:
    """A request as Codex makes them."""
    inner = {"type": "function", "name": "send", "description": "Sends."}
    tools = [
        {"type": "function", "name": "exec_command", "description": "Runs a command."},
        {"type": "namespace", "name": "mcp__intercom", "description": "Talk.", "tools": [inner]},
        {"type": "web_search"},
    ]
    first = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Begin."}],
    }
    return {"model": "m", "stream": True, "tools": tools, "input": [first, *more]}


def function_output(output: Any) -> list[dict[str, Any]]:
    """A call, and what follows it."""
    call = {"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}
    return [call, {"type": "function_call_output", "call_id": "c", "output": output}]


@pytest_twisted.ensureDeferred
async def test_a_text_streams_as_responses(model: Make) -> None:
    talk = await events(model(Say(TEXT)), responses_api.PATH, responses())
    pieces = [event["delta"] for event in talk if event["type"] == "response.output_text.delta"]
    assert len(pieces) > 2
    assert "".join(pieces) == TEXT
    assert talk[-2]["item"]["content"][0]["text"] == TEXT
    assert talk[-1]["type"] == "response.completed"


@pytest_twisted.ensureDeferred
async def test_calls_stream_as_responses_and_move_the_script(model: Make) -> None:
    one = model(SEND, Call(SHELL, {"command": "true"}), Say("Done."))
    item = (await events(one, responses_api.PATH, responses()))[-2]["item"]
    assert (item["namespace"], item["name"]) == ("mcp__intercom", "send")
    assert json.loads(item["arguments"]) == SEND.arguments
    after = function_output([{"type": "input_text", "text": "msg_1"}])
    item = (await events(one, responses_api.PATH, responses(*after)))[-2]["item"]
    assert item["name"] == "exec_command"
    assert json.loads(item["arguments"])["cmd"] == "true"
    after += function_output("exit 0")
    await events(one, responses_api.PATH, responses(*after))
    assert one.script.over()
    assert one.asked[-1].results == (Result("msg_1"), Result("exit 0"))
    assert set(one.asked[-1].tools) == {SHELL, SEND.tool, "web_search"}
    assert one.asked[-1].told_as("tools") == "Talk."


# -- the dialect of Gemini --------------------------------------------------------------------

GENERATE = "/v1beta/models/m:streamGenerateContent?alt=sse"


def contents(*more: dict[str, Any]) -> dict[str, Any]:
    """A request as Gemini CLI makes them."""
    declared = [
        {"name": "run_shell_command", "description": "Runs a command."},
        {"name": "mcp_intercom_send", "description": "Sends."},
    ]
    return {
        "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
        "tools": [{"functionDeclarations": declared}],
        "contents": [{"role": "user", "parts": [{"text": "Begin."}]}, *more],
    }


async def parts(to: FakeModel, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a streamed answer."""
    status, raw = await deferToThread(request, to.url, "POST", GENERATE, body)
    assert status == 200, raw
    found = []
    for block in raw.decode().removesuffix("\r\n\r\n").split("\r\n\r\n"):
        (candidate,) = json.loads(block.removeprefix("data: "))["candidates"]
        found += candidate["content"]["parts"]
    assert candidate["finishReason"] == "STOP"
    return found


@pytest_twisted.ensureDeferred
async def test_turns_stream_for_gemini_and_move_the_script(model: Make) -> None:
    one = model(SEND, Call(SHELL, {"command": "true"}), Say(TEXT))
    (part,) = await parts(one, contents())
    assert part == {"functionCall": {"name": "mcp_intercom_send", "args": SEND.arguments}}
    called = {"role": "model", "parts": [{"functionCall": {"name": "x", "args": {}}}]}
    sent = {"functionResponse": {"name": "x", "response": {"output": "msg_1"}}}
    after = [called, {"role": "user", "parts": [sent]}]
    (part,) = await parts(one, contents(*after))
    assert part == {"functionCall": {"name": "run_shell_command", "args": {"command": "true"}}}
    broken = {"functionResponse": {"name": "x", "response": {"error": "no such file"}}}
    after += [called, {"role": "user", "parts": [broken]}]
    said = await parts(one, contents(*after))
    assert len(said) > 2
    assert "".join(part["text"] for part in said) == TEXT
    assert one.asked[-1].results == (Result("msg_1", False), Result("no such file", True))
    assert one.asked[-1].told_as("system") == "You are an agent."
    assert not one.script.mishaps
    assert not one.strays


def test_tools_are_known_by_one_name_whatever_their_host_calls_them() -> None:
    hosts = ("mcp__intercom__send", "mcp_intercom_send", "intercom_send", "intercom-send")
    assert {known_as(name) for name in hosts} == {"intercom.send"}
    assert known_as("bash") == known_as("exec_command") == SHELL
    assert known_as("mcp__other__send") == "mcp__other__send"


# -- what goes wrong --------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_off_the_script_the_model_says_so_and_the_test_can_see_it(model: Make) -> None:
    def impossible(results: tuple[Result, ...]) -> dict[str, Any]:
        raise OffScript("there is no id in it")

    for turns, why in (
        ([Call("mcp__other__send", {})], "not among the tools"),
        ([Call(SHELL, impossible)], "there is no id in it"),
        ([], "there are 0 turns"),
    ):
        one = model(*turns)
        talk = await events(one, messages_api.PATH, messages())
        said = "".join(e["delta"]["text"] for e in talk if e["type"] == "content_block_delta")
        assert "cannot go on" in said
        assert why in said
        assert len(one.script.mishaps) == 1


@pytest_twisted.ensureDeferred
async def test_what_is_no_conversation_is_refused_and_kept(model: Make) -> None:
    one = model(Say("never said"))
    for method, path, body, expected in (
        ("GET", "/v1/models", None, 404),
        ("POST", "/v1/embeddings", {}, 404),
        ("POST", messages_api.PATH, b"{", 400),
        ("POST", responses_api.PATH, {"model": "m"}, 400),
    ):
        status, _ = await deferToThread(request, one.url, method, path, body)
        assert status == expected
    assert len(one.strays) == 4
    assert not one.asked


@pytest_twisted.ensureDeferred
async def test_a_program_may_leave_in_the_middle(model: Make) -> None:
    """Nothing is logged, and the next one is served."""
    one = model(Say(TEXT * 20_000))

    def leave() -> None:
        connection = HTTPConnection(one.url.removeprefix("http://"), timeout=30)
        connection.request("POST", messages_api.PATH, json.dumps(messages()))
        assert connection.getresponse().read(100)
        connection.close()

    await deferToThread(leave)
    short = messages(tools=[], stream=False)
    status, _ = await deferToThread(request, one.url, "POST", messages_api.PATH, short)
    assert status == 200
