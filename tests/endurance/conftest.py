"""What wears a hub out, in the scenes of other tests: sharp ones, the proof's, the second user's.

Nothing is written here a second time: their fixtures and helpers are taken from where they are.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
for directory in (HERE.parent / "proof", HERE):
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _fixtures_of(directory: str) -> ModuleType:
    """The ``conftest.py`` of a neighbouring directory, loaded under a name of its own."""
    path = HERE.parent / directory / "conftest.py"
    spec = importlib.util.spec_from_file_location(f"fixtures_of_{directory}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_sharp, _proof, _safety = map(_fixtures_of, ("sharp", "proof", "safety"))

hub, paths, intercom, stored = _sharp.hub, _sharp.paths, _sharp.intercom, _sharp.stored
storm = _proof.storm
needs_root, protection, commons = _safety.needs_root, _safety.protection, _safety.commons
servants, user, attacker = _safety.servants, _safety.user, _safety.attacker
treasure = _safety.treasure
