"""JSON-RPC 2.0, one message a line, as the Model Context Protocol uses it. Pure.

What a host writes is read strictly into one of four shapes; what it is answered is ASCII, so
that no line of it holds a character at which somebody might cut it.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

#: What a request is known by; JSON-RPC allows fractions, too, and we give them back.
RequestId = str | int | float


class Request(NamedTuple):
    """Something to be answered."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(NamedTuple):
    """Something to be noted, and never answered."""

    method: str
    params: dict[str, Any]


class Response(NamedTuple):
    """An answer; we ask hosts for nothing, so there is nothing that it could be about."""


class Malformed(NamedTuple):
    """What is none of these.

    :ivar id: the request's, where it could be read.
    """

    code: int
    text: str
    id: RequestId | None = None


Message = Request | Notification | Response | Malformed


def read(line: bytes) -> Message:
    """Read one line."""
    try:
        found = json.loads(line.decode(), parse_constant=_no_number)
    except RecursionError:
        return Malformed(PARSE_ERROR, "the JSON is nested too deeply")
    except ValueError as error:
        return Malformed(PARSE_ERROR, f"not a line of JSON: {error}")
    if isinstance(found, list):
        text = "batches are not taken; send each message on a line of its own"
        return Malformed(INVALID_REQUEST, text)
    if not isinstance(found, dict):
        return Malformed(INVALID_REQUEST, "a message is a JSON object")
    return _message(found)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _message(found: dict[str, Any]) -> Message:
    """Tell what an object is."""
    about = found.get("id")
    known = about if isinstance(about, str | int | float) and not isinstance(about, bool) else None
    if found.get("jsonrpc") != "2.0":
        return Malformed(INVALID_REQUEST, 'a message has the member "jsonrpc": "2.0"', known)
    if "method" not in found:
        if "result" in found or "error" in found:
            return Response()
        return Malformed(INVALID_REQUEST, "a request names a method", known)
    method, params = found["method"], found.get("params", {})
    if not isinstance(method, str):
        return Malformed(INVALID_REQUEST, "a method is a string", known)
    if "id" in found and known is None:
        return Malformed(INVALID_REQUEST, "an id is a string or a number")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        return Malformed(INVALID_PARAMS, "params are an object", known)
    if known is None:
        return Notification(method, params)
    return Request(known, method, params)


def result(about: RequestId, value: dict[str, Any]) -> bytes:
    """Write the answer to a request, without line feed."""
    return _write({"jsonrpc": "2.0", "id": about, "result": value})


def error(
    about: RequestId | None, code: int, text: str, data: dict[str, Any] | None = None
) -> bytes:
    """Write the refusal of a request, of one that could not be read (None) too."""
    said: dict[str, Any] = {"code": code, "message": text}
    if data is not None:
        said["data"] = data
    return _write({"jsonrpc": "2.0", "id": about, "error": said})


def _write(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii")
