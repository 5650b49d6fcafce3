"""Texts as bytes, and their hashes, as file names of the pi dialect need them."""

from __future__ import annotations

import hashlib


def utf8(text: str) -> bytes:
    """A text of JavaScript in UTF-8; half of a surrogate pair gets bytes of its own.

    JavaScript itself writes U+FFFD for all of them, so that different texts would meet.
    """
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined.encode("utf-8", "surrogatepass")


def sha256(text: str) -> str:
    """The hexadecimal hash of a text's UTF-8."""
    return hashlib.sha256(utf8(text)).hexdigest()
