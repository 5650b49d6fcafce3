"""Named tuples as ``typing.NamedTuple`` makes them, for commands that start fast.

``typing`` brings along ``re``, ``enum`` and more, which takes as long as the interpreter
itself needs to start. Classes are written as ever::

    class Position(NamedTuple):
        generation: int
        offset: int = 0

What a type checker sees is ``typing.NamedTuple``. Standard library only.
"""

from __future__ import annotations

try:
    from _collections import _tuplegetter  # type: ignore[import-not-found]
except ImportError:  # an interpreter that has no compiled part
    from operator import itemgetter

    def _tuplegetter(at: int, _doc: None) -> property:
        return property(itemgetter(at))


#: False when the program runs; what stands under ``if TYPE_CHECKING`` is for type checkers.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Self
    from typing import NamedTuple as NamedTuple


#: How many of a kind are made before a constructor for them is compiled.
_OFTEN = 64


class _Named(tuple):  # type: ignore[type-arg]  # its parts are its subclasses' affair
    """What all named tuples can do."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        """Make one of so many values."""
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, **changed: Any) -> Self:
        """The same with some fields changed."""
        made = self._make(map(changed.pop, self._fields, self))
        if changed:
            raise ValueError(f"Got unexpected field names: {list(changed)!r}")
        return made

    __replace__ = _replace

    def _asdict(self) -> dict[str, Any]:
        """The values by the names of their fields."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({shown})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _Maker(type):
    """Turns the body of a class into a named tuple, which is a class like any other."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, body)
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one that has one")
        for at, field in enumerate(fields):
            body[field] = _tuplegetter(at, None)
        own = {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields, "_made": 0}
        return type(name, (_Named,), {"__slots__": (), "__new__": _first} | body | own)


def _first(cls: Any, *values: Any, **named: Any) -> Any:
    """Make one of the first of its kind.

    A command makes few of a kind, and to compile a constructor takes longer than to do
    without. A hub makes many: from the :data:`_OFTEN`-th on there is one.
    """
    kind = next(one for one in cls.__mro__ if "_field_defaults" in one.__dict__)
    kind._made += 1
    if kind._made == _OFTEN:
        kind.__new__ = staticmethod(_compiled(kind))
    fields, defaults = kind._fields, kind._field_defaults
    for field in fields[len(values) :]:
        if field in named:
            values += (named.pop(field),)
        elif field in defaults:
            values += (defaults[field],)
        else:
            raise TypeError(f"{kind.__name__}: {field!r} is missing")
    if named or len(values) != len(fields):
        raise TypeError(f"{kind.__name__} has no more fields than {', '.join(fields)}")
    return tuple.__new__(cls, values)


def _compiled(kind: Any) -> Any:
    """The constructor that ``collections.namedtuple`` would make."""
    parts = ", ".join(kind._fields)
    text = f"lambda _cls, {parts}: _new(_cls, ({parts}{',' if parts else ''}))"
    made = eval(text, {"_new": tuple.__new__, "__builtins__": {}})  # noqa: S307  names of fields
    made.__name__ = "__new__"
    made.__qualname__ = f"{kind.__qualname__}.__new__"
    made.__defaults__ = tuple(kind._field_defaults.values())
    return made


if not TYPE_CHECKING:

    class NamedTuple(metaclass=_Maker):
        """The base of all: see the module."""
