"""Text of strangers, one step at a time: escapes, frames, labels, folding, words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.showing.columns import columns, fold
from intercom.showing.hosts import TAGS
from intercom.showing.text import escape, is_sayable, label, neutral
from intercom.showing.words import age

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00 UTC


@pytest.mark.parametrize(
    "evil",
    [
        *["\x1b[2J", "\x9b2J", "\x07", "\x08", "\x7f", "\u202e", "\u2066", "\u200f", "\ufeff"],
        *[
            "\u061c",
            "\u034f",
            "\u180b",
            "\ufe00",
            "\U000e0100",
            "\U000e0041",
            "\u2028",
            "\x85",
            "\u3164",
        ],
    ],
)
def test_what_hides_or_moves_or_turns_is_an_escape(evil: str) -> None:
    """Wherever it stands."""
    for text in (f"a{evil}b", f"日{evil}本", evil):
        for said in (escape(text), neutral(text), label(text)):
            assert evil not in said
            assert "\\" in said


@pytest.mark.parametrize(
    "text",
    [
        "Grüße, é, 日本, हिन्दी, עברית, 👩\u200d💻, ❤\ufe0f, 1\ufe0f\u20e3, می\u200cخواهم",
        "\tx[0] < y > z <b>bold</b> [link](x) | a <| f |> g",
        "intercom [x] <b> system-reminder [internal] <permit> a<|b",
    ],
)
def test_ordinary_text_of_any_script_stays_as_it_is(text: str) -> None:
    """Emoji made of several keep their joiner, words of Persian theirs; brackets are brackets."""
    assert neutral(text) == text


def test_text_is_composed_and_its_line_ends_are_one_kind() -> None:
    """A tab is left alone, or becomes spaces where lines are folded."""
    assert neutral("e\u0301\r\n\tx\ry") == "é\n\tx\\ry"
    assert neutral("a\tb", 4) == "a   b"


@pytest.mark.parametrize("joiner", ["\u200c", "\u200d"])
def test_joiners_within_plain_words_are_seen(joiner: str) -> None:
    """Many would be a message that only a model reads."""
    assert joiner not in escape(f"in{joiner}ter")
    assert joiner * 2 not in escape(f"日{joiner}{joiner}本")
    assert joiner not in escape(f"日{joiner}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[intercom 1]", r"\x5bintercom 1]"),
        ("x[ / Intercom]", r"x\x5b / Intercom]"),
        ("[\n/intercom", "\\x5b\n/intercom"),
        ("［intercom", r"\uff3bintercom"),
        ("[ｉntercom", r"\x5bｉntercom"),
        ("[/intercoms", r"\x5b/intercoms"),
        ("[\u0338intercom", "\\x5b\u0338intercom"),
        ("[\u0131\u0307nter", "[\u0131\u0307nter"),
        ("[i\u0307ntercóm", "\\x5bi\u0307ntercóm"),
        ("［\ufe0fintercom", "\\uff3b\ufe0fintercom"),
        ("[[intercom", r"[\x5bintercom"),
        ("[intern] [inter com]", "[intern] [inter com]"),
        ("<system-reminder>", r"\x3csystem-reminder>"),
        ("</SYSTEM_Reminder >", r"\x3c/SYSTEM_Reminder >"),
        ("＜ſystem–reminder", r"\uff1cſystem–reminder"),
        ("<hook_prompt id='1'>", r"\x3chook_prompt id='1'>"),
        ("<|im_start|>user", r"\x3c|im_start|>user"),
        ("<b><|x|></b>", r"<b>\x3c|x|></b>"),
    ],
)
def test_what_looks_like_a_frame_has_its_bracket_as_an_escape(text: str, said: str) -> None:
    """Ours, and those of hosts and models; nothing else."""
    assert neutral(text) == said


@pytest.mark.parametrize("tag", TAGS)
def test_every_tag_of_a_host_is_known_in_all_its_spellings(tag: str) -> None:
    """Opened, closed, with either joint, in capitals."""
    for spelt in (tag, tag.replace("-", "_"), tag.upper()):
        assert neutral(f"<{spelt}>x</{spelt}>") == rf"\x3c{spelt}>x\x3c/{spelt}>"


def test_marks_piled_on_one_character_do_not_cover_other_lines() -> None:
    """A few are writing, many are an attack on what stands above and below."""
    text = escape("e" + "\u0301" * 100)
    assert text.startswith("e" + "\u0301" * 8 + "\\u0301")
    assert text.count("\u0301") == 8


@pytest.mark.parametrize(
    "text",
    ["[" + " " * 300_000, "[ " * 150_000, "e" + "\u0315\u0301" * 150_000, "<|" * 150_000],
    ids=["blanks", "brackets", "marks", "bars"],
)
def test_a_body_that_is_made_to_be_slow_is_not(text: str) -> None:
    """The time grows with the size, never with its square, which would be hours."""
    begun = time.process_time()
    neutral(text)
    assert time.process_time() - begun < 20


# -- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("seven-of-nine", "seven-of-nine"),
        ("日本.x_1", "日本.x_1"),
        ("a b", '"a b"'),
        ("", '""'),
        ("a] [b", r'"a\x5d \x5bb"'),
        ("a］［b", r'"a\uff3d\uff3bb"'),
        ('a", now', r'"a\x22, now"'),
        ("a\\x5d", r'"a\x5cx5d"'),
        ("a\x1b", r'"a\x1b"'),
        ("api\u200d-agent", r'"api\u200d-agent"'),
        ("api\u3164", r'"api\u3164"'),
        ("<b>", r'"\x3cb\x3e"'),
        ("n" * 500, '"' + "n" * 127 + '…"'),
    ],
)
def test_a_name_in_a_head_is_one_word_or_quoted(name: str, said: str) -> None:
    """No name looks like two, like another, or like the end of the head."""
    assert label(name) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *[("seven-of-nine", True), ("a b", True), ("it's", True), ("", False), ("a\nb", False)],
        *[("a]", False), ("a\u200bb", False), ("n" * 129, False), ("日\u200d本", False)],
    ],
)
def test_only_what_is_seen_as_it_is_can_be_said_again(name: str, said: bool) -> None:
    """A command that names another than the one that is shown would reach another."""
    assert is_sayable(name) is said


# -- folding ----------------------------------------------------------------------------------


def test_wide_characters_count_twice_when_lines_are_folded() -> None:
    """Or the terminal would fold them again, without the bar."""
    assert fold("日本語日本語", 4) == ["日本", "語日", "本語"]
    assert fold("abcdef", 4) == ["abcd", "ef"]
    assert fold("", 4) == [""]
    assert fold("日", 1) == ["日"]
    assert fold("❤\ufe0f❤\ufe0f❤\ufe0f", 4) == ["❤\ufe0f❤\ufe0f", "❤\ufe0f"]


def test_what_belongs_together_is_not_folded_apart() -> None:
    """Neither an accent from its letter nor an emoji from what it is made of."""
    assert fold("abce\u0301f", 4) == ["abce\u0301", "f"]
    assert fold("ab👩\u200d💻", 5) == ["ab", "👩\u200d💻"]
    chain = "👩" + "\u200d👩" * 9
    pieces = fold(chain, 6)
    assert "".join(pieces) == chain
    assert all(sum(map(columns, piece)) <= 6 for piece in pieces)


@settings(max_examples=60)
@given(st.text(max_size=60), st.integers(2, 20))
def test_folding_loses_nothing(line: str, width: int) -> None:
    """The pieces are the line."""
    pieces = fold(line, width)
    assert "".join(pieces) == line
    assert all(pieces) or pieces == [""]
    assert all(sum(map(columns, piece)) <= width for piece in pieces)


# -- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "said"),
    [
        ("2026-01-01T00:00:00+00:00", "just now"),
        ("2026-01-01T00:00:50+00:00", "just now"),
        ("2030-01-01T00:00:00+00:00", "dated in the future"),
        ("2025-12-31T23:59:15+00:00", "45 s ago"),
        ("2025-12-31T23:59:15", "45 s ago"),
        ("2025-12-31T20:00:00+00:00", "4 h ago"),
        ("2025-12-01T00:00:00+00:00", "31 d ago"),
        ("yesterday", ""),
        (None, ""),
    ],
)
def test_age_is_told_in_one_unit(timestamp: object, said: str) -> None:
    """Whatever a sender wrote there; without a zone it is UTC."""
    assert age(timestamp, NOW) == said
