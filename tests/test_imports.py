"""The rules of the house that no linter knows: who may import whom, how long things may get.

They are read from the source (``ast``) and, where only the running program can tell,
from ``sys.modules`` of a fresh interpreter.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "intercom"

#: The house from the ground up. A part may import what stands on a lower line, and itself.
LAYERS = (
    ("tuples",),
    ("plain", "plainjson", "moments", "hashes"),
    ("levels",),
    ("errors", "records"),
    ("names", "private", "mounts"),
    ("messages", "paths", "interfaces"),
    ("wire", "settings", "showing"),
    ("core",),
    ("spool", "election"),
    ("pi",),
    ("hub", "client"),
    ("tap", "testing", "bridge", "hooks"),
    ("cli",),
    ("__main__",),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

#: The parts that see nothing of the world.
PURE = ("core", "wire", "showing")
#: Whatever looks at the world: clocks, chance, files, sockets, threads, and Twisted.
IMPURE = frozenset(
    {"twisted", "zope", "os", "io", "pathlib", "glob", "tempfile", "shutil", "fcntl", "logging"}
    | {"time", "random", "secrets", "uuid", "socket", "select", "selectors", "ssl", "signal"}
    | {"threading", "_thread", "multiprocessing", "concurrent", "subprocess", "asyncio"}
)
#: The one thing of them that a part may have nevertheless, and why.
PURE_EXCEPTIONS = {
    ("intercom.core.hub", "zope"): "declares that it implements IRouter",
}
#: What takes long to import, and so what no short-lived command may load.
SLOW = frozenset({"twisted", "zope", "msgspec", "automat", "attr"})

#: Modules that hubs, commands and foreign tools share: the standard library and nothing else.
STANDARD_LIBRARY_ONLY = re.compile(
    r"intercom\.(tuples|levels|plain|plainjson|moments|hashes|errors|names|records|paths|private|mounts|wire\.(envelope|framing|plaintext)"
    r"|(showing|hooks)\.\w+|election\.locks|settings\.\w+|spool\.(format|positions|files)"
    r"|client\.(?!protocol$|service$)\w+)$"
)

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
#: Functions that may be longer, each with the reason.
LONG_FUNCTIONS: dict[str, str] = {}


class Import(NamedTuple):
    """One import statement's target.

    :ivar target: dotted name, as far as it is known to be a module or a name in one.
    :ivar top: it runs when the module is imported.
    """

    target: str
    line: int
    top: bool


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@functools.cache
def tree(module: str) -> ast.Module:
    """The parsed source of a module."""
    return ast.parse(MODULES[module].read_text("utf-8"))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _statements(node: ast.AST, top: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, with whether it runs at import; TYPE_CHECKING blocks left out."""
    for child in ast.iter_child_nodes(node):
        if _is_type_checking(child):
            continue
        yield child, top
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _statements(child, top and not inside)


@functools.cache
def imports(module: str) -> tuple[Import, ...]:
    """What a module imports when it runs, at its top or inside its functions."""
    found = []
    for node, top in _statements(tree(module)):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are written out in full"
            assert node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                whole = inner in MODULES or node.module in ("intercom", "twisted.internet")
                found.append(Import(inner if whole else node.module, node.lineno, top))
    return tuple(found)


def part(module: str) -> str:
    """The part of the house that a module belongs to, empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def reached(module: str, *, top_only: bool = False) -> dict[str, str]:
    """Every module of ours that importing this one brings along, with who imports it."""
    seen = {module: ""}
    waiting = [module]
    while waiting:
        here = waiting.pop()
        for found in imports(here):
            if found.target in MODULES and found.target not in seen and (found.top or not top_only):
                seen[found.target] = here
                waiting.append(found.target)
    return seen


def test_every_part_has_its_place_in_the_house() -> None:
    """A new part of the package must be put into the layers, or nothing would watch it."""
    assert {part(module) for module in MODULES} - {""} <= RANK.keys()


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_downwards_only(module: str) -> None:
    """A part knows those below it, never those above or beside it."""
    own = part(module)
    wrong = [
        f"line {found.line}: {found.target}"
        for found in imports(module)
        if found.target in MODULES
        and part(found.target) not in ("", own)
        and (not own or RANK[part(found.target)] >= RANK[own])
    ]
    assert not wrong, f"{module} imports upwards: {wrong}"


@pytest.mark.parametrize("module", [name for name in MODULES if part(name) in PURE])
def test_what_is_to_be_pure_is(module: str) -> None:
    """State machine, dialects and renderer see no clock, no chance, no file and no network.

    Neither do the modules of ours that they build on.
    """
    wrong = [
        f"{name} line {found.line}: {found.target}"
        for name in reached(module)
        for found in imports(name)
        if (root := found.target.split(".")[0]) in IMPURE
        and (name, root) not in PURE_EXCEPTIONS
        and not (name == "intercom.interfaces" and root == "zope")
    ]
    assert not wrong


@pytest.mark.parametrize("module", [name for name in MODULES if STANDARD_LIBRARY_ONLY.match(name)])
def test_what_others_may_borrow_needs_the_standard_library_only(module: str) -> None:
    """Envelope, framing, file format and blocking client can be copied into any program."""
    wrong = [
        f"{name} line {found.line}: {found.target}"
        for name in reached(module)
        for found in imports(name)
        if (root := found.target.split(".")[0]) != "intercom"
        and root not in sys.stdlib_module_names
    ]
    assert not wrong


@pytest.mark.parametrize("module", MODULES)
def test_nothing_chooses_a_reactor_at_import(module: str) -> None:
    """Importing us must not install Twisted's default reactor: that choice is the application's."""
    wrong = [
        found.line
        for found in imports(module)
        if found.top and found.target.startswith("twisted.internet.reactor")
    ]
    assert not wrong


def test_the_plugin_is_data_only() -> None:
    """Every twistd on the machine imports the plugin file, so it may import next to nothing."""
    plugin = ROOT / "twisted" / "plugins" / "intercom_plugin.py"
    wanted = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(plugin.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    allowed = {
        "from __future__ import annotations",
        "from twisted.application.service import ServiceMaker",
    }
    assert set(wanted) <= allowed
    assert wanted


# -- what only the running program can tell ---------------------------------------------------


def loaded_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running ``code``."""
    report = "import sys; print('\\n' + ' '.join(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


VERBS = sorted(name for name in MODULES if part(name) == "cli" and name not in ("intercom.cli",))


@pytest.mark.parametrize("module", ["intercom.client.blocking", "intercom.client.spawn", *VERBS])
def test_short_lived_commands_load_nothing_slow(module: str) -> None:
    """A command starts in a tenth of a second: no Twisted, no zope, no msgspec in it."""
    assert not loaded_after(f"import {module}") & SLOW


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["send", "--help"]])
def test_asking_for_help_loads_nothing_slow(words: list[str]) -> None:
    """``intercom --help`` names every verb without importing what the daemon needs."""
    code = (
        f"import sys; sys.argv = ['intercom', *{words!r}]\n"
        "from intercom.cli.main import run\n"
        "try: run()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
    )
    assert not loaded_after(code) & SLOW


# -- what a reader meets ----------------------------------------------------------------------


def _definitions(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Classes and functions of a module or class, with their dotted names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{child.name}"
            yield inner, child
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, inner)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _definitions(child, name)


@pytest.mark.parametrize("module", MODULES)
def test_everything_public_says_what_it_is_for(module: str) -> None:
    """Each public module, class and function has a docstring."""
    bare = [] if ast.get_docstring(tree(module)) else [module]
    for name, node in _definitions(tree(module), module):
        hidden = any(word.startswith("_") for word in name.split(".") if word != "__main__")
        if not hidden and not ast.get_docstring(node):  # type: ignore[arg-type]
            bare.append(name)
    assert not bare


@pytest.mark.parametrize("module", MODULES)
def test_files_and_functions_stay_short(module: str) -> None:
    """A file is read in one sitting, a function at one look; a docstring costs nothing."""
    lines = len(MODULES[module].read_text("utf-8").splitlines())
    assert lines <= MAX_FILE_LINES
    long = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node):
                first = node.body[0]
                assert first.end_lineno is not None
                length -= first.end_lineno - first.lineno + 1
            name = f"{module}.{node.name}"
            if length > MAX_FUNCTION_LINES and name not in LONG_FUNCTIONS:
                long[name] = length
    assert not long


def tracked_files() -> list[Path]:
    """The project's own files: git's list, or all that a source distribution holds."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    if listed.returncode == 0:
        return [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    tops = ("intercom", "twisted", "tests", "docs", ".ci")
    deep = [path for top in tops for path in (ROOT / top).rglob("*")]
    deep = [path for path in deep if "__pycache__" not in path.parts]
    return deep + [path for path in ROOT.iterdir() if path.is_file()]


def test_no_file_names_a_machine_or_a_registry() -> None:
    """Nothing in the tree depends on where it was written or on where packages come from."""
    halves = [  # in two, or this file would be the first to be found
        ("/wo", "rk/"),
        ("/tmp/ve", "nv"),
        (".lib", "rary"),
        ("python", "hosted"),
        ("pypi", ".org"),
        ("registry", ".npmjs"),
        ("deb", ".debian"),
    ]
    pattern = re.compile(b"|".join(re.escape("".join(pair).encode()) for pair in halves))
    files = [path for path in tracked_files() if path.is_file() and not path.is_symlink()]
    assert len(files) > 20
    assert not [str(path) for path in files if pattern.search(path.read_bytes())]
