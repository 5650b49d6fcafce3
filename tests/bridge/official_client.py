"""The official library's client against a bridge: prints what it came to know, as JSON.

Usage: ``official_client.py MODE COMMAND ARGUMENT...``; MODE is ``auto`` or ``legacy``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters


async def converse(mode: str, command: str, arguments: list[str]) -> dict[str, Any]:
    """Begin, list, call every tool, make a mistake, and wait for two things at once."""
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    found: dict[str, Any] = {}
    async with Client(server, mode=mode) as client:  # type: ignore[arg-type]
        found["version"] = client.protocol_version
        found["server"] = client.server_info.name
        found["instructions"] = client.instructions
        tools = (await client.list_tools()).tools
        found["tools"] = {one.name: one.annotations.read_only_hint for one in tools}
        found["loaded"] = [
            one.name for one in tools if (one.meta or {}).get("anthropic/alwaysLoad")
        ]
        for name, said in (
            ("peers", {}),
            ("inbox", {"wait_s": 0}),
            ("send", {"to": "nobody", "text": "hello"}),
            ("ask", {"to": "*", "text": "hello"}),
        ):
            result = await client.call_tool(name, said)
            found[name] = [bool(result.is_error), result.content[0].text]
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "inbox", {"wait_s": 45})
            await anyio.sleep(0)
            await client.send_ping()
            found["pinged"] = True
            group.cancel_scope.cancel()  # which tells the server that nobody waits any more
    return found


if __name__ == "__main__":
    print(json.dumps(anyio.run(converse, sys.argv[1], sys.argv[2], sys.argv[3:])))
