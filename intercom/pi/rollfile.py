"""The roll: which sessions of the pi clients a channel's hub knew, for the hub that follows.

One file in the channel, replaced whole and not synced: what it lacks after a power cut is
only who could be written to without having come back. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from intercom.errors import UnsafePlace
from intercom.paths import ChannelPaths, read_private, write_atomic

FORMAT = 1
#: No roll is longer: 4,224 sessions with ids and names of some 2 KiB each.
_LONGEST = 16 << 20


def save(paths: ChannelPaths, sessions: Sequence[dict[str, Any]]) -> None:
    """Replace the roll.

    :raise OSError: the old one stands.
    """
    data = json.dumps({"format": FORMAT, "sessions": list(sessions)}, ensure_ascii=True)
    write_atomic(paths.file("pi_roll.json"), data.encode() + b"\n")


def load(paths: ChannelPaths) -> tuple[list[Any], str]:
    """The sessions on the roll, and what is wrong with the file, if anything is."""
    path = paths.file("pi_roll.json")
    try:
        data = read_private(path, _LONGEST)
        found = json.loads(data) if data is not None else {"sessions": []}
        if not (isinstance(found, dict) and isinstance(found.get("sessions"), list)):
            return [], f"{path} holds no roll"
    except (UnsafePlace, OSError, ValueError, RecursionError) as error:
        return [], f"{path}: {error}"
    return found["sessions"], ""
