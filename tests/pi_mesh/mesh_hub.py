"""The hub of a mesh as a process, and connections of each of the three kinds to it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from mesh_lines_client import LinesClient
from mesh_subagents_client import SubagentsClient
from pi_broker_process import BrokerProcess, until
from pi_frames_client import PiClient

#: A session in a scope of its own sees nobody and is seen by nobody.
_APART = "apart"


class Hub(BrokerProcess):
    """A hub with its pi places. It ends what is connected when it is told to."""

    def __init__(self, root: Path, **environ: str) -> None:
        super().__init__(root, **environ)
        self._others: list[SubagentsClient | LinesClient] = []
        self._anchor: PiClient | None = None

    @property
    def channel_directory(self) -> Path:
        return Path(self.hub_socket).parent

    def subagents(self, wished: str | None = None, topics: bool = True, **session: Any) -> Any:
        """A pi-subagents client; without a wished id it has not registered."""
        client = SubagentsClient(self.subagents_socket, topics)
        self._others.append(client)
        if wished is not None:
            assert client.register(wished, **session) == wished
        return client

    def lines(self, session_id: str, *features: str, **payload: Any) -> LinesClient:
        """An NDJSON session."""
        client = LinesClient(self.hub_socket)
        self._others.append(client)
        client.register(session_id, *features, **payload)
        return client

    def peers(self) -> list[str]:
        """Who is active, as ``peers.json`` says."""
        said = json.loads((self.channel_directory / "peers.json").read_bytes())
        return list(said["active_sessions"])

    def inbox(self, session_id: str) -> Path:
        return self.channel_directory / f"inbox_{session_id}.ndjson"

    def inbox_size(self, session_id: str) -> int:
        """How many bytes lie in a session's inbox."""
        return self.inbox(session_id).stat().st_size

    def position(self, session_id: str) -> int:
        """Up to which byte a session has read its inbox, as the file says."""
        path = self.channel_directory / f"offset_{session_id}.json"
        return int(json.loads(path.read_bytes())["offset"]) if path.exists() else 0

    def pending(self) -> set[str]:
        """The ids of the asks that have a file."""
        found = set()
        for one in self.asks.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # answered meanwhile
                found.add(json.loads(one.read_bytes())["askId"])
        return found

    def stay(self) -> None:
        """Have somebody connected at all times, so that the hub stays."""
        self._anchor = PiClient(self.socket)
        self._anchor.register("anchor", scopeId=_APART)

    def hang_up(self) -> None:
        super().hang_up()
        others, self._others = self._others, []
        for client in others:
            client.close()

    def empty(self) -> None:
        """Close all connections of a test, and wait until nobody is seen any more."""
        self.hang_up()
        with PiClient(self.socket) as witness:
            witness.register("witness")
            until(lambda: witness.ids() == ["witness"], "somebody stays")

    def bid(self) -> None:
        if self._anchor is not None:
            self._anchor.close()
        super().bid()
