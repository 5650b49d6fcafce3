"""Who a command speaks for."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from intercom.client import identity
from intercom.client.tokens import own_token
from intercom.errors import BadConfig, ProtocolError
from intercom.paths import ChannelPaths


def test_a_project_is_the_repository_around_the_current_directory(tmp_path: Path) -> None:
    """Every directory of a repository speaks for the same project."""
    deep = tmp_path / "repo" / "src" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    assert identity.project_directory(None, str(deep)) == str(tmp_path / "repo")


def test_a_worktree_is_a_project_too(tmp_path: Path) -> None:
    """There ``.git`` is a file."""
    (tmp_path / "tree" / "src").mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere\n")
    found = identity.project_directory(None, str(tmp_path / "tree" / "src"))
    assert found == str(tmp_path / "tree")


def test_without_a_repository_the_directory_itself_is_the_project(tmp_path: Path) -> None:
    """And an option beats both."""
    (tmp_path / "plain").mkdir()
    assert identity.project_directory(None, str(tmp_path / "plain")) == str(tmp_path / "plain")
    assert identity.project_directory("plain", str(tmp_path)) == str(tmp_path / "plain")


def test_a_project_keeps_its_session_and_keeps_it_to_itself(tmp_path: Path) -> None:
    """The id is made once, of the directory's name, out of sight of version control."""
    project = tmp_path / "My API"
    project.mkdir()
    first = identity.session_of(str(project), None, {})
    assert first.startswith("my-api-")
    assert identity.session_of(str(project), None, {}) == first
    kept = project / ".intercom"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert stat.S_IMODE((kept / "session.json").stat().st_mode) == 0o600
    assert (kept / ".gitignore").read_text() == "*\n"


def test_option_and_environment_go_before_the_projects_own(tmp_path: Path) -> None:
    """And they write nothing."""
    environ = {"INTERCOM_SESSION": "from-environment"}
    assert identity.session_of(str(tmp_path), "from-option", environ) == "from-option"
    assert identity.session_of(str(tmp_path), None, environ) == "from-environment"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProtocolError):
        identity.session_of(str(tmp_path), "hub", {})


def test_many_first_commands_at_once_agree(tmp_path: Path) -> None:
    """Twenty commands of a fresh project are one session, not twenty."""
    barrier, found = threading.Barrier(20), []

    def ask() -> None:
        barrier.wait()
        found.append(identity.session_of(str(tmp_path), None, {}))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"session": 7}', '{"session": "hub"}', '{"session": "a\\nb"}', "\xff{"]
)
def test_an_odd_session_file_is_an_error_with_a_remedy(tmp_path: Path, content: str) -> None:
    """It is never replaced behind its owner's back."""
    (tmp_path / ".intercom").mkdir()
    file = tmp_path / ".intercom" / "session.json"
    file.write_text(content, "latin-1")
    with pytest.raises(BadConfig) as caught:
        identity.session_of(str(tmp_path), None, {})
    assert caught.value.exit_code == 78
    assert "intercom init" in caught.value.remedy
    assert file.read_text("latin-1") == content


def test_a_session_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A cloned repository cannot make us read or write elsewhere."""
    (tmp_path / "project" / ".intercom").mkdir(parents=True)
    (tmp_path / "secret").write_text('{"session": "other"}')
    (tmp_path / "project" / ".intercom" / "session.json").symlink_to(tmp_path / "secret")
    with pytest.raises(BadConfig):
        identity.session_of(str(tmp_path / "project"), None, {})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / ".intercom").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadConfig):
        identity.session_of(str(tmp_path / "second"), None, {})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_empty_session_file_of_a_killed_command_is_filled(tmp_path: Path) -> None:
    """The next command makes good what the killed one could not finish."""
    (tmp_path / ".intercom").mkdir()
    (tmp_path / ".intercom" / "session.json").touch()
    made = identity.session_of(str(tmp_path), None, {})
    assert json.loads((tmp_path / ".intercom" / "session.json").read_text())["session"] == made


def test_a_tree_that_is_not_ours_to_write_has_its_identity_in_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only checkout has a sticky identity as well."""
    project = tmp_path / "project"
    project.mkdir()
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    make = os.mkdir

    def refuse_in_project(path: str, mode: int = 0o777) -> None:
        if str(path).startswith(str(project)):
            raise PermissionError(13, "Permission denied", path)
        make(path, mode)

    monkeypatch.setattr("os.mkdir", refuse_in_project)
    first = identity.session_of(str(project), None, environ)
    assert identity.session_of(str(project), None, environ) == first
    assert list(project.iterdir()) == []
    assert len(list((tmp_path / "state" / "intercom").glob("project-*/session.json"))) == 1


def test_a_project_can_be_renamed(tmp_path: Path) -> None:
    """Whatever it was called before, even if that could not be read."""
    (tmp_path / ".intercom").mkdir()
    (tmp_path / ".intercom" / "session.json").write_text("broken")
    assert identity.rename(str(tmp_path), "seven-of-nine", {}) == "seven-of-nine"
    assert identity.session_of(str(tmp_path), None, {}) == "seven-of-nine"


def test_all_commands_of_a_session_find_the_same_token(paths: ChannelPaths) -> None:
    """It is 128 random bits that only we can read, and another session's is another."""
    token = own_token(paths, "me")
    assert len(bytes.fromhex(token)) == 16
    assert own_token(paths, "me") == token
    assert own_token(paths, "you") != token
    assert stat.S_IMODE(os.stat(paths.token("me")).st_mode) == 0o600


def test_a_damaged_token_is_not_replaced(paths: ChannelPaths) -> None:
    """A live connection may have shown it."""
    Path(paths.token("me")).write_text("???")
    os.chmod(paths.token("me"), 0o600)
    with pytest.raises(BadConfig):
        own_token(paths, "me")
    assert Path(paths.token("me")).read_text() == "???"
