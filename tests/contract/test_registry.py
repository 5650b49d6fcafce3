"""What every registry promises, in memory and in files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred, execute
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from intercom import __version__
from intercom.errors import IntercomError
from intercom.hub.registry import FileRegistry, MemoryRegistry
from intercom.interfaces import IRegistry, IWorker
from intercom.paths import ChannelPaths
from intercom.records import Receiver
from intercom.spool import turns


@implementer(IWorker)
class Queue:
    """A worker whose work is done when the test says so, in order."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def do(self, work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, work, args))
        return done

    def quit(self) -> Deferred[None]:
        raise AssertionError("a registry ends no worker that it was lent")

    def run(self) -> None:
        while self.waiting:
            done, work, args = self.waiting.pop(0)
            execute(work, *args).chainDeferred(done)


class RegistryContract:
    """Mixed into a test case that makes registries for one and the same channel."""

    def registry(self) -> Any:
        raise NotImplementedError

    def settle(self) -> None:
        """Let everything asked be done."""

    def published(self) -> Sequence[str] | None:
        raise NotImplementedError

    def give_token(self, session: str, token: str) -> None:
        raise NotImplementedError

    def guarded(self) -> set[str]:
        """Of the sessions a, b and c those for which locks are held."""
        raise NotImplementedError

    def setUp(self) -> None:
        self.one = self.registry()

    def test_it_is_a_registry(self) -> None:
        assert verifyObject(IRegistry, self.one)

    def test_nothing_is_published_by_itself(self) -> None:
        assert self.published() is None

    def test_the_last_list_published_is_the_one_seen(self) -> None:
        all_done = [self.one.publish(names) for names in ([], ["a"], ("b", "ü - c"))]
        self.settle()
        assert [self.successResultOf(done) for done in all_done] == [None] * 3
        assert list(self.published() or ()) == ["b", "ü - c"]

    def test_a_list_changed_by_its_owner_later_is_published_as_it_was(self) -> None:
        names = ["a"]
        self.one.publish(names)
        names.append("b")
        self.settle()
        assert list(self.published() or ()) == ["a"]

    def test_an_empty_list_is_a_list(self) -> None:
        self.one.publish([])
        self.settle()
        assert self.published() is not None
        assert list(self.published() or ()) == []

    def test_withdrawing_takes_the_list_away_and_can_be_repeated(self) -> None:
        self.one.publish(["a"])
        for done in (self.one.withdraw(), self.one.withdraw()):
            self.settle()
            assert self.successResultOf(done) is None
        assert self.published() is None

    def test_withdrawing_what_was_never_published_is_fine(self) -> None:
        done = self.one.withdraw()
        self.settle()
        self.successResultOf(done)

    def test_nothing_is_published_after_the_withdrawal(self) -> None:
        """Somebody who leaves while the hub goes must not bring the list back."""
        self.one.withdraw()
        done = self.one.publish(["late"])
        self.settle()
        self.successResultOf(done)
        assert self.published() is None

    def test_a_session_without_a_token_has_none(self) -> None:
        done = self.one.token("nobody")
        self.settle()
        assert self.successResultOf(done) is None

    def test_each_session_has_its_own_token(self) -> None:
        self.give_token("a", "secret-a")
        self.give_token("b/../a", "secret-b")
        found = [self.one.token(name) for name in ("a", "b/../a", "c")]
        self.settle()
        assert [self.successResultOf(each) for each in found] == ["secret-a", "secret-b", None]

    def test_a_token_made_later_is_seen(self) -> None:
        early = self.one.token("a")
        self.settle()
        assert self.successResultOf(early) is None
        self.give_token("a", "fresh")
        late = self.one.token("a")
        self.settle()
        assert self.successResultOf(late) == "fresh"

    def test_receivers_are_guarded_while_they_are_connected(self) -> None:
        self.one.publish(["a", "b", "c"])
        self.one.guard([Receiver("a", 1), Receiver("b")])
        self.settle()
        assert self.guarded() == {"a", "b"}
        self.one.guard([Receiver("b"), Receiver("c", 3)])
        self.settle()
        assert self.guarded() == {"b", "c"}
        self.one.publish(["a", "c"])  # b has left: its locks go at once
        self.settle()
        assert self.guarded() == {"c"}

    def test_nobody_is_guarded_after_the_withdrawal(self) -> None:
        self.one.guard([Receiver("a", 1)])
        self.one.withdraw()
        done = self.one.guard([Receiver("a", 1)])
        self.settle()
        self.successResultOf(done)
        assert self.guarded() == set()


class MemoryRegistryTests(RegistryContract, SynchronousTestCase):
    def registry(self) -> MemoryRegistry:
        return MemoryRegistry()

    def guarded(self) -> set[str]:
        return {one.session for one in self.one.guarded}

    def published(self) -> Sequence[str] | None:
        return self.one.sessions

    def give_token(self, session: str, token: str) -> None:
        self.one.tokens[session] = token


class FileRegistryTests(RegistryContract, SynchronousTestCase):
    def setUp(self) -> None:
        base = tempfile.mkdtemp(prefix="ic-", dir="/tmp")
        self.addCleanup(shutil.rmtree, base)
        self.paths = ChannelPaths(base, "Chat Room")
        self.paths.prepare()
        self.worker = Queue()
        self.time = 1000.0
        super().setUp()

    def registry(self, pid: int = 4711) -> FileRegistry:
        return FileRegistry(self.worker, self.paths, pid, lambda: self.time)

    def settle(self) -> None:
        self.worker.run()

    def guarded(self) -> set[str]:
        held = {name for name in "abc" if turns.turn_of(self.paths, name) is not None}
        assert held == {name for name in "abc" if turns.reader_of(self.paths, name) is not None}
        return held

    def test_who_reads_is_written_into_the_locks_that_are_held_for_it(self) -> None:
        self.one.guard([Receiver("a", 12)])
        self.settle()
        found = turns.turn_of(self.paths, "a")
        assert found == turns.Holder(12, "connected to the hub", 1000.0)

    def test_whoever_has_the_turn_himself_is_left_alone(self) -> None:
        """Our own listen takes its turn before it connects."""
        own = turns.Holder(5, "intercom listen", 900.0)
        turn = turns.take(self.paths, "a", own)
        assert turn is not None
        self.one.guard([Receiver("a", 12), Receiver("b", 13)])
        self.settle()
        assert turns.turn_of(self.paths, "a") == own
        assert turns.reader_of(self.paths, "b") is not None
        turn.check()
        turn.close()
        assert turns.turn_of(self.paths, "a") is None
        self.one.guard([Receiver("a", 12), Receiver("b", 13)])
        self.settle()
        assert self.guarded() == {"a", "b"}

    def test_a_turn_whose_lock_file_was_removed_is_got_back(self) -> None:
        """By a listener that is connected and for which it is kept, and by nobody else."""
        own = turns.Holder(5, "intercom listen", 900.0)
        turn = turns.take(self.paths, "a", own)
        assert turn is not None
        os.unlink(self.paths.turn("a"))
        self.one.guard([Receiver("a", 5)])
        self.settle()
        assert turns.turn_of(self.paths, "a") == turns.Holder(5, "connected to the hub", 1000.0)
        turn.check()
        assert turns.turn_of(self.paths, "a") == own
        self.one.guard([Receiver("a", 5)])
        self.settle()
        turn.check()
        assert turns.turn_of(self.paths, "a") == own
        os.unlink(self.paths.turn("a"))
        self.one.guard([Receiver("a", 12)])
        self.settle()
        with pytest.raises(IntercomError, match=r"process 12 .* has taken over"):
            turn.check()
        turn.close()

    def test_a_turn_that_was_taken_over_is_given_up(self) -> None:
        self.one.guard([Receiver("a", 12)])
        self.settle()
        own = turns.Holder(5, "intercom listen", 900.0)
        turn = turns.seize(self.paths, "a", own)
        self.one.guard([Receiver("a", 5)])
        self.settle()
        turn.check()
        assert turns.turn_of(self.paths, "a") == own
        turn.close()
        assert turns.reader_of(self.paths, "a") is None

    def test_a_lock_file_that_is_none_stops_nothing(self) -> None:
        os.symlink(self.paths.peers, self.paths.turn("a"))
        os.mkdir(self.paths.turn("b"))
        done = self.one.guard([Receiver("a"), Receiver("b"), Receiver("c")])
        self.settle()
        self.successResultOf(done)
        assert turns.turn_of(self.paths, "c") is not None

    def read(self) -> dict[str, Any]:
        with open(self.paths.peers, "rb") as file:
            found: dict[str, Any] = json.load(file)
        return found

    def published(self) -> Sequence[str] | None:
        if not os.path.exists(self.paths.peers):
            return None
        names: list[str] = self.read()["active_sessions"]
        return names

    def give_token(self, session: str, token: str) -> None:
        with open(self.paths.token(session), "w") as file:
            file.write(token + "\n")

    def test_the_original_programs_find_their_four_fields_and_ours(self) -> None:
        self.time = 1005.5
        self.one.publish(["a"])
        self.settle()
        assert self.read() == {
            "channel": "chatroom",
            "hub_pid": 4711,
            "active_sessions": ["a"],
            "updated_at": 1005.5,
            "version": __version__,
            "started": 1000.0,
        }
        assert os.stat(self.paths.peers).st_mode & 0o777 == 0o600

    def test_file_work_is_left_to_the_worker(self) -> None:
        """The reactor's thread never waits for a disk."""
        self.one.publish(["a"])
        assert self.published() is None
        self.settle()
        assert self.published() == ["a"]

    def test_a_reader_never_sees_half_a_list(self) -> None:
        self.one.publish(["a"])
        self.settle()
        with open(self.paths.peers, "rb") as held:
            self.one.publish(["a", "b"])
            self.settle()
            assert json.load(held)["active_sessions"] == ["a"]
        assert self.published() == ["a", "b"]
        assert not [name for name in os.listdir(self.paths.directory) if name.startswith(".tmp")]

    def test_the_list_of_a_successor_is_not_taken_away(self) -> None:
        self.one.publish(["a"])
        self.time = 2000.0
        successor = self.registry(pid=4711)  # pids come again
        successor.publish(["b"])
        self.one.withdraw()
        self.settle()
        assert self.published() == ["b"]
        successor.withdraw()
        self.settle()
        assert self.published() is None

    def test_a_list_that_is_no_json_any_more_is_left_alone(self) -> None:
        for content in ("", "{", "[]"):
            with open(self.paths.peers, "w") as file:
                file.write(content)
            one = self.registry()
            done = one.withdraw()
            self.settle()
            self.successResultOf(done)
            assert os.path.exists(self.paths.peers)

    def test_a_list_that_cannot_be_written_is_an_error(self) -> None:
        os.mkdir(self.paths.peers)
        done = self.one.publish(["a"])
        self.settle()
        self.failureResultOf(done, OSError)

    def test_a_token_that_others_could_have_planted_is_not_trusted(self) -> None:
        """A link, a second name, a directory, no text: no token, and the log says why."""
        os.symlink("/etc/hostname", self.paths.token("link"))
        self.give_token("hard", "x")
        os.link(self.paths.token("hard"), self.paths.file("other-name"))
        os.mkdir(self.paths.token("dir"))
        with open(self.paths.token("bytes"), "wb") as file:
            file.write(b"\xff\xfe")
        for session in ("link", "hard", "dir", "bytes"):
            with capturedLogs() as events:
                done = self.one.token(session)
                self.settle()
            assert self.successResultOf(done) is None
            assert [event["session"] for event in events] == [session]

    def test_an_empty_token_file_is_no_token(self) -> None:
        """It must not let in whoever shows an empty string."""
        self.give_token("a", "")
        done = self.one.token("a")
        self.settle()
        assert self.successResultOf(done) is None
