"""The four tools: what a model is told of each, and what it may say to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Seconds for which a tool waits at most: hosts give up at 60.
MOST_WAIT = 45.0
#: Seconds for which an ask waits if nothing is said.
ASK_WAIT = 45.0
#: Messages of one inbox result, where nothing is said, and at most.
LIMIT, MOST = 10, 50


class BadArguments(Exception):
    """The arguments of a call make no sense; the text says what to mend."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as ``tools/list`` shows it.

    :ivar properties: JSON schema of each argument.
    :ivar hints: the protocol's annotations.
    :ivar meta: hints that hosts define themselves.
    """

    name: str
    title: str
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...] = ()
    hints: Mapping[str, bool] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def listed(self) -> dict[str, Any]:
        """The tool for ``tools/list``."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: dict(one) for name, one in self.properties.items()},
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(self.required)
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {"title": self.title, **self.hints},
            "_meta": dict(self.meta),
        }

    def check(self, arguments: object) -> dict[str, Any]:
        """Return the arguments of a call, those left out left out.

        Null counts as left out, and a number that is written as a string as a number.

        :raise BadArguments: with a sentence that names what to mend.
        """
        if not isinstance(arguments, dict):
            raise BadArguments(f"the arguments of {self.name} are an object")
        given = {name: value for name, value in arguments.items() if value is not None}
        for name in given:
            if name not in self.properties:
                known = ", ".join(self.properties)
                raise BadArguments(f"{self.name} takes no {name!r}; it takes {known}")
        for name in self.required:
            if name not in given:
                raise BadArguments(f"{self.name} needs {name!r}: {self._about(name)}")
        return {name: self._read(name, value) for name, value in given.items()}

    def _about(self, name: str) -> str:
        return str(self.properties[name]["description"])

    def _read(self, name: str, value: object) -> Any:
        """One argument, checked against the part of JSON Schema that our tools use."""
        schema = self.properties[name]
        if schema["type"] == "string":
            if not isinstance(value, str):
                raise BadArguments(f"{name!r} of {self.name} is a string")
            if len(value) < schema.get("minLength", 0):
                raise BadArguments(f"{name!r} of {self.name} is empty: {self._about(name)}")
            return value
        if schema["type"] == "boolean":
            if not isinstance(value, bool):
                raise BadArguments(f"{name!r} of {self.name} is true or false")
            return value
        return self._number(name, value, schema)

    def _number(self, name: str, value: object, schema: Mapping[str, Any]) -> float:
        least, most = schema["minimum"], schema.get("maximum")
        kind = "a whole number" if schema["type"] == "integer" else "a number"
        number = _as_number(value)
        whole = number is not None and number == int(number)
        if number is None or (schema["type"] == "integer" and not whole):
            raise BadArguments(f"{name!r} of {self.name} is {kind}")
        if number < least or (most is not None and number > most):
            span = f"from {least:g} to {most:g}" if most is not None else f"of at least {least}"
            raise BadArguments(f"{name!r} of {self.name} is {kind} {span}")
        return int(number) if schema["type"] == "integer" else number


def _as_number(value: object) -> float | None:
    """The finite number that a value is, None if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if -1e15 < number < 1e15 else None


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": about}


def _wait(about: str) -> dict[str, Any]:
    return {"type": "number", "minimum": 0, "maximum": MOST_WAIT, "description": about}


SEND = Tool(
    "send",
    "Send a message",
    "Send a message to another agent session, or to everybody connected. "
    "An unknown name is refused, with the names most like it.",
    {
        "to": _text("session name as peers shows it, or * for everybody"),
        "text": _text("the message"),
        "reply_to": _text("id of the message that this answers"),
    },
    ("to", "text"),
    {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}
    | {"openWorldHint": False},
    {
        "anthropic/alwaysLoad": True,
        "anthropic/searchHint": "send message to another agent session, reply, broadcast",
    },
)
INBOX = Tool(
    "inbox",
    "Read messages",
    "Read your unread messages, oldest first; each is shown once. "
    "With id, read one message in full.",
    {
        "wait_s": _wait("wait so many seconds for a message if there is none; default 0"),
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST}
        | {"description": f"show at most so many; default {LIMIT}"},
        "id": _text("id of a message to show in full"),
        "part": {"type": "integer", "minimum": 1}
        | {"description": "with id: which part of a very long message; default 1"},
    },
    (),
    {"readOnlyHint": True, "openWorldHint": False},
    {
        "anthropic/alwaysLoad": True,
        "anthropic/maxResultSizeChars": 100_000,
        "anthropic/searchHint": "read inbox, unread messages from other agents, wait for mail",
    },
)
ASK = Tool(
    "ask",
    "Ask and wait for the answer",
    "Ask a connected session a question and wait for its answer. "
    "An answer that comes later is in inbox.",
    {
        "to": _text("session name as peers shows it"),
        "text": _text("the question"),
        "wait_s": _wait(f"wait so many seconds for the answer; default {ASK_WAIT:g}"),
    },
    ("to", "text"),
    {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}
    | {"openWorldHint": False},
    {
        "anthropic/maxResultSizeChars": 100_000,
        "anthropic/searchHint": "ask another agent session a question and get its answer",
    },
)
PEERS = Tool(
    "peers",
    "List sessions",
    "List the sessions that can be written to, and your own name.",
    {
        "all": {"type": "boolean", "description": "list also those that are not connected"},
    },
    (),
    {"readOnlyHint": True, "openWorldHint": False},
    {"anthropic/searchHint": "list other agent sessions, who is connected, own name"},
)

#: All of them, in the order in which they are listed.
TOOLS = {tool.name: tool for tool in (SEND, INBOX, ASK, PEERS)}
