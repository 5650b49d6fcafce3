"""The dialect of Gemini: what is asked, and a turn as a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from model_script import Asked, Result, Say, Tool, Turn, toolbox

PATH = re.compile(r"/v1beta/models/(?P<model>[^/:]+):(stream)?[gG]enerateContent")
CHUNK = 12  # characters; a stream of one piece would be none


def understand(body: dict[str, Any], model: str) -> Asked:
    """Read a request."""
    told = [("system", text) for text in _texts(body.get("systemInstruction") or {"parts": []})]
    results: list[Result] = []
    turns = 0
    for content in body["contents"]:
        turns += content["role"] == "model"
        told += [(content["role"], text) for text in _texts(content)]
        answers = [part["functionResponse"] for part in content["parts"] if _answers(part)]
        results += [_result(answer["response"]) for answer in answers]
    declared = [one for tool in body.get("tools") or () for one in tool["functionDeclarations"]]
    tools = toolbox(Tool(one["name"], one.get("description", "")) for one in declared)
    return Asked("gemini", model, tools, tuple(told), tuple(results), turns)


def stream(turn: Turn, asked: Asked, number: int) -> Iterator[bytes]:
    """The events of a turn; a call comes in one."""
    if isinstance(turn, Say):
        starts = range(0, len(turn.text), CHUNK)
        parts: list[dict[str, Any]] = [{"text": turn.text[at : at + CHUNK]} for at in starts]
    else:
        parts = [{"functionCall": {"name": asked.tools[turn.tool].name, "args": turn.arguments}}]
    for part in parts:
        last = part is parts[-1]
        yield f"data: {json.dumps(_answer(part, asked.model, number, last))}\r\n\r\n".encode()


def whole(turn: Turn, asked: Asked, number: int) -> dict[str, Any]:
    """A turn for a request that wants no stream; only asides come so, and they get texts."""
    assert isinstance(turn, Say)
    return _answer({"text": turn.text}, asked.model, number, True)


def _answer(part: dict[str, Any], model: str, number: int, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": [part]}}
    if last:
        candidate["finishReason"] = "STOP"
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": model,
        "responseId": f"response_{number:08}",
    }


def _answers(part: dict[str, Any]) -> bool:
    return "functionResponse" in part


def _result(response: dict[str, Any]) -> Result:
    """What a tool gave back: its output, or the error that it ended with."""
    text = response.get("output", response.get("error", ""))
    return Result(text if isinstance(text, str) else json.dumps(text), "error" in response)


def _texts(content: dict[str, Any]) -> list[str]:
    return [part["text"] for part in content["parts"] if "text" in part]
