"""JSON for commands that start fast: the compiled part of the standard library's, without ``re``.

:func:`loads` and :func:`dumps` do what those of :mod:`json` do. That module itself is
loaded only for what is rare: text that is no JSON, of which it says what is wrong, and
indented output. Standard library only.
"""

from __future__ import annotations

from intercom.tuples import TYPE_CHECKING

try:
    from _json import encode_basestring as _quoted
    from _json import encode_basestring_ascii as _quoted_ascii
    from _json import make_encoder, make_scanner
except ImportError:  # an interpreter that has no compiled part
    make_encoder = make_scanner = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BLANKS = (" ", "\n", "\t", "\r")


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Reader:
    """Reads JSON texts, each whole, as :class:`json.JSONDecoder` does.

    :param pairs: makes an object of its keys and values, None for a plain ``dict``.
    :param constant: makes a value of ``NaN``, ``Infinity`` and ``-Infinity``.
    """

    strict = True
    object_hook = None
    parse_float = float
    parse_int = int

    def __init__(
        self,
        pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
        constant: Callable[[str], Any] = _CONSTANTS.__getitem__,
    ) -> None:
        self.object_pairs_hook = pairs
        self.parse_constant = constant
        self._scan = None if make_scanner is None else make_scanner(self)  # type: ignore[arg-type]

    def __call__(self, text: str) -> Any:
        """Read one.

        :raise ValueError: it is no JSON; nothing is said about why.
        :raise RecursionError: it is nested deeper than Python reads.
        """
        if self._scan is None:
            import json

            return json.loads(
                text, object_pairs_hook=self.object_pairs_hook, parse_constant=self.parse_constant
            )
        start = 0
        while text.startswith(_BLANKS, start):
            start += 1
        try:
            found, end = self._scan(text, start)
        except (StopIteration, SystemError):
            # Python 3.11 cannot say what is wrong while json.decoder is not loaded.
            raise ValueError("this is no JSON") from None
        if end < len(text) and text[end:].strip("".join(_BLANKS)):
            raise ValueError("something follows the text")
        return found


_read = Reader()


def loads(data: str | bytes) -> Any:
    """Read one JSON text.

    :raise ValueError: it is none (``json.JSONDecodeError``), or bytes that are no text.
    :raise RecursionError: it is nested deeper than Python reads.
    """
    text = data
    if isinstance(data, bytes) and b"\0" not in data[:4]:
        text = data.decode("utf-8", "surrogatepass")
    if isinstance(text, str):
        try:
            return _read(text)
        except ValueError:
            pass  # the module says what is wrong
    import json

    return json.loads(data)


def dumps(
    value: Any,
    *,
    ensure_ascii: bool = True,
    allow_nan: bool = True,
    separators: tuple[str, str] | None = None,
    indent: int | None = None,
) -> str:
    """Write a value as JSON.

    :raise ValueError: it holds itself, or (without ``allow_nan``) a number that is none.
    :raise TypeError: it holds something that JSON does not know.
    :raise RecursionError: it is nested deeper than Python writes.
    """
    if make_encoder is None or indent is not None or isinstance(value, str | int | float):
        import json

        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            allow_nan=allow_nan,
            separators=separators,
            indent=indent,
        )
    quoted = _quoted_ascii if ensure_ascii else _quoted
    between, behind_key = separators or (", ", ": ")
    encode = make_encoder(
        {}, _refuse, quoted, None, behind_key, between, False, False, allow_nan
    )  # fmt: skip
    return "".join(encode(value, 0))


def _refuse(value: object) -> Any:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
