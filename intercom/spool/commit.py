"""How a batch becomes safe from a power cut: through the journal, or file by file.

Blocking, for the syncer's thread. Standard library only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence

from intercom.paths import ChannelPaths
from intercom.spool.calls import FileCalls
from intercom.spool.journal import LARGEST, Journal, Unsafe
from intercom.spool.recovery import mark_failed
from intercom.spool.synced import OpenFile, sync_files


class Committer:
    """Makes batches safe, and inbox files catch up with the journal.

    After the first failed sync it claims nothing any more, and leaves a mark for the next
    hub, which then writes anew what the journal holds instead of trusting the kernel's
    word that it is clean.

    :param journal: None to sync the files themselves.
    :ivar problem: why nothing may be claimed any more, or an empty string.
    """

    def __init__(self, paths: ChannelPaths, calls: FileCalls, journal: Journal | None) -> None:
        self.problem = ""
        self._paths = paths
        self._calls = calls
        self._journal = journal
        self._now: set[OpenFile] = set()
        self._before: set[OpenFile] = set()

    def commit(
        self, records: Sequence[bytes], files: Collection[OpenFile], direct: Collection[OpenFile]
    ) -> None:
        """Make a batch safe: afterwards it is, or :attr:`problem` says why not.

        :param records: what was written to ``files``, as the journal keeps it.
        :param direct: files to be synced themselves.
        """
        if self.problem:
            return
        if records and not self._log(records, files):
            direct = {*direct, *files}
        if direct and not self.problem:
            self._sync(direct)

    def settle(self) -> bool:
        """Let one inbox file catch up with the journal; when all have, it forgets.

        :return: whether there is more to do.
        """
        if self._journal is None or self.problem or not (self._before or self._now):
            return False
        if not self._sync([(self._before or self._now).pop()]):
            return False
        if not self._before and not self._now:
            with contextlib.suppress(OSError):  # what it holds is safe twice, then
                self._journal.forget()
        return bool(self._before or self._now)

    def close(self, others: Iterable[OpenFile]) -> None:
        """Everything becomes safe in its own file, and the journal goes.

        :param others: files to sync beside those that the journal knows of.
        """
        if not self.problem and self._sync({*self._before, *self._now, *others}):
            with contextlib.suppress(OSError):
                if self._journal is not None:
                    self._journal.remove()
        elif self._journal is not None:
            self._journal.close()

    def _log(self, records: Sequence[bytes], files: Collection[OpenFile]) -> bool:
        """Write a batch to the journal; False if it must be made safe without it."""
        journal, length = self._journal, sum(map(len, records))
        if journal is None or length > LARGEST // 2:
            return False
        try:
            while not journal.has_room(length):
                if not self._sync(self._before):
                    return True
                journal.turn(full=bool(self._now) or journal.too_small_for(length))
                self._before, self._now = self._now, set()
            journal.write(records)
        except Unsafe as error:
            self._fail(f"the journal: {error.strerror or error}")
            return True
        except OSError:  # no room for it now; the files themselves may still be synced
            return False
        self._now.update(files)
        if self._before and journal.half_full:
            self._sync([self._before.pop()])  # one at a time, before it is in the way
        return True

    def _sync(self, files: Iterable[OpenFile]) -> bool:
        files = list(files)
        sync_files(files, self._calls)
        failed = next((file.failed for file in files if file.failed), "")
        if failed:
            self._fail(failed)
        return not failed

    def _fail(self, problem: str) -> None:
        """Claim nothing any more, and let the next hub know that it must not either."""
        self.problem = problem
        mark_failed(self._paths, self._calls)
