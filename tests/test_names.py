"""Names of channels and sessions, and the file names made of them."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.errors import ProtocolError
from intercom.names import channel_name, check_session, file_name, nearest, slug

SAFE = set(string.ascii_letters + string.digits + "._-%~")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Prod", "prod"),
        ("a.b", "ab"),
        ("!!!", "default"),
        ("", "default"),
        ("Ⅷ-ｆｕｌｌ", "ⅷ-ｆｕｌｌ"),
        ("über_team-1", "über_team-1"),
        ("../etc", "etc"),
    ],
)
def test_channel_names_are_sanitised(written: str, name: str) -> None:
    assert channel_name(written) == name


@given(st.text(max_size=40))
def test_sanitising_twice_changes_nothing_more(text: str) -> None:
    assert channel_name(channel_name(text)) == channel_name(text)


@pytest.mark.parametrize(
    "name", ["a", "x" * 128, "../../x", "a/b", ".", "CON", "Ⅷ", "a b", "naïve"]
)
def test_any_text_without_control_characters_is_a_session_id(name: str) -> None:
    assert check_session(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 129, "x\0y", "a\nb", "\x7f", "\x9b", "\ud800", "hub", "*", "all", None, 5, ["l"]],
)
def test_what_is_no_session_id_is_refused_by_its_code(name: object) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_session(name)
    assert caught.value.code == "BAD_SESSION_ID"
    assert caught.value.exit_code == 65


def test_ordinary_ids_are_their_own_file_names() -> None:
    """So that the original programs find the files of such ids."""
    assert file_name("seven-of-nine_2.x") == "seven-of-nine_2.x"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../x", "%2E.%2Fx"),
        (".hidden", "%2Ehidden"),
        ("a/b", "a%2Fb"),
        ("é", "%C3%A9"),
        ("~", "%7E"),
    ],
)
def test_other_ids_are_encoded(name: str, file: str) -> None:
    assert file_name(name) == file


@given(st.lists(st.text(min_size=1, max_size=140), min_size=2, max_size=2, unique=True))
def test_no_two_ids_share_a_file_and_none_leaves_its_directory(pair: list[str]) -> None:
    try:
        names = [file_name(check_session(text)) for text in pair]
    except ProtocolError:
        return
    assert names[0] != names[1]
    for name in names:
        assert set(name) <= SAFE
        assert 0 < len(name) <= 100
        assert not name.startswith(".")


def test_long_ids_that_differ_only_at_the_end_have_different_files() -> None:
    assert file_name("x" * 127 + "a") != file_name("x" * 127 + "b")
    assert file_name("é" * 60) != file_name("é" * 61)


def test_a_slug_is_made_of_anything() -> None:
    assert slug("My Project (2)") == "my-project-2"
    assert slug("Ünïcode") == "unicode"
    assert slug("日本") == "session"


def test_nearest_names_come_best_first_and_never_the_name_itself() -> None:
    assert nearest("enginer", ["engineer", "enginer", "zebra", "engine"]) == ["engineer", "engine"]


def test_capitals_make_no_name_less_near() -> None:
    assert nearest("VIC", ["vic", "zebra"]) == ["vic"]
    assert nearest("Ada", ["ADA", "ada", "Ada"]) == ["ADA", "ada"]
