"""How to speak to each kind of server: one object a connection, one class a protocol."""

from __future__ import annotations

from gauge.dialects.base import Dialect, Echo
from gauge.dialects.mqtt import Mqtt
from gauge.dialects.nats import JetStream, JetStreamAcks, Nats
from gauge.dialects.ndjson import Ndjson, NdjsonIds, NdjsonLive
from gauge.dialects.pi import Pi, PiSubagents
from gauge.dialects.redis import RedisShared, RedisStreams

#: By the name that a job gives to the load generator.
DIALECTS: dict[str, type[Dialect]] = {
    kind.__name__: kind
    for kind in (
        *(Echo, Ndjson, NdjsonLive, NdjsonIds, Pi, PiSubagents),
        *(Nats, JetStream, JetStreamAcks, RedisStreams, RedisShared, Mqtt),
    )
}
