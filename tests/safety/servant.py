"""Runs the command line as users that cannot even read this interpreter. Not a test.

An interpreter in root's home is closed to other users, and so would be a process of theirs
that starts it. So this process, root's, loads all that any command needs, and forks for each
command: the child gives up its privileges for good and goes on as that user.

It reads requests from standard input and answers on standard output, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import sys
import traceback
from typing import Any


def load_everything() -> None:
    """Import whatever a command may import later; nothing can be read after the fork."""
    import intercom

    for found in pkgutil.walk_packages(intercom.__path__, "intercom."):
        if found.name == "intercom.__main__":
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "intercom").startswith("intercom"):
                raise  # else it belongs to an extra that is not installed
    for name in ("difflib", "gettext", "locale", "subprocess", "tomllib", "unicodedata"):
        importlib.import_module(name)
    for name in ("default", "endpoints", "epollreactor", "inotify", "tcp", "threads", "unix"):
        with contextlib.suppress(ImportError):  # endpoints may lack a part of TLS
            importlib.import_module(f"twisted.internet.{name}")
    for name in ("ascii", "idna", "latin_1", "unicode_escape", "utf_16", "utf_32", "utf_8_sig"):
        importlib.import_module(f"encodings.{name}")
    importlib.import_module("twisted.python.threadpool")
    importlib.import_module("twisted.plugins")


def become(uid: int) -> None:
    """Be this user and nobody else, without a way back."""
    if uid != os.getuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def serve_command(asked: dict[str, Any]) -> int:
    """In the child: one command of intercom, from its descriptors to its exit status."""
    os.setsid()
    for number, key in enumerate(("in", "out", "err")):
        how = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        fd = os.open(asked[key], how, 0o600)
        os.dup2(fd, number)
        os.close(fd)
    if asked["words"][0] == "daemon":
        importlib.import_module("twisted.internet.reactor")  # its files are root's to read
    os.umask(asked["umask"])
    become(asked["uid"])
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    from intercom.cli.main import run

    try:
        run(asked["words"])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def start(asked: dict[str, Any]) -> dict[str, Any]:
    """Fork for a command, and tell its pid."""
    pid = os.fork()
    if pid:
        return {"pid": pid}
    status = 70
    try:
        status = serve_command(asked)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    os._exit(status)


def end(asked: dict[str, Any]) -> dict[str, Any]:
    """Wait for a command's end, and tell its status."""
    _pid, status = os.waitpid(asked["pid"], 0)
    return {"status": os.waitstatus_to_exitcode(status)}


def main() -> None:
    """Serve until standard input ends."""
    load_everything()
    verbs = {"start": start, "end": end}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(verbs[asked["do"]](asked)), flush=True)


if __name__ == "__main__":
    main()
