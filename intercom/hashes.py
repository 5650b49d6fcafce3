"""SHA-256 for commands that start fast: Python's own, without the library behind ``hashlib``.

Standard library only.
"""

from __future__ import annotations

from intercom.tuples import TYPE_CHECKING

__all__ = ["sha256"]

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256  # its name before Python 3.12
        except ImportError:  # an interpreter that has no compiled part
            from hashlib import sha256
