"""What another user of the machine may try on a channel, and what comes of it.

Each attack is made twice: with a kernel that hinders links, pipes and files of others in
shared directories, and with one that does not. Both an ordinary user and root are attacked.
Where the kernel would not even let the attacker put the thing there, that is shown first;
then root puts it there and gives it to him.
"""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import EXIT_CODES

pytestmark = pytest.mark.usefixtures("protection")

SEND = ("send", "--to", "bob", "--text", "a secret")
DAEMON = ("daemon", "--idle-exit", "5")
EVERY_COMMAND = (("init",), SEND, ("poll",), ("ack", "--all"), ("peers",), ("listen",), DAEMON)

SQUAT = """
import os, sys
os.umask(0)
os.mkdir(sys.argv[1], 0o777)
"""
LINK = """
import os, sys
os.symlink(sys.argv[2], sys.argv[1])
"""


def assert_refused(
    ended: Any, path: str | Path, *words: str, status: int = 77, code: str = "UNSAFE_PLACE"
) -> None:
    """A sentence with path, owner and mode, a remedy, and the status that goes with the code."""
    assert ended.status == status == EXIT_CODES[code], (ended.status, ended.out, ended.err)
    sentence, remedy = ended.err.strip().splitlines()[-2:]
    for word in ("intercom: ", str(path), *words):
        assert word in sentence, ended.err
    assert remedy.startswith("  ")
    if ended.out:  # a hub says nothing there
        said = ended.result
        assert (said["status"], said["code"]) == ("error", code)
        assert (said["message"], said["remedy"]) == (sentence[10:], remedy[2:])


# -- directories ------------------------------------------------------------------------------


def test_a_directory_for_channels_that_another_made_first_is_refused(
    attacker: Any, user: Any
) -> None:
    """He may have left it open to all, so that files can be planted and exchanged in it."""
    attacker.does(SQUAT, user.paths.base)
    for words in EVERY_COMMAND:
        assert_refused(user.run(*words), user.paths.base, "uid 65001", "mode 0777")
    assert os.listdir(user.paths.base) == []


def test_a_channel_directory_of_another_is_refused(attacker: Any, user: Any) -> None:
    """Though it stands in a directory of ours."""
    os.mkdir(user.paths.base, 0o700)
    user.own(user.paths.base)
    attacker.cannot(SQUAT, user.paths.directory)
    os.mkdir(user.paths.directory)
    os.chmod(user.paths.directory, 0o777)
    os.chown(user.paths.directory, attacker.uid, attacker.uid)
    for words in EVERY_COMMAND:
        assert_refused(user.run(*words), user.paths.directory, "uid 65001", "mode 0777")
    assert os.listdir(user.paths.directory) == []


def test_a_link_in_the_place_of_the_directory_for_channels_is_not_followed(
    attacker: Any, user: Any, treasure: Any
) -> None:
    """It leads to a directory of the user's own, with a right owner and a right mode."""
    attacker.does(LINK, user.paths.base, treasure.folder)
    treasure.watch()
    for words in EVERY_COMMAND:
        refused = user.run(*words)
        assert_refused(refused, user.paths.base, "symbolic link", "uid 65001")
        assert str(treasure.folder) not in refused.err, "the attacker's choice is recommended"
    treasure.assert_untouched()


def test_a_link_in_the_place_of_a_channel_directory_is_not_followed(
    attacker: Any, user: Any, treasure: Any
) -> None:
    os.mkdir(user.paths.base, 0o700)
    user.own(user.paths.base)
    attacker.cannot(LINK, user.paths.directory, treasure.folder / "default")
    os.symlink(treasure.folder / "default", user.paths.directory)
    os.lchown(user.paths.directory, attacker.uid, attacker.uid)
    treasure.watch()
    for words in EVERY_COMMAND:
        assert_refused(user.run(*words), user.paths.directory, "symbolic link", "uid 65001")
    treasure.assert_untouched()


@pytest.mark.parametrize("how", ["his own", "open to all"])
def test_a_place_that_could_be_exchanged_while_it_is_used_is_refused(
    attacker: Any, user: Any, commons: Path, how: str
) -> None:
    """Between two looks whoever can rename above us can put another directory in our place."""
    above = commons / "above"
    if how == "his own":
        attacker.does(SQUAT, above)
        os.chmod(above, 0o755)
    else:
        above.mkdir()
        above.chmod(0o777)
        user.own(above)
    for words in EVERY_COMMAND:
        refused = user.run(*words, INTERCOM_DIR=str(above / "base"))
        assert_refused(refused, above, "uid", "mode", "exchange")
    assert list(above.iterdir()) == []


def test_a_place_in_a_shared_directory_cannot_be_exchanged(attacker: Any, user: Any) -> None:
    """As in /tmp: there the sticky bit keeps what is ours where it is."""
    user.run(*SEND).ok()
    attacker.cannot("import os, sys; os.rename(sys.argv[1], sys.argv[1] + '2')", user.paths.base)
    attacker.cannot("import os, sys; os.rmdir(sys.argv[1])", user.paths.base)
    assert len(user.run("poll", INTERCOM_SESSION="bob").ok()["messages"]) == 1


def test_what_others_could_read_is_closed_and_what_they_could_write_is_refused(
    user: Any,
) -> None:
    """Anything may have been planted where others could write; that is for a person to see."""
    user.settle()
    os.chmod(user.paths.directory, 0o755)
    tightened = user.run(*SEND)
    tightened.ok()
    assert f"{user.paths.directory} was open to others (mode 0755)" in tightened.err
    assert stat.S_IMODE(os.stat(user.paths.directory).st_mode) == 0o700
    os.chmod(user.paths.directory, 0o777)
    for words in EVERY_COMMAND:
        assert_refused(user.run(*words), user.paths.directory, f"uid {user.uid}", "mode 0777")
    assert stat.S_IMODE(os.stat(user.paths.directory).st_mode) == 0o777


# -- files ------------------------------------------------------------------------------------

KEYED = (*DAEMON, "--listen", "tcp:0:interface=127.0.0.1")

#: Which file is planted, and the commands that need it: session, words, more environment.
FILES: dict[str, tuple[Callable[[Any], str], list[tuple[str, tuple[str, ...], dict[str, str]]]]] = {
    "inbox": (lambda p: p.inbox("bob"), [("bob", ("poll",), {}), ("ada", SEND, {})]),
    "offset": (lambda p: p.offset("bob"), [("bob", ("poll",), {}), ("ada", SEND, {})]),
    "meta": (lambda p: p.meta("bob"), [("bob", ("poll",), {}), ("ada", SEND, {})]),
    "name": (lambda p: p.claim("bob"), [("bob", ("poll",), {})]),
    "settings": (lambda p: p.settings, [("ada", SEND, {}), ("ada", DAEMON, {})]),
    "token": (lambda p: p.token("ada"), [("ada", SEND, {})]),
    "lock": (lambda p: p.lock, [("ada", DAEMON, {})]),
    "log": (lambda p: p.log, [("ada", DAEMON, {})]),
    "key": (lambda p: p.key, [("ada", KEYED, {})]),
    "spawn lock": (lambda p: p.spawn_lock, [("ada", ("peers",), {"INTERCOM_NO_SPAWN": ""})]),
    "last words": (lambda p: p.spawn_output, [("ada", ("peers",), {"INTERCOM_NO_SPAWN": ""})]),
}


def plant(kind: str, path: str, treasure: Any, owner: int) -> tuple[str, ...]:
    """Put something of another user's in a file's place; what a refusal says of it."""
    if kind == "link":
        os.symlink(treasure.file, path)
    elif kind == "link to nothing":
        os.symlink(treasure.absent, path)
    elif kind == "second name":
        os.link(treasure.file, path)
        return ("hard link", f"uid {os.stat(path).st_uid}, mode 0600")
    elif kind.startswith("pipe"):
        os.mkfifo(path)
        os.chmod(path, 0o666)
    elif kind == "directory":
        os.mkdir(path)
    else:
        Path(path).write_bytes(b'{"offset": 0, "generation": 1, "pid": 1}\n')
        os.chmod(path, 0o666)
    os.lchown(path, owner, owner)
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    return ("symbolic link" if "link" in kind else "", f"uid {owner}, mode {mode:04o}")


@pytest.mark.parametrize(
    "kind",
    ["link", "link to nothing", "second name", "pipe", "pipe in use", "directory", "file of his"],
)
def test_no_planted_file_is_read_or_written(
    attacker: Any, user: Any, treasure: Any, kind: str
) -> None:
    """Whichever file of the channel it stands for: each command that needs it refuses it."""
    user.settle()
    attacker.cannot(LINK, user.paths.file("anything"), treasure.file)
    for where, commands in FILES.values():
        path = where(user.paths)
        treasure.watch()
        words = plant(kind, path, treasure, attacker.uid)
        treasure.events()  # a second name is a change that the attacker made
        before = None if os.path.islink(path) or kind != "file of his" else Path(path).read_bytes()
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK) if kind == "pipe in use" else -1
        for session, command, environ in commands:
            ended = user.run(*command, INTERCOM_SESSION=session, **environ)
            assert_refused(ended, path, *words)
        if pipe >= 0:
            assert not select.select([pipe], [], [], 0)[0], "something was written to the pipe"
            os.close(pipe)
        treasure.assert_untouched()
        assert before is None or Path(path).read_bytes() == before
        (os.rmdir if kind == "directory" else os.unlink)(path)
        treasure.events()
        for entry in os.scandir(user.paths.directory):  # as if nothing had been done yet
            os.unlink(entry.path)


def test_a_running_hub_goes_around_what_is_planted(attacker: Any, user: Any, treasure: Any) -> None:
    """It refuses that inbox to its sender, serves all others, and replaces its own lists."""
    user.settle()
    planted = [
        user.paths.peers,
        user.paths.inbox("bob"),
        user.paths.inbox("hub"),
        user.paths.offset("eve"),
        user.paths.token("eve"),
        user.paths.meta("x" * 128),  # its name is a hash, so the file itself would be asked
        user.paths.file(".tmp-0123456789ab"),
        user.paths.socket_pointer,
    ]
    for path in planted:
        os.symlink(treasure.file, path)
        os.lchown(path, attacker.uid, attacker.uid)
    treasure.watch()
    hub = user.serve()
    refused = user.run(*SEND)
    assert (refused.status, refused.result["code"]) == (73, "SPOOL_FAILED")
    for word in (user.paths.inbox("bob"), "symbolic link", "uid 65001", "remove it"):
        assert word in refused.result["message"]
    assert user.run("send", "--to", "carol", "--text", "x").ok()["status"] == "sent"
    assert len(user.run("poll", INTERCOM_SESSION="carol").ok()["messages"]) == 1
    peers = json.loads(Path(user.paths.peers).read_bytes())
    assert peers["hub_pid"] == hub
    assert not os.path.islink(user.paths.peers)
    stopped = user.stop(hub)
    assert stopped.status == 0, stopped.err
    treasure.assert_untouched()


def test_cleaning_up_removes_names_and_nothing_that_they_lead_to(
    attacker: Any, user: Any, treasure: Any
) -> None:
    user.settle()
    planted = [user.paths.offset("bob"), user.paths.token("bob"), user.paths.meta("bob")]
    planted += [user.paths.peers, user.paths.file(".tmp-0123456789ab")]
    for path in planted:
        os.symlink(treasure.file, path)
        os.lchown(path, attacker.uid, attacker.uid)
    os.symlink(treasure.folder, user.paths.inbox("carol"))
    treasure.watch()
    for words in (("cleanup", "--stale"), ("cleanup",), ("cleanup", "--force")):
        ended = user.run(*words)
        assert ended.status in (0, 77), ended.err
    treasure.assert_untouched()
    assert not any(map(os.path.lexists, planted[:3]))


# -- sockets ----------------------------------------------------------------------------------

LISTEN = """
import os, socket, sys
os.umask(0)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
taken = b""
while True:
    found, _ = listener.accept()
    taken = found.recv(100)
    print(len(taken), flush=True)
"""


def open_up(user: Any, mode: int) -> None:
    """Let other users in, as if the owner had been careless."""
    for place in (user.paths.base, user.paths.directory):
        os.chmod(place, mode)


def test_a_hub_of_another_user_is_sent_nothing(attacker: Any, user: Any) -> None:
    """The kernel says who listens, even where the socket's file has been given to us."""
    user.settle()
    attacker.cannot(LISTEN, user.paths.socket)
    open_up(user, 0o777)
    listening = attacker.start(LISTEN, user.paths.socket)
    open_up(user, 0o700)
    for words in (SEND, ("peers",), ("init",), ("listen", "--timeout", "5")):
        refused = user.run(*words)
        assert_refused(refused, user.paths.socket, "another user's", "uid 65001, mode 0777")
    os.chown(user.paths.socket, user.uid, user.uid)
    refused = user.run(*SEND)
    assert_refused(refused, user.paths.socket, "runs as uid 65001", f"uid {user.uid}")
    assert listening.stdout.readline() == "0\n"  # of all these only the last even connected
    assert not os.path.exists(user.paths.inbox("bob"))


@pytest.mark.parametrize("whose", ["another user's", "the user's own"])
def test_a_link_in_the_place_of_the_socket_is_not_followed(
    attacker: Any, user: Any, commons: Path, whose: str
) -> None:
    """It may lead to a program of ours that is no hub, and would take our lines for its own."""
    user.settle()
    elsewhere = commons / "elsewhere"
    listening = attacker.start(LISTEN, elsewhere)
    if whose == "the user's own":
        user.own(elsewhere)
    os.symlink(elsewhere, user.paths.socket)
    os.lchown(user.paths.socket, attacker.uid, attacker.uid)
    for words in (SEND, ("peers",)):
        assert_refused(user.run(*words), user.paths.socket, "symbolic link", "uid 65001")
    refused = user.run(*DAEMON)
    assert_refused(
        refused, user.paths.socket, "a link stands there", status=73, code="CANNOT_CREATE"
    )
    assert not select.select([listening.stdout], [], [], 0)[0], "somebody has connected"
    assert os.path.islink(user.paths.socket)


CONNECT = """
import json, socket, sys
hub = socket.socket(socket.AF_UNIX)
hub.connect(sys.argv[1])
try:
    for kind in ("register", "chat"):
        line = {"type": kind, "id": kind, "from_session": "ada", "to_session": "bob",
                "payload": {"text": "forged", "features": ["receipts", "cursor"]}}
        hub.sendall(json.dumps(line).encode() + b"\\n")
except OSError:
    pass
said = b""
try:
    while part := hub.recv(65536):
        said += part
except ConnectionResetError:
    pass
print(said.decode(), end="")
"""


def test_a_hub_turns_another_user_away_by_what_the_kernel_says(attacker: Any, user: Any) -> None:
    """Though every directory and the socket stand open to him."""
    hub = user.serve()
    attacker.cannot(CONNECT, user.paths.socket)
    open_up(user, 0o755)
    os.chmod(user.paths.socket, 0o777)
    (said,) = map(json.loads, attacker.does(CONNECT, user.paths.socket).splitlines())
    assert (said["type"], said["payload"]["code"]) == ("error", "UNAUTHORIZED")
    assert f"uid {user.uid}" in said["payload"]["message"]
    assert "uid 65001" in said["payload"]["message"]
    assert user.run(*SEND).ok()["status"] == "sent"  # its own user is served as before
    (message,) = user.run("poll", INTERCOM_SESSION="bob").ok()["messages"]
    assert message["payload"]["text"] == "a secret"
    assert [row["session"] for row in user.run("peers").ok()["sessions"]] == []
    assert user.stop(hub).status == 0
    warned = [json.loads(line) for line in Path(user.paths.log).read_bytes().splitlines()]
    assert [line["uid"] for line in warned if "refused a process of uid" in line["text"]] == [65001]


TRY_ALL = """
import fcntl, os, sys
directories, mine = sys.argv[1:3], sys.argv[3]
attempts = {
    "list": lambda path: os.listdir(path),
    "stat": lambda path: os.stat(path),
    "read": lambda path: os.open(path, os.O_RDONLY),
    "lock": lambda path: fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB),
    "remove": lambda path: os.unlink(path),
    "link": lambda path: os.link(path, mine),
    "take away": lambda path: os.rename(path, mine),
}
tried = 0
for path in directories + sys.argv[4:]:
    for name, attempt in attempts.items():
        if (path in directories) != (name == "list"):
            continue
        tried += 1
        try:
            attempt(path)
        except PermissionError:
            continue
        print("could", name, path)
print("tried", tried)
"""


def test_to_another_user_a_channel_is_closed(attacker: Any, user: Any, commons: Path) -> None:
    """He reads nothing, and can neither lock, link nor remove anything."""
    hub = user.serve(*KEYED[3:])
    user.run(*SEND).ok()
    files = [user.paths.file(name) for name in sorted(os.listdir(user.paths.directory))]
    assert len(files) >= 7
    directories = (user.paths.base, user.paths.directory)
    said = attacker.does(TRY_ALL, *directories, commons / "his", *files)
    assert said == f"tried {2 + 6 * len(files)}\n"
    assert user.stop(hub).status == 0
