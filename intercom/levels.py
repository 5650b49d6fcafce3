"""How safe a message is before its sender is told "stored" (docs/protocol, "Delivery")."""

from __future__ import annotations

#: From the least to the most: ``memory``: the hub has parsed it; ``process``: write(2) of the
#: whole line returned; ``disk``: the bytes were synced to stable storage.
LEVELS = ("memory", "process", "disk")
