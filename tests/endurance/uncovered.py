"""Which handlers of failing system calls no test has entered, as a script.

    pip install coverage
    python -m coverage run --branch \\
        --source=intercom.spool,intercom.election,intercom.wire,intercom.mounts,intercom.private \\
        -m pytest tests/spool tests/contract tests/wire tests/endurance/test_file_systems.py \\
        tests/endurance/test_forked_holders.py tests/endurance/test_failing_branches.py
    python -m coverage report -m --skip-covered
    python -m coverage json -o coverage.json
    python tests/endurance/uncovered.py coverage.json

Exit status 0 if all were entered. Only tests that run in the same process count.
"""

from __future__ import annotations

import ast
import builtins
import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path


def unentered(source: str, executed: Collection[int]) -> Iterator[tuple[int, str]]:
    """The handlers of OSErrors whose first line never ran: line, and what is caught.

    :param executed: numbers of the lines that ran.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ExceptHandler) or node.type is None:
            continue
        names = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)}
        if any(map(_is_system_error, names)) and node.body[0].lineno not in executed:
            yield node.lineno, ast.unparse(node.type)


def _is_system_error(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, OSError)


def main(report: str) -> int:
    """List what was not entered; the exit status."""
    found = 0
    for name, covered in json.loads(Path(report).read_text())["files"].items():
        source = Path(name).read_text("utf-8")
        for line, caught in unentered(source, set(covered["executed_lines"])):
            print(f"{name}:{line}: except {caught}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
