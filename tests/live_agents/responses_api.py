"""The Responses dialect, as Codex speaks it: what is asked, and a turn as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from model_script import SHELL, Asked, Call, Result, Say, Tool, Turn, toolbox

PATH = "/v1/responses"
#: How long a command is waited for, in milliseconds; then its host gives back what there is.
PATIENCE = 30_000
CHUNK = 12  # characters; a stream of one piece would be none


def understand(body: dict[str, Any]) -> Asked:
    """Read a request."""
    told = [("system", body["instructions"])] if body.get("instructions") else []
    spaces = [tool for tool in body.get("tools") or () if tool["type"] == "namespace"]
    told += [("tools", space["description"]) for space in spaces]  # a server's instructions, too
    results = []
    turns = 0
    for item in body["input"]:
        turns += item["type"] == "function_call" or item.get("role") == "assistant"
        if item["type"] == "message":
            told += [(item["role"], part["text"]) for part in item["content"] if "text" in part]
        elif item["type"] == "function_call_output":
            results.append(Result(_text(item["output"])))
    tools = toolbox(_tools(body))
    return Asked("responses", body["model"], tools, tuple(told), tuple(results), turns)


def stream(turn: Turn, asked: Asked, number: int) -> Iterator[bytes]:
    """The events of a turn, in pieces as a model writes them."""
    response = {"id": f"resp_{number:08}", "object": "response", "model": asked.model}
    yield _event("response.created", response=response | {"status": "in_progress", "output": []})
    yield from _said(turn, number) if isinstance(turn, Say) else _called(turn, asked, number)
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    yield _event("response.completed", response=response | {"status": "completed", "usage": usage})


def _said(turn: Say, number: int) -> Iterator[bytes]:
    item = {"type": "message", "id": f"item_{number:08}", "role": "assistant"}
    yield _event("response.output_item.added", output_index=0, item=item | {"content": []})
    where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    for at in range(0, len(turn.text), CHUNK):
        yield _event("response.output_text.delta", **where, delta=turn.text[at : at + CHUNK])
    content = [{"type": "output_text", "text": turn.text, "annotations": []}]
    yield _event("response.output_item.done", output_index=0, item=item | {"content": content})


def _called(turn: Call, asked: Asked, number: int) -> Iterator[bytes]:
    space, _, name = asked.tools[turn.tool].name.rpartition("__")
    item = {"type": "function_call", "id": f"item_{number:08}", "call_id": f"call_{number:08}"}
    arguments: Any = turn.arguments
    if turn.tool == SHELL:
        arguments = {"cmd": arguments["command"], "yield_time_ms": PATIENCE}
    item |= {"name": name, **({"namespace": space} if space else {})}
    text = json.dumps(arguments)
    yield _event("response.output_item.added", output_index=0, item=item | {"arguments": ""})
    for at in range(0, len(text), CHUNK):
        delta = {"item_id": item["id"], "output_index": 0, "delta": text[at : at + CHUNK]}
        yield _event("response.function_call_arguments.delta", **delta)
    yield _event("response.output_item.done", output_index=0, item=item | {"arguments": text})


def _tools(body: dict[str, Any]) -> Iterator[Tool]:
    """Functions; those of a namespace (a server of MCP) as ``namespace__name``."""
    for tool in body.get("tools") or ():
        name = tool.get("name", tool["type"])
        if tool["type"] == "namespace":
            for inner in tool["tools"]:
                yield Tool(f"{name}__{inner['name']}", inner.get("description", ""))
        else:
            yield Tool(name, tool.get("description", ""))


def _text(output: Any) -> str:
    """What a tool gave back: a string, or a list of parts."""
    if isinstance(output, str):
        return output
    return "\n".join(part["text"] for part in output if "text" in part)


def _event(name: str, **members: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **members})}\n\n".encode()
