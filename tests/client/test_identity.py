"""Who a command speaks for: a name for each caller of a project, and nobody else's."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.client import claims
from intercom.client.identity import IDLE, Identity, Names
from intercom.client.namebook import Shelf
from intercom.client.processes import Process, Table
from intercom.client.roster import ROSTER, drawn_for, persona
from intercom.client.tokens import own_token
from intercom.client.tree import project_directory, root_inode
from intercom.errors import BadConfig, CannotCreate, IntercomError, ProtocolError
from intercom.names import check_session, slug
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox

ROOT = str(Path(__file__).resolve().parents[2])
START = 1_800_000_000.0


class Processes(Table):
    """A machine on which every agent's process runs until a test ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: set[int] = set()

    def has_ended(self, process: Process) -> bool | None:
        return process.pid in self.ended


class Place:
    """A project on a channel, with as many callers as a test likes."""

    def __init__(self, paths: ChannelPaths, project: Path, state: Path) -> None:
        self.paths = paths
        self.project = project
        self.environ = {"XDG_STATE_HOME": str(state), "INTERCOM_TRANSPORT": "spool"}
        self.table = Processes()
        self.now = START
        self.held: list[Identity] = []

    def names(self, caller: str | None, pid: int | None = None, **environ: str) -> Names:
        """The project's names, as asked by an agent's session (None: by nobody in particular).

        :param pid: of the agent; without one it cannot be seen whether it runs.
        """
        own = {"CODEX_THREAD_ID": caller} if caller else {}
        names = Names(
            self.paths,
            str(self.project),
            self.environ | own | environ,
            table=self.table,
            now=lambda: self.now,
        )
        process = Process(pid, 1, "b", "s", "m") if pid else None
        names.__dict__["caller"] = names.caller._replace(process=process)
        return names

    def speaks(self, caller: str | None, pid: int | None = None, **environ: str) -> str:
        """The name of a caller's one command, which has ended when this returns."""
        identity = self.names(caller, pid, **environ).speaker()
        identity.hold.close()
        return identity.session

    def stays(self, caller: str | None, pid: int | None = None) -> str:
        """The name of a caller, one of whose commands goes on."""
        identity = self.names(caller, pid).speaker()
        self.held.append(identity)
        return identity.session

    def file(self) -> Path:
        return self.project / ".intercom" / "session.json"

    def map(self) -> dict[str, Any]:
        found = json.loads(self.file().read_text())
        assert isinstance(found, dict)
        return found


MakePlace = Callable[[str], Place]


@pytest.fixture
def place(paths: ChannelPaths, tmp_path: Path) -> Iterator[MakePlace]:
    """Make projects on one channel."""
    made: list[Place] = []

    def make(name: str) -> Place:
        project = tmp_path / name
        project.mkdir(exist_ok=True)
        made.append(Place(paths, project, tmp_path / "state"))
        return made[-1]

    yield make
    for one in made:
        for identity in one.held:
            identity.hold.close()


@pytest.fixture
def api(place: MakePlace) -> Place:
    """A project."""
    return place("api")


# -- which tree -------------------------------------------------------------------------------


def repository(tree: Path) -> None:
    """Make a directory look like a repository."""
    (tree / ".git").mkdir()
    (tree / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def test_a_project_is_the_repository_around_the_current_directory(tmp_path: Path) -> None:
    """Every directory of a repository is the same project."""
    deep = tmp_path / "repo" / "src" / "deep"
    deep.mkdir(parents=True)
    repository(tmp_path / "repo")
    assert project_directory(None, str(deep)) == str(tmp_path / "repo")


def test_an_empty_directory_of_its_name_makes_no_repository(tmp_path: Path) -> None:
    """Sandboxes make one for a moment where a command may write; it must make nobody another."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "plain").mkdir()
    assert project_directory(None, str(tmp_path / "plain")) == str(tmp_path / "plain")


def test_a_worktree_and_a_submodule_are_projects_too(tmp_path: Path) -> None:
    """There ``.git`` is a file; of repositories in each other the inner one counts."""
    repository(tmp_path)
    (tmp_path / "tree" / "src").mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere\n")
    assert project_directory(None, str(tmp_path / "tree" / "src")) == str(tmp_path / "tree")
    assert project_directory(None, str(tmp_path)) == str(tmp_path)


def test_without_a_repository_a_name_taken_above_makes_the_project(tmp_path: Path) -> None:
    """So a step into a directory below changes nobody; before, the directory itself is it."""
    below = tmp_path / "plain" / "below"
    below.mkdir(parents=True)
    assert project_directory(None, str(below)) == str(below)
    (tmp_path / "plain" / ".intercom").mkdir()
    (tmp_path / "plain" / ".intercom" / "session.json").touch()
    assert project_directory(None, str(below)) == str(tmp_path / "plain")
    # A repository goes before, wherever it begins.
    repository(tmp_path)
    assert project_directory(None, str(below)) == str(tmp_path)


def test_what_another_user_left_above_makes_no_project(tmp_path: Path) -> None:
    """In a directory that all share, anybody may have been first."""
    if os.geteuid() != 0:
        pytest.skip("not run: needs root")
    (tmp_path / ".intercom").mkdir()
    (tmp_path / ".intercom" / "session.json").touch()
    os.chown(tmp_path / ".intercom" / "session.json", 65001, 65001)
    (tmp_path / "mine").mkdir()
    assert project_directory(None, str(tmp_path / "mine")) == str(tmp_path / "mine")


def test_an_option_says_which_project(tmp_path: Path) -> None:
    """Even one within another."""
    repository(tmp_path)
    (tmp_path / "plain").mkdir()
    assert project_directory("plain", str(tmp_path)) == str(tmp_path / "plain")


# -- names that were given --------------------------------------------------------------------


def test_option_and_environment_go_before_the_projects_own(api: Place) -> None:
    """And they write nothing into the project."""
    named = api.names("a", INTERCOM_SESSION="from-environment")
    for option, name, source in (
        ("from-option", "from-option", "--session"),
        (None, "from-environment", "INTERCOM_SESSION"),
    ):
        found = named.speaker(option)
        found.hold.close()
        assert (found.session, found.source, found.caller) == (name, source, None)
    assert list(api.project.iterdir()) == []
    with pytest.raises(ProtocolError):
        named.speaker("hub")


# -- a name for each caller -------------------------------------------------------------------


def test_each_caller_has_a_name_and_keeps_it(api: Place) -> None:
    """The first gets one of the roster, the others the same with a number."""
    first = api.speaks("a", 1)
    assert first in {one.slug for one in ROSTER}
    assert api.speaks("b", 2) == f"{first}-2"
    assert api.speaks("c", 3) == f"{first}-3"
    assert [api.speaks(caller) for caller in "abc"] == [first, f"{first}-2", f"{first}-3"]
    assert api.speaks(None) == f"{first}-4"


def test_it_says_whether_the_caller_had_the_name_before(api: Place) -> None:
    """And who gave it."""
    fresh, again = (api.names("a").speaker() for _ in range(2))
    assert (fresh.sticky, again.sticky) == (False, True)
    assert (again.source, again.caller) == ("codex", "codex:a")
    for one in (fresh, again):
        one.hold.close()


def test_a_new_caller_takes_the_oldest_name_whose_caller_is_gone(api: Place) -> None:
    """With what lies unread under it; who comes back later is given another."""
    first, second, third = (
        api.speaks(caller, pid) for caller, pid in zip("abc", (1, 2, 3), strict=True)
    )
    api.table.ended |= {2, 3}
    assert api.speaks("d", 4) == second
    assert api.speaks("b", 5) == third
    assert api.speaks("c", 6) == f"{first}-4"
    assert api.speaks("a", 1) == first


def test_a_caller_that_comes_back_finds_its_name_if_nobody_took_it(api: Place) -> None:
    """A session that is resumed, a pane whose shell was started again."""
    name = api.speaks("a", 1)
    api.table.ended.add(1)
    assert api.speaks("a", 7) == name
    # It is the new process that counts now.
    assert api.speaks("b", 2) == f"{name}-2"


def test_while_its_process_runs_another_does_not_stand_for_the_caller(api: Place) -> None:
    """A part of it, started apart from the rest, may end before it."""
    name = api.speaks("a", 1)
    api.now += 1000
    assert api.speaks("a", 7) == name
    api.table.ended.add(7)
    assert api.speaks("b", 2) == f"{name}-2"
    api.table.ended.add(1)
    assert api.speaks("c", 3) == name


def test_a_caller_that_cannot_be_seen_is_gone_after_a_night(api: Place) -> None:
    """In a sandbox with processes of its own nothing else can be known of it."""
    name = api.speaks("a")
    api.now += IDLE - 1
    assert api.speaks("b") == f"{name}-2"
    api.now += 2
    assert api.speaks("c") == name
    assert api.speaks("b") == f"{name}-2"


def test_use_is_a_sign_of_life(api: Place) -> None:
    """Each command counts, to within some minutes."""
    name = api.speaks("a")
    for _ in range(3):
        api.now += IDLE - 1
        assert api.speaks("a") == name
    api.now += IDLE / 2
    assert api.speaks("b") == f"{name}-2"
    api.now = START - 10 * IDLE  # a clock that was set back makes nobody old
    assert api.speaks("c") == f"{name}-3"


def test_a_name_in_use_is_not_taken_though_its_caller_is_gone(api: Place) -> None:
    """A listener may outlive the shell that started it."""
    name = api.stays("a", 1)
    api.table.ended.add(1)
    assert api.speaks("b", 2) == f"{name}-2"
    api.held.pop().hold.close()
    assert api.speaks("c", 3) == name


def test_a_connected_name_is_not_taken(api: Place) -> None:
    """Whatever program it is that is connected."""
    name = api.speaks("a", 1)
    api.table.ended.add(1)
    others = api.names("b", 2)
    others.__dict__["connected"] = frozenset({name, f"{name}-2"})
    identity = others.speaker()
    identity.hold.close()
    assert identity.session == f"{name}-3"


def test_twenty_new_callers_at_once_get_twenty_names(api: Place) -> None:
    """And twenty commands of one caller get one."""
    barrier = threading.Barrier(40)
    found: list[tuple[str, str]] = []

    def ask(caller: str) -> None:
        names = api.names(caller, 1)
        barrier.wait()
        found.append((caller, names.speaker().session))  # held to the end of the test

    callers = ["one"] * 20 + [f"caller-{n}" for n in range(20)]
    threads = [threading.Thread(target=ask, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert len(set(found)) == 21
    assert len({name for _caller, name in found}) == 21
    assert len(api.map()["names"]) == 21


# -- other projects ---------------------------------------------------------------------------


def test_projects_have_different_names(place: MakePlace) -> None:
    """Even where they begin at the same place of the roster."""
    first = place("first")
    name = first.speaks("a", 1)
    node = os.uname().nodename
    for number in range(10_000):
        path = first.project.parent / f"other-{number}"
        if drawn_for(f"{node}:{path}")[0] == name:
            break
    other = place(path.name)
    drawn = other.speaks("a", 1)
    assert drawn == drawn_for(f"{node}:{path}")[1]
    # And it stays so when the first has gone home.
    first.table.ended.add(1)
    assert other.speaks("b", 2) == f"{drawn}-2"


def test_a_name_that_anybody_ever_used_is_not_drawn(place: MakePlace, paths: ChannelPaths) -> None:
    """Programs that claim none, a mistyped address: their mail is not ours to read."""
    wanted = drawn_for(f"{os.uname().nodename}:{paths.directory}")
    api = place("api")
    order = drawn_for(f"{os.uname().nodename}:{api.project}")
    assert sorted(order) == sorted(wanted)
    Path(paths.inbox(order[0])).touch()
    Path(paths.offset(order[1])).touch()
    with Inbox(paths, order[2]) as inbox:
        inbox.enrol()
    own_token(paths, order[3])
    speaks = api.names("a").given(order[4])
    assert speaks is not None
    assert api.speaks("a") == order[4]


def test_where_another_project_has_the_name_it_is_another_on_that_channel_only(
    api: Place, place: MakePlace, channel_dir: Path
) -> None:
    """A name is the project's own everywhere else."""
    name = api.speaks("a", 1)
    elsewhere = ChannelPaths(str(channel_dir), "elsewhere")
    elsewhere.prepare()
    other = place("other")
    other.paths = elsewhere
    other.names("x").claim(name).hold.close()
    here = api.paths
    api.paths = elsewhere
    there = api.speaks("a", 1)
    assert there != name
    assert there in {one.slug for one in ROSTER}
    assert api.speaks("a", 1) == there
    api.paths = here
    assert api.speaks("a", 1) == name


def test_when_all_names_are_taken_a_suffix_is_added(api: Place, paths: ChannelPaths) -> None:
    """The roster has about forty."""
    for one in ROSTER:
        Path(paths.inbox(one.slug)).touch()
    name = api.speaks("a")
    first = drawn_for(f"{os.uname().nodename}:{api.project}")[0]
    assert name.startswith(f"{first}-")
    assert persona(name).name == persona(first).name
    assert len(name) == len(first) + 5


# -- choosing ---------------------------------------------------------------------------------


def test_another_name_can_be_drawn(api: Place) -> None:
    """The old one is free for the next new caller."""
    name = api.speaks("a", 1)
    another = api.names("a", 1).draw_another()
    another.hold.close()
    assert another.session != name
    assert another.session in {one.slug for one in ROSTER}
    assert (another.former, another.sticky) == (name, False)
    assert api.speaks("a", 1) == another.session
    assert api.speaks("b", 2) == name


def test_a_name_can_be_chosen(api: Place) -> None:
    """Further callers are numbered by it."""
    drawn = api.speaks("a", 1)
    chosen = api.names("a", 1).claim("api-agent")
    chosen.hold.close()
    assert (chosen.session, chosen.former, chosen.sticky) == ("api-agent", drawn, False)
    assert api.speaks("a", 1) == "api-agent"
    assert api.speaks("b", 2) == "api-agent-2"
    again = api.names("a", 1).claim("api-agent")
    again.hold.close()
    assert (again.former, again.sticky) == (None, True)
    with pytest.raises(ProtocolError):
        api.names("a", 1).claim("all")


def test_a_first_name_can_be_chosen(api: Place) -> None:
    """Nothing is drawn before."""
    api.names("a", 1).claim("api-agent").hold.close()
    assert [one["session"] for one in api.map()["names"]] == ["api-agent"]


def test_a_name_of_a_caller_that_is_gone_can_be_chosen(api: Place) -> None:
    """Of one that is there it cannot."""
    first, second = api.speaks("a", 1), api.speaks("b", 2)
    with pytest.raises(IntercomError, match="still there") as caught:
        api.names("b", 2).claim(first)
    assert (caught.value.code, caught.value.exit_code) == ("SESSION_COLLISION", 77)
    api.table.ended.add(1)
    api.names("b", 2).claim(first).hold.close()
    assert api.speaks("b", 2) == first
    assert api.speaks("c", 3) == second


def test_a_name_that_is_in_use_or_another_projects_cannot_be_chosen(
    api: Place, place: MakePlace
) -> None:
    """It says which of the two."""
    other = place("other")
    name = other.stays("x", 1)
    with pytest.raises(IntercomError, match="belongs to another project") as caught:
        api.names("a").claim(name)
    assert caught.value.code == "SESSION_COLLISION"
    assert str(other.project) in caught.value.text
    given = other.names("x").speaker("somebody")
    with pytest.raises(IntercomError, match="at this moment"):
        api.names("a").claim("somebody")
    given.hold.close()
    api.names("a").claim("somebody").hold.close()
    connected = api.names("b")
    connected.__dict__["connected"] = frozenset({"original"})
    with pytest.raises(IntercomError, match="at this moment"):
        connected.claim("original")


def test_all_names_of_the_project_are_listed(api: Place) -> None:
    """With whose they are, and which are in use."""
    first = api.stays("a", 1)
    second = api.speaks("b", 2)
    api.table.ended.add(2)
    rows = api.names("a").rows()
    assert [(row.session, row.caller, row.gone, row.live) for row in rows] == [
        (first, "codex:a", False, True),
        (second, "codex:b", True, False),
    ]
    assert api.names("a").own() == first
    assert api.names("z").own() is None


# -- the map ----------------------------------------------------------------------------------


def test_the_map_is_private_and_out_of_gits_sight(api: Place) -> None:
    """No ignore file of the user's is touched."""
    if shutil.which("git") is None:
        pytest.skip("not run: needs git")
    (api.project / ".gitignore").write_text("mine\n")

    def git(*words: str) -> str:
        words = ("git", "-C", str(api.project), "-c", "user.name=a", "-c", "user.email=a@b", *words)
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    git("add", ".gitignore")
    git("commit", "-qm", "first")
    api.speaks("a")
    api.speaks("b")
    assert git("status", "--porcelain", "--untracked-files=all") == ""
    assert (api.project / ".gitignore").read_text() == "mine\n"
    assert not (api.project / ".git" / "info" / "exclude").read_text().count("intercom")
    kept = api.project / ".intercom"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert stat.S_IMODE(api.file().stat().st_mode) == 0o600
    assert {file.name for file in kept.iterdir()} == {".gitignore", "session.json"}


def test_worktrees_of_one_repository_are_projects_apart(place: MakePlace, tmp_path: Path) -> None:
    """Each has names of its own."""
    if shutil.which("git") is None:
        pytest.skip("not run: needs git")
    main = place("main")
    git = ["git", "-C", str(main.project), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"],
                  ["worktree", "add", "-q", "../tree", "-b", "b"]):  # fmt: skip
        subprocess.run([*git, *words], check=True, capture_output=True)
    (tmp_path / "tree" / "deep").mkdir()
    other = place("tree")
    assert project_directory(None, str(tmp_path / "tree" / "deep")) == str(other.project)
    first, second = main.speaks("a"), other.speaks("a")
    assert first != second
    assert (main.speaks("a"), other.speaks("a")) == (first, second)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"session": 7}',
        '{"session": "hub"}',
        '{"session": "a\\nb"}',
        "\xff{",
        '{"format": 2}',
        '{"format": 2, "tree": "", "project": "/", "base": null, "names": []}',
        '{"format": 2, "tree": "t", "project": "/", "base": "hub", "names": []}',
        '{"format": 2, "tree": "t", "project": "/", "base": null, "names": [{}]}',
        '{"format": 2, "tree": "t", "project": "/", "base": null, "names": [{"session": "a",'
        ' "caller": "c", "channel": null, "since": 1, "used_at": NaN, "process": null}]}',
        '{"format": 2, "tree": "t", "project": "/", "base": null, "names": [{"session": "a",'
        ' "caller": "c", "channel": null, "since": 1, "used_at": 1, "process": 7}]}',
    ],
)
def test_an_odd_map_is_an_error_with_a_remedy(api: Place, content: str) -> None:
    """It is never replaced behind its owner's back."""
    api.file().parent.mkdir()
    api.file().write_text(content, "latin-1")
    for attempt in (api.names("a").speaker, api.names("a").draw_another):
        with pytest.raises(BadConfig) as caught:
            attempt()
        assert caught.value.exit_code == 78
        assert "intercom init" in caught.value.remedy
    assert api.file().read_text("latin-1") == content


def test_a_map_of_a_newer_version_is_left_alone(api: Place) -> None:
    """And it is said what can be done meanwhile."""
    api.file().parent.mkdir()
    api.file().write_text('{"format": 3}')
    with pytest.raises(BadConfig, match="newer") as caught:
        api.names("a").speaker()
    assert "--session" in caught.value.remedy
    assert api.file().read_text() == '{"format": 3}'


@pytest.mark.parametrize(
    "content",
    [
        {"format": 1, "session": "old-name", "created_at": 1.5},
        {"session_id": "old-name", "channel": "default"},
    ],
    ids=["our first", "the original's"],
)
def test_a_map_of_an_older_format_keeps_its_name(api: Place, content: dict[str, Any]) -> None:
    """It goes to the first who asks."""
    api.file().parent.mkdir()
    api.file().write_text(json.dumps(content))
    assert api.speaks("a", 1) == "old-name"
    assert api.speaks("b", 2) == "old-name-2"
    assert api.map()["format"] == 2


def test_programs_of_the_original_mesh_find_the_projects_name(api: Place) -> None:
    """They look for ``session_id``, and would replace a map that has none."""
    name = api.speaks("a", 1)
    api.speaks("b", 2)
    assert api.map()["session_id"] == name


def test_what_the_original_mesh_has_replaced_is_found_again_on_the_channel(api: Place) -> None:
    """Names are not lost with the map."""
    first, second = api.speaks("a", 1), api.speaks("b", 2)
    api.file().write_text(json.dumps({"session_id": "its-own", "channel": "default"}))
    assert api.speaks("c", 3) == "its-own"
    assert api.speaks("d", 4) == first
    assert api.speaks("e", 5) == second


def test_a_project_that_lost_its_map_gets_its_names_back(api: Place, tmp_path: Path) -> None:
    """``git clean -fdx`` takes ignored files, too. Not so for another that takes its place."""
    first, second = api.speaks("a", 1), api.speaks("b", 2)
    shutil.rmtree(api.project / ".intercom")
    assert api.speaks("x", 3) == first
    assert api.speaks("y", 4) == second
    assert api.speaks("z", 5) == f"{first}-3"
    api.project.rename(tmp_path / "away")
    api.project.mkdir()
    assert not api.speaks("x", 3).startswith(first)


def test_a_project_keeps_its_names_when_it_is_moved(place: MakePlace, tmp_path: Path) -> None:
    """And gives none of them to a copy."""
    api = place("api")
    first, second = api.speaks("a", 1), api.speaks("b", 2)
    api.project.rename(tmp_path / "moved")
    moved = place("moved")
    assert (moved.speaks("a", 1), moved.speaks("b", 2)) == (first, second)
    assert moved.speaks("c", 3) == f"{first}-3"
    assert moved.map()["project"] == str(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copy")
    copy = place("copy")
    assert not copy.speaks("a", 1).startswith(first)
    assert moved.speaks("a", 1) == first
    assert copy.map()["tree"] != moved.map()["tree"]


def test_a_map_that_is_a_link_is_not_followed(place: MakePlace, tmp_path: Path) -> None:
    """A cloned repository cannot make us read or write elsewhere."""
    first = place("first")
    (first.project / ".intercom").mkdir()
    (tmp_path / "secret").write_text('{"session": "other"}')
    first.file().symlink_to(tmp_path / "secret")
    with pytest.raises(BadConfig):
        first.speaks("a")
    second = place("second")
    (tmp_path / "elsewhere").mkdir()
    (second.project / ".intercom").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadConfig):
        second.speaks("a")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_empty_map_of_a_killed_command_is_filled(api: Place) -> None:
    """The next command makes good what the killed one could not finish."""
    api.file().parent.mkdir()
    api.file().touch()
    name = api.speaks("a")
    assert api.map()["base"] == name


def test_a_map_that_somebody_keeps_locked_is_said(api: Place) -> None:
    """Who has a name already needs no lock."""
    name = api.speaks("a")
    with Shelf(str(api.project), api.environ).change():
        with pytest.raises(CannotCreate, match="locked") as caught:
            api.speaks("b")
        assert "fuser" in caught.value.remedy
        assert api.speaks("a") == name


UNWRITABLE = """
import os, sys
from intercom.client import presence
from intercom.client.identity import Names
from intercom.paths import ChannelPaths
base, project, state = sys.argv[1:4]
os.setgroups([])
os.setgid(65001)
os.setuid(65001)  # all that is needed is loaded: this user may not be able to read it
paths = ChannelPaths(base, "default")
paths.prepare()
for caller in sys.argv[4:]:
    environ = {"XDG_STATE_HOME": state, "CODEX_THREAD_ID": caller, "INTERCOM_TRANSPORT": "spool"}
    print(Names(paths, project, environ).speaker().session)
"""


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory of root's in which others may look around."""
    if os.geteuid() != 0:
        pytest.skip("not run: needs root, to be two users")
    directory = Path(tempfile.mkdtemp(prefix="ic-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def test_a_tree_that_is_not_ours_to_write_has_its_map_in_the_state_directory(common: Path) -> None:
    """A checkout of another user's: each of us has names of his own, and they stick."""
    project, state, base = common / "My API", common / "state", common / "channels"
    project.mkdir(mode=0o755)
    for own in (state, base):
        own.mkdir(mode=0o700)
        os.chown(own, 65001, 65001)

    def names(*callers: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", UNWRITABLE, str(base), str(project), str(state), *callers],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": ROOT},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, second = names("a", "b")
    assert second == f"{first}-2"
    assert names("b", "a", "c") == [second, first, f"{first}-3"]
    assert list(project.iterdir()) == []
    assert len(list((state / "intercom").glob("my-api-*/session.json"))) == 1
    # The owner's own map in the tree is not the other user's to read, nor does it hinder.
    (project / ".intercom").mkdir(mode=0o700)
    (project / ".intercom" / "session.json").write_text("damaged")
    assert names("a") == [first]


def test_a_tree_that_became_read_only_keeps_its_names(
    api: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known callers go on; new ones are kept beside, and never get a name that is there."""
    first = api.speaks("a", 1)
    real = os.access
    monkeypatch.setattr(
        "os.access",
        lambda path, mode: not str(path).startswith(str(api.project)) and real(path, mode),
    )
    before = api.file().read_bytes()
    api.now += 1000
    assert api.speaks("a", 1) == first
    assert api.speaks("b", 2) == f"{first}-2"
    assert api.speaks("b", 2) == f"{first}-2"
    assert api.file().read_bytes() == before
    assert len(list(Path(api.environ["XDG_STATE_HOME"]).glob("intercom/api-*/session.json"))) == 1
    # A name that is chosen meanwhile counts, although the old one still stands in the tree.
    api.now += 1
    api.names("a", 1).claim("chosen").hold.close()
    assert api.speaks("a", 1) == "chosen"
    monkeypatch.undo()
    assert api.speaks("c", 3) == f"{first}-3"
    assert api.speaks("b", 2) == f"{first}-2"


def test_where_nothing_can_be_written_it_is_said_what_to_do(
    api: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 73: name the session yourself."""
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    api.file().parent.mkdir()
    (Path(api.environ["XDG_STATE_HOME"])).mkdir()
    api.environ["XDG_STATE_HOME"] = "/proc/nowhere"
    with pytest.raises(CannotCreate) as caught:
        api.speaks("a")
    assert caught.value.exit_code == 73
    assert "INTERCOM_SESSION" in caught.value.remedy
    assert api.speaks("a", INTERCOM_SESSION="me") == "me"


# -- claims -----------------------------------------------------------------------------------


def test_a_claim_says_whose_the_name_is(api: Place) -> None:
    """For people, too."""
    name = api.speaks("a")
    written = json.loads(Path(api.paths.claim(name)).read_text())
    who = persona(name)
    assert (written["session"], written["project"]) == (name, str(api.project))
    assert (written["name"], written["title"], written["ship"]) == (who.name, who.title, who.ship)
    assert written["tree"] == api.map()["tree"]
    assert tuple(written["inode"]) == root_inode(str(api.project))
    assert stat.S_IMODE(os.stat(api.paths.claim(name)).st_mode) == 0o600


HOLDER = """
import sys
from intercom.client import claims
from intercom.paths import ChannelPaths
hold = claims.hold(ChannelPaths(sys.argv[1], "default"), "bob")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_name_is_in_use_as_long_as_a_process_that_uses_it_lives(paths: ChannelPaths) -> None:
    """Not a moment longer, however it ends; and several may use it."""
    assert not claims.is_used(paths, "bob")
    words = [sys.executable, "-c", HOLDER, paths.base]
    holders = [
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": ROOT}
        )
        for _ in range(2)
    ]
    for holder in holders:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
    for holder in holders:
        assert claims.is_used(paths, "bob")
        with claims.alone(paths, "bob", 0.05) as unused:
            assert not unused
        holder.kill()
        holder.communicate()
    assert not claims.is_used(paths, "bob")
    with claims.alone(paths, "bob", 0.05) as unused:
        assert unused


def test_a_damaged_claim_claims_nothing(api: Place) -> None:
    """It is written anew by whoever has the name by his map."""
    name = api.speaks("a")
    Path(api.paths.claim(name)).write_text("{")
    assert claims.look(api.paths, name).tree is None
    assert api.speaks("a") == name
    assert claims.look(api.paths, name).tree == api.map()["tree"]


def test_a_claim_without_space_is_none(api: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a claim would be read as nobody's by some and as damage by others."""
    monkeypatch.setattr("os.pwrite", lambda _fd, data, _at: len(data) // 2)
    with pytest.raises(CannotCreate) as caught:
        api.speaks("a")
    assert caught.value.code == "DISK_FULL"
    monkeypatch.undo()
    (file,) = Path(api.paths.directory).glob("name_*")
    assert file.read_bytes() == b""
    assert api.speaks("a") == file.stem.removeprefix("name_")


# -- the roster -------------------------------------------------------------------------------


def test_the_roster_is_of_about_forty_who_can_be_told_apart() -> None:
    """Every id is one, and nobody lacks a title or a place."""
    assert 38 <= len(ROSTER) <= 48
    assert len({one.slug for one in ROSTER}) == len({one.name for one in ROSTER}) == len(ROSTER)
    for one in ROSTER:
        assert check_session(one.slug) == slug(one.slug) == one.slug
        assert one.name
        assert one.title
        assert one.ship
        assert persona(one.slug) == one
        assert persona(f"{one.slug}-2") == one._replace(slug=f"{one.slug}-2")


def test_places_begin_at_different_names(tmp_path: Path) -> None:
    """And each always at the same."""
    firsts = [drawn_for(f"/project/{n}")[0] for n in range(200)]
    assert len(set(firsts)) > len(ROSTER) / 2
    assert drawn_for("/project/1") == drawn_for("/project/1")
    assert persona("api-agent") == ("api-agent", "api-agent", "", "")


# -- tokens -----------------------------------------------------------------------------------


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
