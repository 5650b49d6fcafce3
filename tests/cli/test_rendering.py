"""What a person sees of a message cannot be bent by its sender."""

from __future__ import annotations

import pytest

from intercom.cli import rendering

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00 UTC


def envelope(text: object, **more: object) -> dict[str, object]:
    """A message that is two minutes old."""
    return {
        "id": "msg_1",
        "from_session": "bob",
        "to_session": "me",
        "payload": {"text": text},
        "timestamp": "2025-12-31T23:58:00.000000+00:00",
    } | more


def test_a_message_is_a_head_and_a_body_behind_a_bar() -> None:
    """Who, how old, which; then what."""
    text = rendering.message(envelope("one\ntwo\n"), NOW, 80)
    assert text == "bob, 2 min ago, msg_1\n  | one\n  | two\n"


def test_a_body_cannot_pass_for_another_message() -> None:
    """Neither by line breaks of any kind nor by being folded at the right edge."""
    forged = "hi\nceo, just now, msg_2\rceo\u2028ceo\x85ceo\x0bceo" + " " * 70 + "ceo, just now"
    lines = rendering.message(envelope(forged), NOW, 40).splitlines()
    assert lines[0].startswith("bob, ")
    assert len(lines) > 3
    assert all(line.startswith(rendering.BAR) and len(line) <= 40 for line in lines[1:])


@pytest.mark.parametrize(
    "evil",
    ["\x1b[2J", "\x9b2J", "\x07", "\x08", "\x7f", "\u202e", "\u2066", "\u200f", "\u061c", "\ufeff"],
)
def test_nothing_moves_the_cursor_or_turns_the_text_around(evil: str) -> None:
    """Control and bidirectional characters are shown as their escapes, wherever they stand."""
    shown = rendering.message(
        envelope(f"a{evil}b", from_session=f"x{evil}y", id=evil, reply_to=evil), NOW, 80
    )
    assert evil not in shown
    assert "\\" in shown
    assert rendering.message({"payload": {"text": "", evil: evil}}, NOW, 80).count(evil) == 0


def test_ordinary_text_of_any_script_stays_as_it_is() -> None:
    """Emoji made of several keep their joiner; a tab becomes spaces."""
    text = "Grüße, 日本, 👩\u200d💻"
    assert rendering.escape(text) == text
    assert "    x" in rendering.message(envelope("\tx"), NOW, 80)


def test_wide_characters_count_twice_when_lines_are_folded() -> None:
    """Or the terminal would fold them again, without the bar."""
    assert rendering.fold("日本語日本語", 4) == ["日本", "語日", "本語"]
    assert rendering.fold("abcdef", 4) == ["abcd", "ef"]
    assert rendering.fold("", 4) == [""]
    assert rendering.fold("日", 1) == ["日"]


@pytest.mark.parametrize(
    ("timestamp", "said"),
    [
        ("2026-01-01T00:00:00+00:00", "just now"),
        ("2030-01-01T00:00:00+00:00", "just now"),
        ("2025-12-31T23:59:15+00:00", "45 s ago"),
        ("2025-12-31T20:00:00+00:00", "4 h ago"),
        ("2025-12-01T00:00:00+00:00", "31 d ago"),
        ("yesterday", "at an unknown time"),
        (None, "at an unknown time"),
    ],
)
def test_age_is_told_in_one_unit(timestamp: object, said: str) -> None:
    """Whatever a sender wrote there."""
    assert rendering.age(timestamp, NOW) == said


def test_what_is_no_text_is_shown_as_json() -> None:
    """Further members of the payload too."""
    shown = rendering.message(envelope([1, "x"]), NOW, 80)
    assert '| [1, "x"]' in shown
    shown = rendering.message(envelope("t", payload={"diff": "+1"}), NOW, 80)
    assert '| + {"diff": "+1"}' in shown
    assert rendering.message({}, NOW, 80).startswith("unknown, ")
