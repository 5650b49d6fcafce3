"""The pages say what is so: links lead somewhere, codes are explained, commands are real."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from intercom import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
README = (ROOT / "README.md").read_text("utf-8")


def page_id(page: Path) -> str:
    """A page's name in test reports."""
    return str(page.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Files that a page points to exist, and so do the headings in them."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_examples_can_be_copied(page: Path) -> None:
    """What stands in a block of JSON is JSON, line by line, and below the limit of a line."""
    for block in blocks(page.read_text("utf-8"), "json"):
        for line in block.splitlines():
            assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_named_tests_exist(page: Path) -> None:
    """Where a page says which test holds a promise, that test is there."""
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::([\w:]+))?`", page.read_text("utf-8"))
    missing = [
        (name, test)
        for name, test in named
        if not (ROOT / name).is_file()
        or not all(
            re.search(rf"\b(def|class) {word}\b", (ROOT / name).read_text("utf-8"))
            for word in test.split("::")
            if word
        )
    ]
    assert not missing


def test_every_promise_names_a_test() -> None:
    """In the page of guarantees each numbered promise says what holds it."""
    page = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    promises = re.split(r"^## ", page.partition("## Not promised")[0], flags=re.MULTILINE)[1:]
    assert len(promises) >= 7
    assert not [text.splitlines()[0] for text in promises if "`tests/" not in text]


# -- error codes ------------------------------------------------------------------------------


def codes_in_use() -> set[str]:
    """Every wire code that the source passes to an error, a fault or a refusal."""
    found = set()
    for path in (ROOT / "intercom").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).split(".")[-1].lower()
                relevant = [word.value for word in node.keywords if word.arg == "code"]
                if name in ("fault", "_fault", "refused"):
                    relevant += node.args
            elif isinstance(node, ast.ClassDef) and path.name == "errors.py":
                relevant = [item.value for item in node.body if isinstance(item, ast.Assign)]
            else:
                continue
            found |= {
                value.value
                for value in relevant
                if isinstance(value, ast.Constant) and re.fullmatch("[A-Z_]{6,}", str(value.value))
            }
    return found


def documented_codes() -> Iterator[tuple[str, int, str]]:
    """The rows of the protocol page's table of codes: code, exit status, what happened."""
    page = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    for code, status, meaning in re.findall(
        r"^\| `([A-Z_]+)` \| (\d+) \| (.*?) \|", page, re.MULTILINE
    ):
        yield code, int(status), meaning


def test_every_error_code_is_explained() -> None:
    """Whatever code a client may meet, the protocol page has its cause and its remedy."""
    page = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    in_use = codes_in_use()
    assert {"BAD_JSON", "SESSION_COLLISION", "INBOX_LOCKED", "HUB_UNAVAILABLE"} <= in_use
    assert not {code for code in in_use if f"`{code}`" not in page}


def test_the_table_of_codes_is_true() -> None:
    """Exit statuses and closing of connections are those of the program."""
    rows = list(documented_codes())
    assert len(rows) > 15
    assert not [
        code
        for code, status, meaning in rows
        if status != errors.EXIT_CODES.get(code, errors.EX_PROTOCOL)
        or meaning.startswith("closes") != (code in errors.CLOSING_CODES)
    ]


# -- the README's two commands ----------------------------------------------------------------


def commands() -> list[str]:
    """The lines of the README's shell blocks, in order."""
    return [line for block in blocks(README, "sh") for line in block.splitlines()]


def test_ci_runs_the_readme_s_test_command() -> None:
    """Whoever follows the README runs what CI runs."""
    test = commands()[1]
    assert test in (ROOT / ".ci" / "run").read_text("utf-8")
    assert (ROOT / test.split()[-1]).is_file()


def test_the_readme_s_first_command_installs_and_shows() -> None:
    """It is one line, it makes an environment of its own, and it ends with the tour."""
    first = commands()[0]
    assert first.count("\n") == 0
    assert "-m venv" in first
    assert "pip install" in first
    assert "docs/tour.sh" in first


def test_the_readme_knows_every_command_and_exit_status() -> None:
    """Its table has the verbs of ``intercom --help`` and all statuses that they end with."""
    from intercom.cli.main import VERBS

    for verb in VERBS:
        assert f"`intercom {verb}" in README
    for status in sorted({0, 2, *errors.EXIT_CODES.values(), errors.EX_PROTOCOL}):
        assert re.search(rf"^\| {status} \|", README, re.MULTILINE), status


# -- programs that can be copied --------------------------------------------------------------


EMBEDDING = blocks((ROOT / "docs" / "embedding.md").read_text("utf-8"), "python")


def start(program: str, *words: str) -> subprocess.Popen[str]:
    """Run a Python program from a page."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", range(len(EMBEDDING)))
def test_programs_of_the_embedding_page_run(number: int, channel_dir: Path) -> None:
    """The service can be made, the hub in memory serves, the test in the page passes."""
    program = EMBEDDING[number]
    path = channel_dir / "hub.sock"
    process = start(program, f"unix:{path}")
    try:
        if "serverFromString" in program:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            assert [line["type"] for line in exchange(path)] == ["welcome", "receipt"]
            process.terminate()
        _output, complaints = process.communicate(timeout=60)
        assert not complaints
    finally:
        process.kill()
        process.wait()


def exchange(path: Path) -> list[dict[str, Any]]:
    """Register at a hub, send one message to nobody in particular, and return the answers."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(path))
        sock.sendall(
            b'{"type":"register","from_session":"api","payload":{"features":["receipts"]}}\n'
            b'{"type":"chat","to_session":"web","payload":{"text":"tests are green"}}\n'
        )
        with sock.makefile("rb") as lines:
            return [json.loads(next(lines)) for _ in range(2)]


def plain(line: dict[str, Any]) -> dict[str, Any]:
    """A line from the hub without what differs from run to run."""
    if line["from_session"] == "hub":
        line |= {"id": "", "timestamp": ""}
    payload = line["payload"]
    if "hub" in payload:
        payload["hub"] = sorted(payload["hub"])
    for row in payload.get("sessions", ()):
        row |= {"since": 0, "pid": 0, "uid": 0}
    return line


def test_the_conversation_of_the_protocol_page_can_be_had(channel_dir: Path) -> None:
    """Replaying what its clients say, a hub answers what the page shows, and nothing else."""
    page = (ROOT / "docs" / "protocol.md").read_text("utf-8").partition("## A conversation")[2]
    turns = [line.split(" ", 2) for block in blocks(page, "text") for line in block.splitlines()]
    assert len(turns) > 20
    words = ["daemon", "--dir", str(channel_dir), "--channel", "collab"]
    hub = start("from intercom.cli.main import run; run()", *words)
    assert hub.stderr is not None
    assert "ready" in hub.stderr.readline()
    connections: dict[str, tuple[socket.socket, BinaryIO]] = {}
    try:
        for who, arrow, text in turns:
            if who not in connections:
                sock = socket.socket(socket.AF_UNIX)
                connections[who] = sock, sock.makefile("rb")
                sock.settimeout(60)
                sock.connect(str(channel_dir / "collab" / "hub.sock"))
            sock, lines = connections[who]
            if arrow == "→":
                sock.sendall(text.encode() + b"\n")
            else:
                assert plain(json.loads(next(lines))) == plain(json.loads(text))
        for sock, lines in connections.values():
            sock.sendall(b'{"type":"heartbeat"}\n')
            assert json.loads(next(lines))["type"] == "heartbeat"
    finally:
        for sock, lines in connections.values():
            lines.close()
            sock.close()
        hub.terminate()
        hub.communicate(timeout=60)
