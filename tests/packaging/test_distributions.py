"""What a stranger installs is what we meant: the package, its command, its twistd plugin.

Nothing here asks a package index. Each distribution goes into a fresh virtual environment
whose other packages are those of the running one, linked in; Twisted's own directories are
made anew, since that is where a plugin lands and what an uninstall must leave whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from intercom import __version__

ROOT = Path(__file__).resolve().parents[2]
TOP = ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
TREES = ("intercom", "twisted", "tests", "docs", ".ci")
PLUGIN = "twisted/plugins/intercom_plugin.py"
#: Left by builds and runs; no part of the source.
LITTER = ("__pycache__", "*.pyc", "*.egg-info", "dropin.cache", ".*_cache", ".hypothesis")
#: Where this file's names would be found twice: our own distribution in the running environment.
OURS = ("agent_intercom", "__editable__.agent_intercom", "intercom")
NAME = f"agent_intercom-{__version__}"


def run(words: Sequence[str | Path], cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, away from the checkout; its output is in the failure.

    Of the environment it gets nothing that is about Python, pip or us; ``more`` is added.
    """
    ours = ("PYTHON", "PIP_", "INTERCOM_", "AGY_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"} | more
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{words} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


class Environment:
    """A fresh virtual environment with everything that we need, and without us."""

    def __init__(self, place: Path) -> None:
        venv.create(place, symlinks=True, with_pip=False)
        self.place = place
        self.python = place / "bin" / "python"
        self.command = place / "bin" / "intercom"
        self.site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
        for key in ("purelib", "platlib"):
            _link(Path(sysconfig.get_path(key)), self.site)

    def pip(self, *words: str | Path) -> None:
        """Run the running environment's pip for this one."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "-q"]
        run([*pip, *words], cwd=self.place)

    def install(self, *words: str | Path) -> None:
        """Install one distribution, offline, its dependencies being there already."""
        self.pip("install", "--no-deps", "--no-build-isolation", *words)

    def evaluate(self, code: str) -> str:
        """What a Python program prints in this environment."""
        return run([self.python, "-c", code], cwd=self.place).stdout


def _link(found: Path, site: Path) -> None:
    """Link every package of ``found`` into ``site``, Twisted's own directories made anew."""
    for item in found.iterdir():
        target = site / item.name
        if item.name.startswith(OURS) or item.name == "__pycache__" or item.suffix == ".pth":
            continue
        if item.name in ("twisted", "plugins") and item.is_dir():
            target.mkdir(exist_ok=True)
            _link(item, target)
        elif not target.is_symlink() and not item.name.startswith(("dropin", "intercom_plugin")):
            target.symlink_to(item)


def copy_tree(place: Path) -> Path:
    """Copy the tree, so that building and running leaves nothing in the checkout."""
    ignore = shutil.ignore_patterns(*LITTER)
    for name in TREES:
        shutil.copytree(ROOT / name, place / name, ignore=ignore)
    for name in TOP:
        shutil.copy(ROOT / name, place / name)
    return place


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which nothing is ever run."""
    return copy_tree(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the source distribution, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "-o", out, source], cwd=out)
    return out


def install(way: str, built: Path, environment: Environment) -> None:
    """Install us in one of the three :data:`WAYS`."""
    if way == "wheel":
        environment.install(built / f"{NAME}-py3-none-any.whl")
    elif way == "sdist":
        environment.install(built / f"{NAME}.tar.gz")
    else:
        environment.install("-e", copy_tree(environment.place / "checkout"))


WAYS = ("wheel", "sdist", "editable")


@pytest.fixture(scope="module", params=WAYS)
def installed(
    request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """An environment into which we were installed in one of three ways."""
    environment = Environment(tmp_path_factory.mktemp(request.param) / "venv")
    install(request.param, built, environment)
    return environment


def test_twistd_knows_us_after_every_kind_of_install(installed: Environment) -> None:
    """``twistd`` lists the plugin, whether installed from wheel, source, or editable."""
    code = (
        "import sys; sys.argv = ['twistd', '--help']\nfrom twisted.scripts.twistd import run; run()"
    )
    listed = [line.split() for line in installed.evaluate(code).splitlines()]
    assert [words for words in listed if words[:1] == ["intercom"]], listed


def test_the_command_runs_after_every_kind_of_install(installed: Environment) -> None:
    """``intercom --version`` and ``--help`` answer, from a directory that is not the checkout."""
    version = run([installed.command, "--version"], cwd=installed.place).stdout
    assert __version__ in version
    text = run([installed.command, "--help"], cwd=installed.place).stdout
    for verb in ("init", "send", "poll", "listen", "peers", "ack", "daemon"):
        assert verb in text


def test_the_module_runs_as_the_command_does(installed: Environment) -> None:
    """``python -m intercom`` is the same program: hubs are started by it, in any environment."""
    done = run([installed.python, "-m", "intercom", "--version"], cwd=installed.place)
    assert __version__ in done.stdout


@pytest.mark.parametrize("installed", ["wheel"], indirect=True)
def test_the_tour_shows_two_sessions_talking_and_leaves_nothing(
    installed: Environment, channel_dir: Path
) -> None:
    """The README's first command, once installed: from an empty directory, and tidy."""
    empty = channel_dir / "here"
    empty.mkdir()
    words = ["sh", ROOT / "docs" / "tour.sh", installed.command.parent]
    done = run(words, cwd=empty, TMPDIR=str(channel_dir))
    assert done.stdout.count("The endpoint /orders is ready.") == 2  # typed, heard
    assert done.stdout.count("Are you still there?") == 2  # typed, polled
    assert done.stdout.count("stored (") == 2
    assert "nothing unread" in done.stdout
    assert list(channel_dir.iterdir()) == [empty]
    assert not list(empty.iterdir())


def test_the_installed_package_is_typed(installed: Environment) -> None:
    """Type checkers of embedding applications find our annotations."""
    code = (
        "import importlib.resources as r; print(r.files('intercom').joinpath('py.typed').is_file())"
    )
    assert installed.evaluate(code).strip() == "True"


def test_the_wheel_holds_the_package_and_the_plugin_and_nothing_else(built: Path) -> None:
    """No tests, no ``__init__`` of Twisted's namespace, every module of ours."""
    names = set(zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl").namelist())
    content = {name for name in names if not name.startswith(f"{NAME}.dist-info/")}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "intercom").rglob("*.py")}
    assert content == modules | {"intercom/py.typed", "intercom/cli/SKILL.md", PLUGIN}


def test_the_source_distribution_can_be_tested_and_read(built: Path, source: Path) -> None:
    """It holds the tests, the pages, the licence, and what builds and checks it."""
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert not {name for name in wanted - names if not name.startswith("agent_intercom.egg-info")}
    assert {".ci/run", "docs/protocol.md", "tests/conftest.py", PLUGIN} <= names
    assert not {name for name in names if name.endswith((".pyc", "dropin.cache"))}


def test_twisted_s_directories_are_not_claimed_by_us() -> None:
    """An ``__init__.py`` in them would hide Twisted itself, or our plugin."""
    assert [str(path.relative_to(ROOT)) for path in (ROOT / "twisted").rglob("*.py")] == [PLUGIN]


@pytest.mark.parametrize("way", ["wheel", "editable"])
def test_whoever_removes_us_keeps_twisted(way: str, built: Path, tmp_path: Path) -> None:
    """An uninstall takes our files out of Twisted's plugin directory and leaves the others."""
    environment = Environment(tmp_path / "venv")
    install(way, built, environment)
    environment.pip("uninstall", "-y", "agent-intercom")
    assert not environment.command.exists()
    assert not (environment.site / PLUGIN).exists()
    code = "import twisted.internet.reactor, twisted.plugins.cred_unix; print(twisted.__file__)"
    assert str(environment.site) in environment.evaluate(code)
    missing = "import importlib.util; print(importlib.util.find_spec('intercom'))"
    assert environment.evaluate(missing).strip() == "None"
