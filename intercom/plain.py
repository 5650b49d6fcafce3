"""A few things of ``contextlib`` and ``functools``, for commands that start fast.

These two bring along ``collections`` and more, which takes as long as to send a message.
What a type checker sees is theirs. Standard library only.
"""

from __future__ import annotations

from intercom.tuples import TYPE_CHECKING

__all__ = ["cache", "cached_property", "contextmanager", "nullcontext", "suppress"]

if TYPE_CHECKING:
    from contextlib import contextmanager, nullcontext, suppress
    from functools import cache, cached_property
else:

    def cache(function):
        """Call a function once for each set of positional arguments."""
        known = {}

        def made(*values):
            try:
                return known[values]
            except KeyError:
                return known.setdefault(values, function(*values))

        made.cache_clear = known.clear
        return _named_as(function, made)

    class cached_property:  # noqa: N801  its name where it comes from
        """An attribute that is worked out when it is asked for first."""

        def __init__(self, function):
            self._function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, one, owner=None):
            if one is None:
                return self
            value = one.__dict__[self._name] = self._function(one)
            return value

    def _named_as(function, made):
        """Let what was made of a function be called as that is."""
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(made, name, getattr(function, name))
        made.__wrapped__ = function
        return made

    class suppress:  # noqa: N801  its name where it comes from
        """A block in which these errors, and what is derived from them, end it silently."""

        def __init__(self, *errors):
            self._errors = errors

        def __enter__(self):
            return None

        def __exit__(self, kind, error, trace):
            return kind is not None and issubclass(kind, self._errors)

    class nullcontext:  # noqa: N801  its name where it comes from
        """A block around which nothing is done."""

        def __init__(self, value=None):
            self._value = value

        def __enter__(self):
            return self._value

        def __exit__(self, kind, error, trace):
            return None

    class _Block:
        """One run of a generator around a block."""

        def __init__(self, generator):
            self._generator = generator

        def __enter__(self):
            try:
                return next(self._generator)
            except StopIteration:
                raise RuntimeError("the generator gave nothing") from None

        def __exit__(self, kind, error, trace):
            if kind is None:
                for _ in self._generator:
                    raise RuntimeError("the generator did not end")
                return False
            try:
                self._generator.throw(error)
            except StopIteration as ended:
                return ended is not error  # one that the block itself raised goes on
            except RuntimeError as raised:
                if raised is error or (
                    isinstance(error, StopIteration) and raised.__cause__ is error
                ):
                    error.__traceback__ = trace
                    return False
                raise
            except BaseException as raised:
                if raised is not error:
                    raise
                error.__traceback__ = trace
                return False
            raise RuntimeError("the generator did not end")

    def contextmanager(function):
        """Make a block of a generator function that yields once."""

        def made(*values, **named):
            return _Block(function(*values, **named))

        return _named_as(function, made)
