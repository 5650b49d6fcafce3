"""The steps of a hub's start and stop, with a double in the place of the hub itself.

Locks, sockets, log and timers are real; what the hub does with a connection is
tested elsewhere.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from intercom.election.flock import FlockElection
from intercom.election.locks import is_led
from intercom.errors import (
    AlreadyLed,
    BadConfig,
    CannotCreate,
    SpoolError,
    UnsafePlace,
)
from intercom.hub import service as module
from intercom.hub.service import (
    HubParts,
    HubService,
    exit_status,
    stop_reactor,
    use_monotonic_time,
)
from intercom.settings.hub import HubSettings


class Ended(Exception):
    """What a host of the service raises to end its program."""


class Stage:
    """A hub, its factory and its worker, of which only the order of calls is of interest."""

    def __init__(
        self, settings: HubSettings, settle: Callable[[Stage], HubSettings] | None = None
    ) -> None:
        self.settings = settings
        self.paths = settings.paths
        self.calls: list[str] = []
        self.said: list[str] = []
        self.left: list[BaseException | None] = []
        self.met = 0
        self.key: str | None = None
        self.idle = 0.0
        self.starting: Deferred[None] = succeed(None)
        self.stopping: Callable[[], Deferred[None]] = lambda: succeed(None)
        self.doubt: Callable[[str], None]
        self.leave: Callable[[BaseException | None], None] = self.left.append
        self.service = HubService(
            reactor,
            settings,
            self._leave,
            say=self.said.append,
            assemble=self._assemble,
            settle=None if settle is None else lambda: settle(self),
        )

    def _leave(self, error: BaseException | None) -> None:
        self.leave(error)

    def _assemble(
        self,
        reactor: Any,
        settings: HubSettings,
        key: str | None,
        leave: Callable[[str], None],
        unused: Callable[[], None],
    ) -> HubParts:
        self.note("assemble")
        self.settings = settings
        self.key, self.doubt = key, leave
        factory = Factory.forProtocol(lambda: self._meet())
        factory.noisy = False
        return HubParts(self, factory, self)  # type: ignore[arg-type]

    def _meet(self) -> Protocol:
        self.met += 1
        return Protocol()

    def note(self, what: str) -> None:
        """Keep what was called, and whether we led and could be found then."""
        led = "led" if is_led(self.paths) else "free"
        found = "found" if os.path.lexists(self.paths.socket) else "hidden"
        self.calls.append(f"{what}: {led}, {found}")

    # what the service calls

    def start(self) -> Deferred[None]:
        self.note("start")
        return self.starting

    def idle_for(self, now: float) -> float:
        assert abs(now - reactor.seconds()) < 1
        return self.idle

    def shut_down(self) -> Deferred[None]:
        self.note("shut_down")
        return self.stopping()

    def quit(self) -> Deferred[None]:
        self.note("quit")
        return succeed(None)


@pytest_twisted.async_yield_fixture
async def stage(channel_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(module, "CHECK_S", 0.02)
    made: list[Stage] = []

    def make(settle: Any = None, **settings: Any) -> Stage:
        made.append(Stage(HubSettings(str(channel_dir), "stage", **settings), settle))
        return made[-1]

    yield make
    for each in made:
        await each.service.stopService()


async def until(reached: Callable[[], object], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"
        await deferLater(reactor, 0.005)


def logged(stage: Stage) -> list[dict[str, Any]]:
    """What our own code has logged; Twisted tells of its ports there, too."""
    lines = [json.loads(line) for line in Path(stage.paths.log).read_bytes().splitlines()]
    return [line for line in lines if line["namespace"].startswith("intercom.")]


async def test_a_hub_starts_step_by_step_and_stops_in_reverse(stage: Any) -> None:
    """It can be found once it is ready, and leads until the last step."""
    one = stage()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    await one.service.stopService()
    assert one.calls == [
        "assemble: led, hidden",
        "start: led, hidden",
        "shut_down: led, hidden",
        "quit: led, hidden",
    ]
    assert not is_led(one.paths)
    assert one.left == [], "the host asked for the stop, so it needs no word of it"
    assert [text.split(" at ")[0] for text in one.said] == ["the hub of channel 'stage' is ready"]
    assert [line["text"].split(" at ")[0] for line in logged(one)] == [
        "leading stage",
        "left stage",
    ]
    assert sorted(os.listdir(one.paths.directory)) == ["channel.json", "hub.lock", "hub.log"]


async def test_what_it_runs_is_decided_once_it_leads(stage: Any) -> None:
    """By then its predecessor has left all of its settings; and what it runs with is kept."""

    def settle(stage: Stage) -> HubSettings:
        stage.note("settle")
        return replace(stage.settings, durability="process", kept={"durability": "process"})

    one = stage(settle)
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    assert one.calls[:2] == ["settle: led, hidden", "assemble: led, hidden"]
    assert one.settings.durability == "process"
    assert json.loads(Path(one.paths.settings).read_bytes())["durability"] == "process"


async def test_settings_that_cannot_be_end_it_before_it_has_parts(stage: Any) -> None:
    """With the reason, and the lock free for another."""

    def settle(stage: Stage) -> HubSettings:
        raise BadConfig("paper is no level", remedy="choose another")

    one = stage(settle)
    one.service.startService()
    assert [exit_status(error) for error in one.left] == [78]
    assert one.said == ["paper is no level\n  choose another"]
    await one.service.stopService()
    assert one.calls == []
    assert not is_led(one.paths)


async def test_nobody_finds_a_hub_that_is_not_ready(stage: Any) -> None:
    one = stage()
    one.starting = Deferred()
    one.service.startService()
    await deferLater(reactor, 0.05)
    assert not os.path.exists(one.paths.socket)
    one.starting.callback(None)
    await until(lambda: os.path.exists(one.paths.socket))


async def test_starting_twice_is_starting_once(stage: Any) -> None:
    one = stage()
    one.service.startService()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    assert one.calls.count("assemble: led, hidden") == 1


async def test_stopping_twice_is_stopping_once_and_both_are_told(stage: Any) -> None:
    one = stage()
    one.service.startService()
    first, second = one.service.stopService(), one.service.stopService()
    await first
    await second
    await one.service.stopService()
    assert [call.split(":")[0] for call in one.calls].count("shut_down") == 1


async def test_stopping_what_never_started_is_fine(stage: Any) -> None:
    one = stage()
    await one.service.stopService()
    assert one.calls == []
    assert not os.path.exists(one.paths.directory)


async def test_nothing_at_all_happens_before_the_start(stage: Any, channel_dir: Path) -> None:
    """twistd makes the service before it forks and sheds its privileges."""
    one = stage(listen=("tcp:0:interface=127.0.0.1",))
    one.service.privilegedStartService()
    assert list(channel_dir.iterdir()) == []


# -- another leads


async def test_a_hub_that_lost_says_who_leads_and_touches_nothing(stage: Any) -> None:
    first, second = stage(), stage()
    first.service.startService()
    await until(lambda: os.path.exists(first.paths.socket))
    size = os.stat(first.paths.log).st_size
    second.service.startService()
    await until(lambda: second.left)
    (error,) = second.left
    assert isinstance(error, AlreadyLed)
    assert exit_status(error) == 0
    (said,) = second.said
    assert f"pid {os.getpid()}" in said
    assert "intercom 0." in said
    assert time.strftime("since %Y-%m-%d") in said
    await second.service.stopService()
    assert second.calls == []
    assert os.path.exists(first.paths.socket)
    assert first.service._election.holds()
    text = Path(first.paths.log).read_text()[size:]
    assert "left stage" not in text, "the loser wrote into the leader's log"


async def test_a_hub_stopped_during_its_campaign_never_leads(stage: Any) -> None:
    first, second = stage(), stage()
    first.service.startService()
    second.service.startService()
    await second.service.stopService()
    await first.service.stopService()
    await deferLater(reactor, 0.4)
    assert second.calls == []
    assert second.left == []
    assert not is_led(second.paths)


# -- what can go wrong at the start


async def test_a_failure_known_at_once_reaches_whoever_starts_it(
    stage: Any, channel_dir: Path
) -> None:
    """twistd learns of it in time to tell its user."""
    (channel_dir / "stage").write_text("no directory")
    one = stage()

    def leave(error: BaseException | None) -> None:
        raise Ended from error

    one.leave = leave
    with pytest.raises(Ended) as caught:
        one.service.startService()
    assert isinstance(caught.value.__cause__, UnsafePlace)
    assert "not a directory" in one.said[0]
    assert exit_status(caught.value.__cause__) == 77


@pytest.mark.parametrize("kind", ["file", "directory"])
async def test_a_bind_that_fails_is_reported_at_once_with_status_73(stage: Any, kind: str) -> None:
    one = stage()
    one.paths.prepare()
    if kind == "file":
        Path(one.paths.socket).write_text("precious")
    else:
        os.mkdir(one.paths.socket)
    one.service.startService()
    (error,) = one.left
    assert isinstance(error, CannotCreate)
    assert exit_status(error) == 73
    assert one.paths.socket in one.said[0]
    await one.service.stopService()
    assert os.path.exists(one.paths.socket)
    assert not is_led(one.paths)


async def test_an_address_in_use_is_named(stage: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        one = stage(listen=(place,))
        one.service.startService()
        (error,) = one.left
        assert isinstance(error, CannotCreate)
        assert place in one.said[0]
        assert "in use" in one.said[0]
        await one.service.stopService()
    assert "start: led, hidden" not in one.calls


async def test_a_nonsensical_endpoint_is_a_configuration_error(stage: Any) -> None:
    one = stage(listen=("nonsense",))
    one.service.startService()
    (error,) = one.left
    assert isinstance(error, BadConfig)
    assert exit_status(error) == 78


async def test_a_spool_that_does_not_open_ends_the_hub_with_its_reason(stage: Any) -> None:
    one = stage()
    one.starting = Deferred()
    one.service.startService()
    assert one.left == []
    one.starting.errback(SpoolError("the disk is on fire"))
    (error,) = one.left
    assert isinstance(error, SpoolError)
    assert one.said == ["the disk is on fire"]
    assert not os.path.exists(one.paths.socket)
    assert [line["reason"] for line in logged(one)] == ["the disk is on fire"]
    await one.service.stopService()
    assert not is_led(one.paths)


async def test_a_file_that_cannot_be_written_is_named_without_a_traceback(stage: Any) -> None:
    one = stage()

    def refuse() -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), one.paths.log)

    one.service._file_log.open = refuse
    one.service.startService()
    (error,) = one.left
    assert exit_status(error) == 73
    assert one.paths.log in one.said[0]
    assert "Traceback" not in one.said[0]


async def test_a_thing_in_the_place_of_a_file_is_named_without_a_traceback(stage: Any) -> None:
    one = stage()
    one.paths.prepare()
    os.mkdir(one.paths.log)
    one.service.startService()
    (error,) = one.left
    assert exit_status(error) == 77
    assert f"{one.paths.log} is not a regular file" in one.said[0]
    assert "Traceback" not in one.said[0]


async def test_a_bug_at_the_start_leaves_its_traceback_for_everybody(
    stage: Any, logged_failures: list[Any]
) -> None:
    one = stage()
    one.starting = Deferred()
    one.service.startService()
    one.starting.errback(ZeroDivisionError("a bug"))
    assert exit_status(one.left[0]) == 1
    assert "ZeroDivisionError: a bug" in one.said[0]
    assert "ZeroDivisionError: a bug" in logged(one)[0]["traceback"]
    logged_failures.clear()


async def test_a_hub_stopped_while_it_starts_winds_down(stage: Any) -> None:
    one = stage()
    one.starting = Deferred()
    one.service.startService()
    await one.service.stopService()
    assert one.left == []
    assert one.calls[-2:] == ["shut_down: led, hidden", "quit: led, hidden"]
    assert not is_led(one.paths)
    assert sorted(os.listdir(one.paths.directory)) == ["channel.json", "hub.lock", "hub.log"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 0),
        (AlreadyLed("x"), 0),
        (CannotCreate("x"), 73),
        (UnsafePlace("x"), 77),
        (BadConfig("x"), 78),
        (ValueError("x"), 1),
    ],
)
def test_how_a_hub_ends_is_told_by_its_status(error: BaseException | None, status: int) -> None:
    assert exit_status(error) == status


# -- other doors


async def test_nobody_comes_in_by_tcp_before_the_hub_is_ready(stage: Any) -> None:
    one = stage(listen=("tcp:0:interface=127.0.0.1",))
    one.starting = Deferred()
    one.service.startService()
    (port,) = one.service._side_doors
    address = ("127.0.0.1", port.getHost().port)
    with socket.create_connection(address, timeout=60):
        await deferLater(reactor, 0.1)
        assert one.met == 0
        one.starting.callback(None)
        await until(lambda: one.met == 1)
    await one.service.stopService()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=60)


async def test_a_key_is_made_only_for_who_listens_elsewhere(stage: Any) -> None:
    plain = stage()
    plain.service.startService()
    await plain.service.stopService()
    assert plain.key is None
    assert not os.path.exists(plain.paths.key)
    open_hub = stage(listen=("tcp:0:interface=127.0.0.1",))
    open_hub.service.startService()
    await open_hub.service.stopService()
    assert open_hub.key == Path(plain.paths.key).read_text().strip()


# -- while it runs


async def test_a_deleted_socket_file_comes_back(stage: Any) -> None:
    one = stage()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    for _ in range(2):
        os.unlink(one.paths.socket)
        await until(lambda: os.path.exists(one.paths.socket))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(one.paths.socket)
        await until(lambda: one.met == 1)
    assert one.left == []


async def test_a_socket_file_that_cannot_come_back_is_complained_of_once(stage: Any) -> None:
    one = stage()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    os.unlink(one.paths.socket)
    os.mkdir(one.paths.socket)
    await until(lambda: "no socket file" in Path(one.paths.log).read_text())
    await deferLater(reactor, 0.2)
    os.rmdir(one.paths.socket)
    await until(lambda: os.path.exists(one.paths.socket))
    texts = [line["text"] for line in logged(one)]
    assert len([text for text in texts if text.startswith("no socket file")]) == 1
    assert texts[-1].endswith("is back")
    assert one.left == []


@pytest.mark.parametrize("how", ["lock unlinked", "lock replaced", "directory replaced"])
async def test_a_hub_whose_lock_is_taken_away_leaves_in_good_order(stage: Any, how: str) -> None:
    one = stage()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    if how == "directory replaced":
        os.rename(one.paths.directory, one.paths.directory + ".old")
        one.paths.prepare()
    else:
        os.unlink(one.paths.lock)
    if how == "lock replaced":
        Path(one.paths.lock).touch(0o600)
    await until(lambda: one.left)
    await one.service.stopService()
    assert one.left == [None], "it is no failure, and said once"
    log = "hub.log" if how != "directory replaced" else "../stage.old/hub.log"
    assert "gone or replaced" in Path(one.paths.file(log)).read_text()
    again = stage()
    again.service.startService()
    await until(lambda: os.path.exists(again.paths.socket))


async def test_a_hub_that_nobody_needs_ends(stage: Any) -> None:
    one = stage(idle_exit=5.0)
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    one.idle = 4.9
    await deferLater(reactor, 0.1)
    assert one.left == []
    one.idle = 5.0
    await until(lambda: one.left)
    await deferLater(reactor, 0.1)
    assert one.left == [None]


async def test_a_hub_started_by_hand_stays_however_long_nobody_comes(stage: Any) -> None:
    one = stage()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    one.idle = 1e9
    await deferLater(reactor, 0.1)
    assert one.left == []


async def test_a_hub_that_cannot_keep_its_promises_leaves_with_a_failure(stage: Any) -> None:
    one = stage()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    one.doubt("a sync failed")
    one.doubt("a sync failed again")
    (error,) = one.left
    assert exit_status(error) == 73
    (said,) = [text for text in one.said if "leaves" in text]
    assert said.startswith("the hub leaves: a sync failed\n")


async def test_a_bug_in_the_look_at_itself_does_not_end_the_looking(
    stage: Any, logged_failures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage()
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))

    def bug(self: object) -> bool:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(FlockElection, "holds", bug)
        await until(lambda: logged_failures)
    os.unlink(one.paths.socket)
    await until(lambda: os.path.exists(one.paths.socket))
    assert {failure.type for failure in logged_failures} == {ZeroDivisionError}
    logged_failures.clear()


# -- the stop


async def test_a_hub_that_does_not_finish_is_left_behind_in_time(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_WITHIN_S", 0.2)
    one = stage()
    one.stopping = Deferred
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    begun = time.monotonic()
    await one.service.stopService()
    assert 0.15 < time.monotonic() - begun < 10.0
    assert "took too long" in logged(one)[-2]["text"]
    assert one.calls[-1] == "quit: led, hidden"
    assert not is_led(one.paths)


async def test_a_step_that_fails_does_not_keep_the_next_from_being_taken(
    stage: Any, logged_failures: list[Any]
) -> None:
    one = stage()

    def bug() -> Deferred[None]:
        raise ZeroDivisionError

    one.stopping = bug
    one.service.startService()
    await until(lambda: os.path.exists(one.paths.socket))
    await one.service.stopService()
    assert one.calls[-1] == "quit: led, hidden"
    assert not is_led(one.paths)
    assert logged_failures.pop().type is ZeroDivisionError


def test_two_seconds_are_enough_for_a_stop() -> None:
    assert module.STOP_WITHIN_S < 2.0


# -- the reactor


def test_timers_do_not_follow_the_wall_clock() -> None:
    """Set back by an hour it would keep the hub waiting for an hour."""
    some = SimpleNamespace(seconds=time.time)
    use_monotonic_time(some)
    assert some.seconds is time.monotonic


def test_stopping_a_reactor_that_is_stopping_already_is_fine() -> None:
    class Stopping:
        def stop(self) -> None:
            from twisted.internet.error import ReactorNotRunning

            raise ReactorNotRunning

    stop_reactor(Stopping())
