"""What is made from the code is up to date, and the page of pi's protocol says what is so."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from intercom.core.bus.asks import Asks
from intercom.core.bus.mailbox import Box, Letter, Mailbox
from intercom.settings.table import LIMITS
from intercom.wire.pi.replies import KNOWN, KNOWN_BEFORE

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "core" / "bus_golden"


def load(path: Path) -> ModuleType:
    """A program that is no part of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where its dataclasses and tuples look for their names
    spec.loader.exec_module(module)
    return module


diagrams = load(ROOT / "docs" / "diagrams.py")


# -- up to date -------------------------------------------------------------------------------


def test_generated_pages_are_up_to_date() -> None:
    """What is generated is what the code says now."""
    stale = [str(path.relative_to(ROOT)) for path in diagrams.stale()]
    assert not stale, f"these are not what the code says; run: {diagrams.COMMAND}"


def test_nothing_else_lies_among_the_generated_pages() -> None:
    """A page that is made no more is removed."""
    assert set(diagrams.PAGES.iterdir()) == {
        path for path in diagrams.wanted() if path.parent == diagrams.PAGES
    }


def test_links_of_the_generated_pages_lead_somewhere() -> None:
    """They lie one directory deeper than the others."""
    for page in diagrams.PAGES.iterdir():
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_state_of_a_connection_is_drawn() -> None:
    """The diagram has the whole machine, from its first state to the one without a way out."""
    start, steps = diagrams.connection_steps()
    drawn = diagrams.moving()
    assert f"[*] --> {start}" in drawn
    for step in steps:
        arrow = f"{step.before} --> {step.after}: {step.by}"
        assert (arrow in drawn) == (step.before != step.after)


# -- what the bus does ------------------------------------------------------------------------


class Lives:
    """Notes the steps of letters and asks while the bus runs.

    :ivar letters: steps that were seen, from, to, and by which method; ``asks`` the same.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scenes: Any) -> None:
        self.letters: set[tuple[str, str, str]] = set()
        self.asks: set[tuple[str, str, str]] = set()
        self._patch = monkeypatch.setattr
        self._files: Any = None
        self._asks: Asks | None = None
        self._known: dict[Any, str] = {}
        self._deep = 0
        for name in ("keep", "queue", "hold", "left", "settle", "shifted"):
            self._watch_mailbox(name)
        self._watch_trim()
        for name in ("add", "remove", "prune"):
            self._watch_asks(name)
        self._watch_scene(scenes.Scene)

    def _watch_mailbox(self, name: str) -> None:
        plain = getattr(Mailbox, name)

        @functools.wraps(plain)
        def watched(mailbox: Mailbox, *args: Any) -> Any:
            before = dict(_states(mailbox))
            result = plain(mailbox, *args)
            after = dict(_states(mailbox))
            for one in before.keys() | after.keys():
                old, new = before.get(one, ""), after.get(one, "")
                if old != new:
                    self.letters.add((old, new, name))
            return result

        self._patch(Mailbox, name, watched)

    def _watch_trim(self) -> None:
        plain = Box.trim

        def watched(box: Box) -> Any:
            before = list(box.letters.values())
            result = plain(box)
            for letter in before:
                if letter not in box.letters.values():
                    self.letters.add(("settled" if letter.settled else "lost", "", "trim"))
            return result

        self._patch(Box, "trim", watched)

    def _watch_asks(self, name: str) -> None:
        plain = getattr(Asks, name)

        @functools.wraps(plain)
        def watched(asks: Asks, *args: Any) -> Any:
            self._deep += 1
            again = name == "add" and self._is_pending(*args)
            try:
                return plain(asks, *args)
            finally:
                self._deep -= 1
                if again and not self._deep:
                    self.asks.add(("pending", "pending", name))
                if not self._deep:
                    self._look(asks, name)

        self._patch(Asks, name, watched)

    def _is_pending(self, ask: Any) -> bool:
        return self._known.get((ask.asker.scope, ask.message_id)) == "pending"

    def _watch_scene(self, scene_class: Any) -> None:
        plain_open, plain_perform = scene_class.open, scene_class._perform

        def opened(scene: Any) -> None:
            if scene.files is not self._files:
                self._files, self._known = scene.files, {}
            self._look(Asks(), "restart")
            plain_open(scene)

        def performed(scene: Any, effect: Any) -> Any:
            result = plain_perform(scene, effect)
            self._look(None, type(effect).__name__)
            return result

        self._patch(scene_class, "open", opened)
        self._patch(scene_class, "_perform", performed)

    def _look(self, asks: Asks | None, by: str) -> None:
        """See what has changed; ``by`` names what was just done."""
        if asks is not None:
            self._asks = asks
        assert self._asks is not None
        known, files = set(self._asks._asks), set(self._files.asks)
        now = {one: "pending" if one in files else "opening" for one in known}
        now |= dict.fromkeys(files - known, "closing")
        for one in now.keys() | self._known.keys():
            old, new = self._known.get(one, ""), now.get(one, "")
            if old != new:
                self.asks.add((old, new, by))
        self._known = now


def _states(mailbox: Mailbox) -> Iterator[tuple[int, str]]:
    for box in mailbox.boxes():
        for letter in box.letters.values():
            yield id(letter), _state(mailbox, letter)


def _state(mailbox: Mailbox, letter: Letter) -> str:
    if letter.settled:
        return "settled"
    if letter.holder is not None:
        return "held"
    queued = mailbox._queued.get(letter.sender, {})
    return "queued" if queued.get(letter.message_id) is letter else "waits"


#: What none of the golden transcripts has: a question that is asked twice.
ASKED_TWICE = """
sub w v
w> @send v-session q1 {"expectsReply": true}
v< @plain w q1 {"expectsReply": true, "from": {"@": "w", "lastIntercomActivity": "@now"}}
w< @done q1
w> @send v-session q1 {"expectsReply": true}
v< @plain w q1 {"expectsReply": true}
w< @done q1
"""


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> Lives:
    """What was seen of letters and asks in all golden transcripts of the bus."""
    monkeypatch.syspath_prepend(str(GOLDEN))
    import bus_scene
    import bus_script

    seen = Lives(monkeypatch, bus_scene)
    texts = [path.read_text("utf-8") for path in sorted(GOLDEN.glob("transcripts/*.txt"))]
    assert len(texts) > 40
    for text in [*texts, ASKED_TWICE]:
        bus_script.Script().run(text)
    return seen


def test_letters_and_asks_live_as_drawn(lives: Lives) -> None:
    """In every transcript of the bus they take the steps of the diagrams, and no others."""
    assert lives.letters == {(one.before, one.after, one.by) for one in diagrams.LETTER}
    assert lives.asks == {(one.before, one.after, one.by) for one in diagrams.ASK}


# -- the page of the pi dialects --------------------------------------------------------------

PAGE = (ROOT / "docs" / "protocol-pi.md").read_text("utf-8")


def codes_in_use() -> set[str]:
    """The codes that the bus gives to pi-intercom clients."""
    found: set[str] = set()
    for part in ("core/bus", "wire/pi"):
        for path in (ROOT / "intercom" / part).glob("*.py"):
            found |= set(re.findall(r'"(E_[A-Z_]+)"', path.read_text("utf-8")))
    return found


def test_the_page_of_pi_has_every_code_and_no_other() -> None:
    """Whatever code a client may meet is explained, and none that it never meets."""
    documented = set(re.findall(r"`(E_[A-Z_]+)`", PAGE))
    assert documented == codes_in_use()
    assert len(documented) > 10


def test_the_page_of_pi_has_every_frame_that_a_client_hears() -> None:
    """Each kind of client has its table."""
    first, _, second = PAGE.partition("\n## pi-subagents\n")
    assert not [kind for kind in KNOWN["intercom"] if f"`{kind}`" not in first]
    assert not [kind for kind in KNOWN["subagents"] if f"`{kind}`" not in second]
    assert not [kind for kind in KNOWN_BEFORE if f"`{kind}`" not in first]


def test_the_page_of_pi_has_every_setting_of_a_limit() -> None:
    """Each limit that can be set is named with its setting."""
    settings = {row.key for row in LIMITS if row.key.startswith("pi_")}
    assert settings == set(re.findall(r"`(pi_\w+)`", PAGE.partition("## TCP")[0]))


class Talker:
    """One client of the conversation."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def say(self, text: str) -> None:
        body = text.encode()
        self.socket.sendall(len(body).to_bytes(4) + body)

    def hear(self) -> bytes:
        return self.file.read(int.from_bytes(self.file.read(4)))

    def close(self) -> None:
        self.file.close()
        self.socket.close()


#: Times that the hub takes from its own clock.
CLOCK = {"brokerReceivedAt", "brokerDeliveredAt", "lastSeen", "lastIntercomActivity"}
#: What it draws: UUIDs, and what names a registration of a session of another kind.
DRAWN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]{13}-[0-9]+")
#: Of these times only what the hub gave is not compared: it is later than all that clients say.
LATER = 1_796_000_000_000


def alike(shown: Any, heard: Any, drawn: dict[str, str]) -> bool:
    """Whether a frame is what the page shows, but for the hub's times and what it draws.

    :param drawn: what stands for each such word of the page; more are noted.
    """
    if isinstance(shown, dict) and isinstance(heard, dict):
        return list(shown) == list(heard) and all(
            name in CLOCK or alike(shown[name], heard[name], drawn) for name in shown
        )
    if isinstance(shown, list) and isinstance(heard, list):
        pairs = zip(shown, heard, strict=False)
        return len(shown) == len(heard) and all(alike(*pair, drawn) for pair in pairs)
    if isinstance(shown, str) and DRAWN.fullmatch(shown):
        return drawn.setdefault(shown, heard) == heard
    if isinstance(shown, int) and shown > LATER:
        return isinstance(heard, int) and not isinstance(heard, bool)
    return bool(shown == heard)


@pytest.fixture
def pi_places(channel_dir: Path) -> Iterator[tuple[Path, Path]]:
    """The two sockets of a hub that serves pi clients."""
    agent, temporary = channel_dir / "agent", channel_dir / "tmp"
    temporary.mkdir()
    hashed = hashlib.sha256(f"{os.getuid()}:{agent}".encode()).hexdigest()[:16]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PI_", "TMP", "TEMP"))}
    places = {"HOME": channel_dir, "PI_CODING_AGENT_DIR": agent, "TMPDIR": temporary}
    hub = subprocess.Popen(
        [sys.executable, "-m", "intercom", "--dir", str(channel_dir / "dir"), "pi-broker"],
        cwd="/",
        env={**kept, "PYTHONPATH": str(ROOT), **{name: str(path) for name, path in places.items()}},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert hub.stdout is not None
        assert "started" in hub.stdout.readline()
        intercom = agent / "intercom" / "broker.sock"
        yield intercom, temporary / f"pi-intercom-{hashed}" / "broker.sock"
    finally:
        hub.terminate()
        hub.communicate(timeout=60)


def test_the_conversation_of_the_page_of_pi_can_be_had(pi_places: tuple[Path, Path]) -> None:
    """Replaying what its clients say, a hub answers what the page shows."""
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    turns = [line.split(" ", 2) for block in blocks for line in block.splitlines()]
    assert len(turns) > 60
    talkers: dict[str, Talker] = {}
    drawn: dict[str, str] = {}
    try:
        for who, arrow, text in turns:
            if who not in talkers:
                talkers[who] = Talker(pi_places[who in ("max", "sue")])
            if arrow == "→":
                talkers[who].say(DRAWN.sub(lambda found: drawn[found[0]], text))
            else:
                heard = talkers[who].hear()
                assert alike(json.loads(text), json.loads(heard), drawn), (who, text, heard)
        assert talkers["ann"].hear() == b""
    finally:
        for talker in talkers.values():
            talker.close()
