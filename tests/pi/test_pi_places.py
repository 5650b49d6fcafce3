"""Where the clients look; hashes here were made with sha256sum, not with our code."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from intercom.errors import BadConfig, CannotCreate, UnsafePlace
from intercom.pi import places
from intercom.pi.places import find_places

AGENT = "PI_CODING_AGENT_DIR"


def found(environ: dict[str, str], home: str = "/home/u", cwd: str = "/w/d") -> places.Places:
    return find_places(environ, home=home, cwd=cwd, uid=1000)


def test_every_path_of_the_default_agent_directory() -> None:
    all_of_them = found({})
    assert all_of_them.directory == "/home/u/.pi/agent/intercom"
    assert all_of_them.intercom_socket == "/home/u/.pi/agent/intercom/broker.sock"
    assert all_of_them.subagents_socket == "/tmp/pi-intercom-f7778cd768f429fd/broker.sock"
    assert all_of_them.probed_socket == "/tmp/pi-intercom-f9ecb1777b4dde3d.sock"
    assert all_of_them.pid_file == "/home/u/.pi/agent/intercom/broker.pid"
    assert all_of_them.port_file == "/home/u/.pi/agent/intercom/broker.port.json"
    assert all_of_them.asks == "/home/u/.pi/agent/intercom/pending-asks"
    assert all_of_them.states == "/home/u/.pi/agent/intercom/extension-state"


@pytest.mark.parametrize(
    ("value", "intercom", "subagents"),
    [
        ("", "/home/u/.pi/agent", "/home/u/.pi/agent"),
        (" \t\ufeff", "/home/u/.pi/agent", "/home/u/.pi/agent"),
        ("  /a/b ", "/a/b", "/a/b"),
        ("/a/../b/", "/a/../b/", "/a/../b/"),
        ("~", "/w/d/~", "/home/u"),
        ("~/x", "/w/d/~/x", "/home/u/x"),
        ("~/x/", "/w/d/~/x", "/home/u/x/"),
        ("~x", "/w/d/~x", "~x"),
        ("rel/dir/", "/w/d/rel/dir", "rel/dir/"),
        ("../up", "/w/up", "../up"),
    ],
)
def test_the_clients_read_one_variable_by_two_rules(
    value: str, intercom: str, subagents: str
) -> None:
    environ = {AGENT: value}
    assert places.intercom_agent_dir(environ, home="/home/u", cwd="/w/d") == intercom
    assert places.subagents_agent_dir(environ, home="/home/u") == subagents
    directory = os.path.normpath(f"{intercom}/intercom")
    assert found(environ).intercom_socket == f"{directory}/broker.sock"


@pytest.mark.parametrize(
    ("value", "digest"),
    [("~x", "d042a164a9257842"), ("rel/dir/", "ac325997ffd681b2"), ("~/x/", "e1dd5645ab5eebc6")],
)
def test_pi_subagents_hashes_what_is_written(value: str, digest: str) -> None:
    assert found({AGENT: value}).subagents_socket == f"/tmp/pi-intercom-{digest}/broker.sock"


def test_odd_working_directories_and_homes() -> None:
    assert found({AGENT: "."}, cwd="/").directory == "/intercom"
    assert found({}, home="").directory == "/w/d/.pi/agent/intercom"
    assert found({}, home="//home//u/").directory == "/home/u/.pi/agent/intercom"


@pytest.mark.parametrize(
    ("environ", "temporary"),
    [
        ({}, "/tmp"),
        ({"TMPDIR": "/a", "TMP": "/b", "TEMP": "/c"}, "/a"),
        ({"TMPDIR": "", "TMP": "/b", "TEMP": "/c"}, "/b"),
        ({"TEMP": "/c"}, "/c"),
        ({"TMPDIR": "/a/"}, "/a"),
        ({"TMPDIR": "/a//"}, "/a/"),
        ({"TMPDIR": "/"}, "/"),
        ({"TMPDIR": " "}, " "),
    ],
)
def test_the_directory_for_temporary_files(environ: dict[str, str], temporary: str) -> None:
    assert places.temporary_directory(environ) == temporary
    expected = os.path.join(os.path.normpath(os.path.join("/w/d", temporary)), "pi-intercom-")
    assert found(environ).subagents_socket.startswith(expected)
    assert found(environ).probed_socket.startswith(expected)


def test_a_path_of_more_than_100_bytes_moves_to_tmp() -> None:
    rest = len("/pi-intercom-0123456789abcdef/broker.sock")
    fits, long, wide = "/" + "a" * (99 - rest), "/" + "a" * (100 - rest), "/" + "é" * 30
    for temporary, moved in ((fits, False), (long, True), (wide, True)):
        path = places.subagents_socket("/home/u/.pi/agent", temporary, 1000)
        assert path == f"{'/tmp' if moved else temporary}/pi-intercom-f7778cd768f429fd/broker.sock"
        assert places.probed_socket("/x", temporary).startswith(f"{temporary}/")
    assert len(f"{fits}{'x' * rest}") == 100


def test_the_home_directory_is_the_environments_else_the_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert places.home_directory({"HOME": "/x/"}) == "/x/"
    accounts = {os.getuid(): pwd.struct_passwd(("u", "x", 1, 1, "", "/home/u", "/bin/sh"))}
    monkeypatch.setattr(pwd, "getpwuid", accounts.__getitem__)
    assert places.home_directory({}) == "/home/u"
    accounts.clear()
    with pytest.raises(BadConfig, match="no home directory") as caught:
        places.home_directory({})
    assert "HOME" in caught.value.remedy


# -- the environment --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, 600_000),
        ("", 600_000),
        (" \n", 600_000),
        ("42", 42),
        (" 42 ", 42),
        ("+42", 42),
        ("042", 42),
        ("42.0", 42),
        ("42.", 42),
        ("6e5", 600_000),
        (".5e1", 5),
        ("0x10", 16),
        ("0B11", 3),
        ("0o17", 15),
        ("9007199254740991", 9007199254740991),
    ],
)
def test_ask_timeouts(text: str | None, value: int) -> None:
    environ = {} if text is None else {"PI_INTERCOM_ASK_TIMEOUT_MS": text}
    assert places.ask_timeout_ms(environ) == value


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "1.5",
        "1e400",
        "9007199254740992",
        "Infinity",
        "nan",
        "1_000",
        "0x",
        "٣",
        "-0x10",
        "1n",
        ".",
        "10s",
    ],
)
def test_anything_else_refuses_to_start(text: str) -> None:
    with pytest.raises(BadConfig) as caught:
        places.ask_timeout_ms({"PI_INTERCOM_ASK_TIMEOUT_MS": text})
    assert caught.value.text == (
        "PI_INTERCOM_ASK_TIMEOUT_MS must be a positive integer number of milliseconds"
    )
    assert ascii(text) in caught.value.remedy


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"PI_INTERCOM_TRANSPORT": "tcp"}, True),
        ({"PI_INTERCOM_TRANSPORT": " TCP\n"}, True),
        ({"PI_INTERCOM_TRANSPORT": "socket"}, False),
        ({"PI_INTERCOM_TRANSPORT": "socket", "PI_INTERCOM_TCP": "True"}, True),
        ({"PI_INTERCOM_TCP": "1"}, True),
        ({"PI_INTERCOM_TCP": "yes"}, False),
        ({"PI_INTERCOM_TCP": "0"}, False),
    ],
)
def test_tcp_is_asked_for(environ: dict[str, str], wanted: bool) -> None:
    assert places.wants_tcp(environ) is wanted


# -- directories ------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_directories_are_made_private_all_the_way(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b" / "c"
    before = os.umask(0)
    try:
        places.prepare_directory(str(made))
    finally:
        os.umask(before)
    assert {mode(made), mode(made.parent), mode(made.parent.parent)} == {0o700}


@pytest.mark.parametrize("wrong", [0o755, 0o777, 0o770, 0o500, 0o1700])
def test_a_wrong_mode_is_set(tmp_path: Path, wrong: int) -> None:
    path = tmp_path / "x"
    path.mkdir()
    path.chmod(wrong)
    said: list[str] = []
    places.prepare_directory(str(path), said.append)
    assert mode(path) == 0o700
    assert said == [f"{path} had mode {wrong:04o}; it is 0700 now"]
    places.prepare_directory(str(path), said.append)
    assert len(said) == 1


@pytest.mark.parametrize("kind", ["link", "dangling", "file", "pipe"])
def test_what_is_no_directory_is_refused_in_the_clients_words(tmp_path: Path, kind: str) -> None:
    path, real = tmp_path / "x", tmp_path / "real"
    real.mkdir(mode=0o755)
    if kind == "link":
        path.symlink_to(real)
    elif kind == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "file":
        path.write_text("precious")
    else:
        os.mkfifo(path)
    with pytest.raises(UnsafePlace) as caught:
        places.prepare_directory(str(path))
    assert caught.value.text == f"Unsafe intercom socket directory: {path}"
    assert "PI_CODING_AGENT_DIR" in caught.value.remedy
    assert mode(real) == 0o755


def test_a_directory_that_others_could_exchange_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(UnsafePlace, match="could exchange") as caught:
        places.prepare_directory(str(above / "x"))
    assert "--dir" not in caught.value.remedy
    assert not (above / "x").exists()


def test_below_a_file_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(CannotCreate):
        places.prepare_directory(str(tmp_path / "x" / "y"))


def test_both_directories_are_prepared_and_long_paths_are_refused(tmp_path: Path) -> None:
    short = {AGENT: str(tmp_path / "a"), "TMPDIR": str(tmp_path)}
    made = find_places(short, home="/", cwd="/", uid=7)
    made.prepare()
    assert mode(Path(made.directory)) == mode(Path(made.subagents_socket).parent) == 0o700
    deep = str(tmp_path / ("d" * 100))
    with pytest.raises(CannotCreate, match="at most") as caught:
        find_places({AGENT: deep}, home="/", cwd="/", uid=7).prepare()
    assert "PI_CODING_AGENT_DIR" in caught.value.remedy
    assert not os.path.exists(deep)


def test_the_limit_is_what_the_system_takes(tmp_path: Path) -> None:
    for length in (places.LONGEST_PATH, places.LONGEST_PATH + 1):
        path = "/" + "x" * (length - 1)
        if length > places.LONGEST_PATH:
            with pytest.raises(CannotCreate, match=f"not {length}"):
                places.check_length(path)
        else:
            places.check_length(path)


# -- two users --------------------------------------------------------------------------------


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")


@needs_root
@pytest.mark.parametrize("theirs", [0o755, 0o700])
def test_a_foreign_owner_is_refused_and_nothing_changed(tmp_path: Path, theirs: int) -> None:
    path = tmp_path / "x"
    path.mkdir(mode=theirs)
    os.chown(path, 65001, 65001)
    with pytest.raises(UnsafePlace) as caught:
        places.prepare_directory(str(path))
    assert caught.value.text == f"Unsafe intercom socket directory: {path}"
    assert mode(path) == theirs


@needs_root
def test_an_ordinary_user_in_a_shared_directory(shared: Path) -> None:
    """His own is set right, root's is refused, and his agent directory may be new."""
    (shared / "roots").mkdir(mode=0o755)
    program = (
        "import os, sys\n"
        "from intercom.errors import UnsafePlace\n"
        "from intercom.pi.places import prepare_directory\n"
        "os.setgid(65002); os.setuid(65002)\n"
        f"os.chdir({str(shared)!r})\n"
        "os.mkdir('his'); os.chmod('his', 0o775)\n"
        f"for name in ('his', 'new', 'roots'):\n"
        f"    try: prepare_directory(os.path.join({str(shared)!r}, name))\n"
        "    except UnsafePlace as error: print(error.text)\n"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, env=environ, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"Unsafe intercom socket directory: {shared / 'roots'}\n"
    assert mode(shared / "his") == mode(shared / "new") == 0o700


def test_nothing_but_the_standard_library_is_needed() -> None:
    """The command that only looks for a hub starts fast, too."""
    program = (
        "import sys\n"
        "from intercom.pi import askfiles, places, runtime, sockets, statefiles\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
        check=True,
    )
    assert "intercom" in done.stdout.split()
    assert not {"twisted", "zope", "msgspec", "automat", "click"} & {*done.stdout.split()}
