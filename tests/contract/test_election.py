"""What every election promises, in memory and by kernel locks."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from intercom.election import locks
from intercom.election.flock import FlockElection
from intercom.election.locks import already_led, is_led
from intercom.election.memory import MemoryElection, Venue
from intercom.errors import AlreadyLed, CannotCreate, UnsafePlace
from intercom.interfaces import IElection
from intercom.paths import ChannelPaths


class ElectionContract:
    """Mixed into a test case that makes contenders for one and the same place."""

    def contender(self, version: str = "1.0", started: float = 1000.0) -> Any:
        raise NotImplementedError

    def pass_time(self, seconds: float) -> None:
        """Let time pass for those who wait."""

    def depose(self) -> None:
        """Take the leadership away behind the leader's back."""
        raise NotImplementedError

    def test_it_is_an_election(self) -> None:
        assert verifyObject(IElection, self.contender())

    def test_the_first_to_come_leads(self) -> None:
        one = self.contender()
        assert not one.holds()
        assert self.successResultOf(one.campaign()) is None
        assert one.holds()

    def test_the_second_is_told_who_leads(self) -> None:
        one, two = self.contender("1.2.3", 1234.5), self.contender()
        self.successResultOf(one.campaign())
        lost = two.campaign()
        self.pass_time(0.5)
        error = self.failureResultOf(lost, AlreadyLed).value
        assert error.details == {"pid": os.getpid(), "version": "1.2.3", "started": 1234.5}
        assert one.holds()
        assert not two.holds()

    def test_who_resigns_makes_room(self) -> None:
        one, two = self.contender(), self.contender()
        self.successResultOf(one.campaign())
        one.resign()
        assert not one.holds()
        self.successResultOf(two.campaign())
        assert two.holds()
        assert not one.holds()

    def test_campaigning_again_while_leading_changes_nothing(self) -> None:
        one, two = self.contender(), self.contender()
        self.successResultOf(one.campaign())
        self.successResultOf(one.campaign())
        assert one.holds()
        one.resign()
        self.successResultOf(two.campaign())

    def test_resigning_twice_or_without_leading_does_nothing(self) -> None:
        one, two = self.contender(), self.contender()
        one.resign()
        self.successResultOf(two.campaign())
        one.resign()
        assert two.holds()
        two.resign()
        two.resign()
        self.successResultOf(one.campaign())

    def test_who_lost_can_lead_later(self) -> None:
        one, two = self.contender(), self.contender()
        self.successResultOf(one.campaign())
        lost = two.campaign()
        self.pass_time(0.5)
        self.failureResultOf(lost, AlreadyLed)
        one.resign()
        self.successResultOf(two.campaign())
        assert two.holds()

    def test_who_resigned_can_lead_again(self) -> None:
        one = self.contender()
        self.successResultOf(one.campaign())
        one.resign()
        self.successResultOf(one.campaign())
        assert one.holds()

    def test_a_deposed_leader_notices(self) -> None:
        one = self.contender()
        self.successResultOf(one.campaign())
        self.depose()
        assert not one.holds()
        one.resign()


class MemoryElectionTests(ElectionContract, SynchronousTestCase):
    def setUp(self) -> None:
        self.venue = Venue()

    def contender(self, version: str = "1.0", started: float = 1000.0) -> MemoryElection:
        return MemoryElection(self.venue, pid=os.getpid(), version=version, started=started)

    def depose(self) -> None:
        self.venue.leader = None


class FlockElectionTests(ElectionContract, SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.base = tempfile.mkdtemp(prefix="ic-", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.base, ignore_errors=True)
        self.paths = ChannelPaths(self.base, "votes")
        self.paths.prepare()

    def contender(self, version: str = "1.0", started: float = 1000.0) -> FlockElection:
        made = FlockElection(self.clock, self.paths, version, started)
        self.addCleanup(made.resign)
        return made

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([0.01] * round(seconds * 100))

    def depose(self) -> None:
        os.unlink(self.paths.lock)
        with open(self.paths.lock, "w"):
            pass

    def occupy(self, path: str, how: int = fcntl.LOCK_EX) -> int:
        """Hold a lock as a stranger would; returns the descriptor."""
        fd = os.open(path, os.O_RDONLY)
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return fd

    def test_a_lock_that_is_busy_for_a_moment_is_waited_for(self) -> None:
        """A command that looks whether a hub is there must not make the hub give up."""
        self.leave_lock_file()
        for path in (self.paths.lock, self.paths.directory):
            probe = self.occupy(path, fcntl.LOCK_SH)
            one = self.contender()
            campaign = one.campaign()
            self.pass_time(0.2)
            self.assertNoResult(campaign)
            os.close(probe)
            self.pass_time(0.05)
            self.successResultOf(campaign)
            one.resign()

    def leave_lock_file(self) -> None:
        """Make an empty lock file, as an original hub leaves it."""
        with open(self.paths.lock, "w"):
            pass

    def test_a_lock_that_stays_busy_is_given_up_after_300_ms(self) -> None:
        self.leave_lock_file()
        for path in (self.paths.lock, self.paths.directory):
            holder = self.occupy(path)
            campaign = self.contender().campaign()
            self.pass_time(0.28)
            self.assertNoResult(campaign)
            self.pass_time(0.06)
            error = self.failureResultOf(campaign, AlreadyLed).value
            assert error.details == {}
            assert "does not say who it is" in error.text
            os.close(holder)

    def test_a_new_lock_file_elects_no_second_leader(self) -> None:
        """The original programs unlink the lock; the directory's lock still stands."""
        one, two = self.contender(), self.contender()
        self.successResultOf(one.campaign())
        self.depose()
        lost = two.campaign()
        self.pass_time(0.5)
        self.failureResultOf(lost, AlreadyLed)
        one.resign()
        self.successResultOf(two.campaign())

    def test_a_leader_notices_that_its_directory_is_gone_or_replaced(self) -> None:
        one = self.contender()
        self.successResultOf(one.campaign())
        os.rename(self.paths.directory, self.paths.directory + ".away")
        assert not one.holds()
        os.symlink(self.paths.directory + ".away", self.paths.directory)
        assert not one.holds()
        os.unlink(self.paths.directory)
        self.paths.prepare()
        assert not one.holds()

    def test_a_lock_file_that_is_replaced_while_it_is_taken_is_taken_anew(self) -> None:
        """After locking, path and descriptor must be the same file, else all starts again."""
        one = self.contender()
        replaced = []
        open_lock_file = locks.open_lock_file

        def open_late(paths: ChannelPaths) -> int:
            fd = open_lock_file(paths)
            if not replaced:
                replaced.append(fd)
                self.depose()
            return fd

        self.patch(locks, "open_lock_file", open_late)
        campaign = one.campaign()
        self.assertNoResult(campaign)
        self.pass_time(0.05)
        self.successResultOf(campaign)
        assert one.holds()
        assert len(replaced) == 1

    def test_the_lock_file_says_who_leads_until_it_resigns(self) -> None:
        one = self.contender("9.9", 5.0)
        with open(self.paths.lock, "w") as file:
            file.write("something longer that was left by an earlier holder of this file")
        inode = os.stat(self.paths.lock).st_ino
        self.successResultOf(one.campaign())
        with open(self.paths.lock) as file:
            assert json.load(file) == {"pid": os.getpid(), "version": "9.9", "started": 5.0}
        one.resign()
        assert os.stat(self.paths.lock).st_size == 0
        assert os.stat(self.paths.lock).st_ino == inode, "the lock file was replaced"

    def test_the_lock_file_is_private(self) -> None:
        self.successResultOf(self.contender().campaign())
        assert os.stat(self.paths.lock).st_mode & 0o777 == 0o600

    def test_no_lock_is_kept_by_a_failed_campaign(self) -> None:
        holder = self.contender()
        self.successResultOf(holder.campaign())
        before = len(os.listdir("/proc/self/fd"))
        lost = self.contender().campaign()
        self.pass_time(0.5)
        self.failureResultOf(lost, AlreadyLed)
        assert len(os.listdir("/proc/self/fd")) == before

    def test_a_cancelled_campaign_takes_nothing_later(self) -> None:
        one, two = self.contender(), self.contender()
        self.successResultOf(one.campaign())
        waiting = two.campaign()
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        one.resign()
        self.pass_time(0.5)
        assert not two.holds()
        assert not is_led(self.paths)

    def test_the_locks_are_not_inherited_by_programs_that_we_start(self) -> None:
        one = self.contender()
        self.successResultOf(one.campaign())
        assert one._locks is not None
        assert not any(os.get_inheritable(fd) for fd in one._locks)

    def test_a_linked_lock_file_is_refused(self) -> None:
        os.symlink("/etc/hostname", self.paths.lock)
        self.failureResultOf(self.contender().campaign(), UnsafePlace)

    def test_a_missing_directory_is_named(self) -> None:
        shutil.rmtree(self.base)
        error = self.failureResultOf(self.contender().campaign(), CannotCreate).value
        assert self.paths.directory in error.text

    def test_a_lock_file_that_is_a_directory_is_refused(self) -> None:
        os.mkdir(self.paths.lock)
        error = self.failureResultOf(self.contender().campaign(), UnsafePlace).value
        assert self.paths.lock in error.text

    def test_looking_whether_a_channel_is_led_changes_nothing(self) -> None:
        assert not is_led(self.paths)
        assert not os.path.exists(self.paths.lock)
        one = self.contender()
        self.successResultOf(one.campaign())
        assert is_led(self.paths)
        assert one.holds()
        one.resign()
        assert not is_led(self.paths)


ME = os.getpid()


@pytest.mark.parametrize(
    ("written", "details", "words"),
    [
        (b"", {}, "does not say"),
        (b"not json", {}, "does not say"),
        (b"[1]", {}, "does not say"),
        (b'{"pid": "7"}', {}, "does not say"),
        (b"%d" % ME, {"pid": ME}, f"pid {ME}"),
        (b'{"pid": %d, "version": "0.1.0", "started": 0}' % ME, None, "intercom 0.1.0, since 19"),
        (b'{"pid": %d, "other": 1}' % ME, {"pid": ME}, f"pid {ME}"),
    ],
    ids=["nothing", "no JSON", "no object", "a text", "a number", "all", "some"],
)
def test_whatever_stands_in_the_lock_file_the_leader_is_named(
    channel_dir: Any, written: bytes, details: dict[str, Any] | None, words: str
) -> None:
    """A lock file of another program, or half written, never breaks the message."""
    paths = ChannelPaths(str(channel_dir), "x")
    paths.prepare()
    with open(paths.lock, "wb") as file:
        file.write(written)
    error = already_led(paths)
    assert words in error.text
    if details is not None:
        assert error.details == details


def test_the_dead_are_not_named_as_leaders(channel_dir: Any) -> None:
    """An original hub leaves in the lock file what a killed one wrote, and publishes its pid."""
    paths = ChannelPaths(str(channel_dir), "x")
    paths.prepare()
    gone = subprocess.Popen(["true"])
    gone.wait()
    with open(paths.lock, "w") as file:
        json.dump({"pid": gone.pid, "version": "0.1.0", "started": 0}, file)
    assert "does not say" in already_led(paths).text
    with open(paths.peers, "w") as file:
        json.dump({"hub_pid": ME}, file)
    assert already_led(paths).text.endswith(f"the hub with pid {ME}")
    with open(paths.peers, "w") as file:
        json.dump({"hub_pid": gone.pid}, file)
    assert "does not say" in already_led(paths).text
