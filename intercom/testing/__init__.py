"""A whole hub in memory, for the tests of those who embed it.

The core, the protocol and the outflow are the real ones; only sockets, files and
the clock are replaced, by twins that pass the same contract tests as the real
ones. Nothing happens unless a test makes it happen: bytes move when a client
says something, time passes in :meth:`MemoryHub.advance`.

    >>> hub = MemoryHub("demo")
    >>> ada, bob = hub.client("ada"), hub.client("bob", features=["cursor"])
    >>> sent = ada.chat("bob", text="hello")
    >>> [line["payload"]["text"] for line in bob.heard("chat")]
    ['hello']
"""

from intercom.testing.clients import MemoryClient, MemoryPiClient
from intercom.testing.hub import MemoryHub
from intercom.testing.transport import BoundedTransport

__all__ = ["BoundedTransport", "MemoryClient", "MemoryHub", "MemoryPiClient"]
