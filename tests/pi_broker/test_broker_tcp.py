"""TCP beside the Unix sockets, for those who know the secret."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from collections.abc import Callable
from typing import Any

import pytest
from pi_broker_process import BrokerProcess
from pi_frames_client import PATIENCE_S, register_frame

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def test_the_file_tells_where_and_by_which_secret(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(PI_INTERCOM_TRANSPORT=" TCP ").start()
    found = broker.port_file.read_text()
    endpoint = json.loads(found)
    assert list(endpoint) == ["transport", "host", "port", "stateId"]
    assert (endpoint["transport"], endpoint["host"]) == ("tcp", "127.0.0.1")
    assert UUID.fullmatch(endpoint["stateId"])
    status = os.lstat(broker.port_file)
    assert stat.S_ISREG(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert broker.stop() == 0
    assert not broker.port_file.exists()
    broker.start()
    assert broker.endpoint()["stateId"] != endpoint["stateId"]


def test_without_the_secret_nothing_is_said(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(PI_INTERCOM_TCP="True").start()
    secret, address = broker.endpoint()["stateId"], ("127.0.0.1", broker.endpoint()["port"])
    told: list[dict[str, Any]] = [{}]
    told += [{"stateId": one} for one in ("wrong", "", 5, None, [secret], secret + "0")]
    for shown in told:
        for frame in (
            register_frame("ada", **shown),
            {"type": "health", "requestId": "r", **shown},
        ):
            with broker.connect(address) as client:
                client.write(frame)
                assert client.ended() == [], shown
    with broker.join("bob") as other:
        assert other.ids() == ["bob"]


def test_with_the_secret_it_is_a_session_like_others(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(PI_INTERCOM_TCP="1").start()
    endpoint = broker.endpoint()
    with broker.join("bob") as other, broker.connect(("127.0.0.1", endpoint["port"])) as client:
        secret = {"stateId": endpoint["stateId"]}
        client.write({"type": "health", "requestId": "r", **secret})
        assert client.read() == {
            "type": "health_ok",
            "requestId": "r",
            "protocol": "pi-intercom",
            "version": 1,
        }
        client.register("ada", **secret)
        # a listing needs no secret, and tells none
        rows = {row["id"]: row for row in client.list()}
        assert rows["ada"]["trustedLocal"] is False
        assert rows["bob"]["trustedLocal"] is True
        assert endpoint["stateId"] not in json.dumps(rows)
        assert client.ask("bob", "m1")["delivery"] == "socket_delivered"
        assert other.take("message")["from"]["trustedLocal"] is False
        assert other.reply("ada", "r1", "m1")["delivery"] == "socket_delivered"
        # a second session of this connection must show it again
        client.unregister()
        client.write(register_frame("ada"))
        client.ended()


def test_a_client_of_lines_is_not_let_in_there_without_the_channels_key(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    """A web page can make a browser send text to any port."""
    broker = make_broker(PI_INTERCOM_TCP="1").start()
    address = ("127.0.0.1", broker.endpoint()["port"])
    for data in (b'{"type":"register","from_session":"eve"}\n', b"POST / HTTP/1.1\r\n\r\n{}\n"):
        with socket.create_connection(address, PATIENCE_S) as client:
            client.sendall(data)
            said = b"".join(iter(lambda: client.recv(65536), b""))
            assert said == b"" or json.loads(said)["type"] == "error"
    with broker.join("bob") as other:
        assert other.ids() == ["bob"]


@pytest.mark.parametrize("environ", [{"PI_INTERCOM_TCP": "0"}, {"PI_INTERCOM_TRANSPORT": "unix"}])
def test_without_being_asked_for_there_is_none(
    make_broker: Callable[..., BrokerProcess], environ: dict[str, str]
) -> None:
    broker = make_broker(**environ).start()
    assert not broker.port_file.exists()
    broker.join("ada")
