"""The Messages dialect, as Claude Code and others speak it: what is asked, a turn as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from model_script import SHELL, Asked, Call, Result, Say, Tool, Turn, toolbox

PATH = "/v1/messages"
CHUNK = 12  # characters; a stream of one piece would be none


def understand(body: dict[str, Any]) -> Asked:
    """Read a request."""
    told = [("system", text) for text in _texts(body.get("system"))]
    results: list[Result] = []
    turns = 0
    for message in body["messages"]:
        turns += len(message["content"]) if message["role"] == "assistant" else 0
        told += [(message["role"], text) for text in _texts(message["content"])]
        results += _results(message["content"])
    tools = [Tool(one["name"], one.get("description", "")) for one in body.get("tools") or ()]
    return Asked("messages", body["model"], toolbox(tools), tuple(told), tuple(results), turns)


def stream(turn: Turn, asked: Asked, number: int) -> Iterator[bytes]:
    """The events of a turn, in pieces as a model writes them."""
    message = {"id": f"msg_{number:08}", "type": "message", "role": "assistant"}
    message["model"] = asked.model
    usage = {"input_tokens": 1, "output_tokens": 1}
    opening = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _event("message_start", message=message | opening)
    if isinstance(turn, Say):
        yield from _block({"type": "text", "text": ""}, "text_delta", "text", turn.text)
        why = "end_turn"
    else:
        name, arguments = _tool_use(turn, asked)
        block = {"type": "tool_use", "id": f"toolu_{number:08}", "name": name, "input": {}}
        yield from _block(block, "input_json_delta", "partial_json", json.dumps(arguments))
        why = "tool_use"
    ending = {"stop_reason": why, "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={"output_tokens": 1})
    yield _event("message_stop")


def whole(turn: Turn, asked: Asked, number: int) -> dict[str, Any]:
    """A turn for a request that wants no stream."""
    block: dict[str, Any] = {"type": "text", "text": turn.text} if isinstance(turn, Say) else {}
    if isinstance(turn, Call):
        name, arguments = _tool_use(turn, asked)
        block = {"type": "tool_use", "id": f"toolu_{number:08}", "name": name, "input": arguments}
    return {
        "id": f"msg_{number:08}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [block],
        "stop_reason": "end_turn" if isinstance(turn, Say) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _texts(content: Any) -> list[str]:
    """The texts of a content, which may be one string."""
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content or () if block["type"] == "text"]


def _results(content: Any) -> Iterator[Result]:
    for block in content if isinstance(content, list) else ():
        if block["type"] == "tool_result":
            given = block.get("content")
            found = _texts(given)
            if isinstance(given, list):  # Claude Code answers a search for tools so
                found += [one["tool_name"] for one in given if one["type"] == "tool_reference"]
            yield Result("\n".join(found), bool(block.get("is_error")))


def _tool_use(call: Call, asked: Asked) -> tuple[str, dict[str, Any]]:
    assert isinstance(call.arguments, dict)
    arguments = dict(call.arguments)
    if call.tool == SHELL:
        arguments |= {"description": "run a command"}  # most of them ask for one
    return asked.tools[call.tool].name, arguments


def _block(block: dict[str, Any], kind: str, member: str, text: str) -> Iterator[bytes]:
    yield _event("content_block_start", index=0, content_block=block)
    for at in range(0, len(text), CHUNK):
        delta = {"type": kind, member: text[at : at + CHUNK]}
        yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)


def _event(name: str, **members: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **members})}\n\n".encode()
