"""Reading plain command lines of ``send`` and ``poll`` without click, which takes long to load.

Only what is sure to mean the same to click is read here: known options written in full,
each once, with values that can be used. Help, completion, everything that is wrong or
unusual is left to click, before anything was done.
"""

from __future__ import annotations

from intercom.cli.table import COMMON, QUICK, Argument, Option
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

#: Set by a shell that asks what a word could be completed to.
_COMPLETING = "_INTERCOM_COMPLETE"


class Line(NamedTuple):
    """A command line that was read.

    :ivar work: the module whose ``work`` does it.
    :ivar values: those of the verb's own options, by name; none is missing.
    :ivar common: those of the common options that were given.
    """

    verb: str
    work: str
    values: dict[str, Any]
    common: dict[str, Any]


class _Unsure(Exception):
    """A line for click to read."""


def read(words: Sequence[str], environ: Mapping[str, str]) -> Line | None:
    """Read a command line, its program's name left out; None: let click read it."""
    if _COMPLETING in environ:
        return None
    try:
        common, rest = _read(words, COMMON, None, before_verb=True)
        verb = QUICK.get(rest[0]) if rest else None
        if verb is None:
            return None
        given, _ = _read(rest[1:], COMMON + verb.options, verb.argument)
    except _Unsure:
        return None
    values = {option.name: option.default for option in verb.options}
    for option in verb.options:
        if option.kind.name == "flag":
            values[option.name] = False
    if verb.argument is not None:
        values[verb.argument.name] = None
    for name, value in given.items():
        (values if name in values else common)[name] = value
    return Line(rest[0], verb.work, values, common)


def _read(
    words: Sequence[str],
    options: tuple[Option, ...],
    argument: Argument | None,
    before_verb: bool = False,
) -> tuple[dict[str, Any], Sequence[str]]:
    """Read options, and what stands between them.

    :param before_verb: the first word that is no option ends them.
    :return: the values by name, and the words that are left.
    :raise _Unsure: anything else stands there.
    """
    by_word = {option.word: option for option in options}
    given: dict[str, Any] = {}
    at, only_arguments = 0, False
    while at < len(words):
        word = words[at]
        at += 1
        if only_arguments or word == "-" or not word.startswith("-"):
            if before_verb:
                return given, words[at - 1 :]
            if argument is None or word not in argument.words or argument.name in given:
                raise _Unsure
            given[argument.name] = word
            continue
        if word == "--" and not before_verb:
            only_arguments = True
            continue
        name, equals, value = word.partition("=")
        option = by_word.get(name)
        if option is None or option.several or option.name in given:
            raise _Unsure
        if option.kind.name == "flag" or option.constant is not None:
            if equals:
                raise _Unsure
            given[option.name] = True if option.constant is None else option.constant
            continue
        if not equals:
            if at == len(words):
                raise _Unsure
            value = words[at]
            at += 1
        given[option.name] = _value(option, value)
    return given, ()


def _value(option: Option, word: str) -> Any:
    """The value that a word stands for."""
    try:
        return option.kind.read(word)
    except ValueError:
        raise _Unsure from None
