"""Draw from the code what the pages show of it: ``python docs/diagrams.py``.

Writes the pages in ``docs/diagrams``, and the diagrams that stand between markers in the pages
beside this program. ``--check`` writes nothing, and fails if something would change.

A connection's life is read from its state machine. A letter and an ask have none: their steps
are the tables below, and a test compares these with what the bus really does in each of its
golden transcripts. What it says of inputs, effects and limits are the words in the code.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from intercom.core import session
from intercom.core.bus import asks, broker, effects, limits, mailbox

HERE = Path(__file__).resolve().parent
PAGES = HERE / "diagrams"
BUS = Path(str(broker.__file__)).parent
COMMAND = "python docs/diagrams.py"
GENERATED = f"Made from the code by `{COMMAND}`; a test compares. [The model](../mesh-model.md)."

#: Stands for: not there yet, or not any more.
NOWHERE = ""


class Step(NamedTuple):
    """One step of a life: from one state to another.

    :ivar by: the method or effect that takes it. :ivar why: when that is.
    """

    before: str
    after: str
    by: str
    why: str


#: A letter's life; ``by`` are methods of ``Mailbox``, and ``Box.trim``.
LETTER = (
    Step(NOWHERE, "waits", "keep", "its line stands in the inbox file"),
    Step("waits", "queued", "queue", "its receiver is not here, and its sender hears `queued`"),
    Step("waits", "held", "hold", "it is written to its receiver's connection"),
    Step("queued", "held", "hold", "its receiver came, or an heir of it"),
    Step("held", "waits", "left", "the connection ends before a receipt"),
    Step("held", "settled", "settle", "it was received, or taken back"),
    Step("waits", "settled", "settle", "nobody is to see it any more"),
    Step("queued", "settled", "settle", "it is cancelled, evicted, or too old"),
    Step("settled", NOWHERE, "trim", "the inbox's position moves past it"),
)
#: An ask's life; ``by`` are methods of ``Asks``, effects, and ``restart``: another hub begins.
ASK = (
    Step(NOWHERE, "opening", "add", "a question is found deliverable"),
    Step(
        "opening",
        "pending",
        "SaveAsk",
        "its file is written; only now a pi client's question goes out",
    ),
    Step("opening", NOWHERE, "remove", "its file cannot be written: the question goes nowhere"),
    Step("pending", "pending", "add", "the same question is sent again: its time begins anew"),
    Step("pending", "closing", "remove", "an answer, a cancel, or its question reached nobody"),
    Step("pending", "closing", "prune", "its time is over"),
    Step("pending", "closing", "restart", "the hub ends, and the file stays"),
    Step("closing", "pending", "add", "the answer is in no inbox, or another hub reads the file"),
    Step("closing", NOWHERE, "RemoveAsk", "its file is removed; only now the answer is confirmed"),
)


# -- diagrams ---------------------------------------------------------------------------------


def drawn(steps: Sequence[Step], start: str = NOWHERE) -> str:
    """A state diagram in the words of Mermaid, which GitHub draws.

    :param start: the first state, where none of the steps begins at nowhere.
    """
    lines = ["```mermaid", "stateDiagram-v2"]
    if start:
        lines.append(f"    [*] --> {start}")
    ways: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        ways.setdefault((step.before or "[*]", step.after or "[*]"), []).append(step.by)
    lines += [f"    {one} --> {other}: {', '.join(by)}" for (one, other), by in ways.items()]
    return "\n".join([*lines, "```"])


def listed(steps: Sequence[Step]) -> str:
    """The same steps as a table."""
    rows = [(_state(one.before), _state(one.after), f"`{one.by}`", one.why) for one in steps]
    return table(("from", "to", "by", "when"), rows)


def _state(name: str) -> str:
    return name or "-"


def connection_steps() -> tuple[str, list[Step]]:
    """First state and steps of a connection that speaks lines, as its machine has them."""
    automaton = session._machine.__automat_automaton__
    found = []
    for before, name, after, outputs in automaton.allTransitions():
        if name == session.Life.state.__name__:
            continue  # asks, and changes nothing
        done = [said(inspect.getdoc(one.method) or "") for one in outputs if hasattr(one, "method")]
        told = said(inspect.getdoc(getattr(session.Life, name)) or "")
        found.append(Step(before.name, after.name, name, " ".join([told, *filter(None, done)])))
    start = automaton.initialState.name
    order = _order(start, found)
    return start, sorted(found, key=lambda step: (order.index(step.before), step.by))


def _order(start: str, steps: Sequence[Step]) -> list[str]:
    """All states, in the order in which they are reached, names by the alphabet within it."""
    order = [start]
    for state in order:
        reached = sorted({step.after for step in steps if step.before == state})
        order += [name for name in reached if name not in order]
    return order


# -- what the code says of itself -------------------------------------------------------------


def said(doc: str) -> str:
    """The text of a docstring before its fields, as Markdown, in one line."""
    text = re.split(r"^\s*:(?:param|ivar|raise|return)\b", doc, maxsplit=1, flags=re.MULTILINE)[0]
    text = re.sub(r":\w+:`~[\w.]+\.(\w+)`", r"`\1`", text)
    text = re.sub(r":\w+:`([\w.]+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r"\s+", " ", text).strip().replace("|", r"\|")


def fields_of(doc: str) -> dict[str, str]:
    """What a docstring says of single fields, ``:ivar name: text``, by name."""
    found = re.split(r":ivar (\w+):", doc)[1:]
    return {found[at]: said(found[at + 1]).rstrip(".") for at in range(0, len(found), 2)}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def callers(names: Sequence[str], receivers: Sequence[str]) -> list[tuple[str, str, str]]:
    """Who in the bus calls what: the called name, who calls it, and what it says of itself.

    :param receivers: on what it is called, as that is written at its end.
    """
    found = set()
    for path in sorted(BUS.glob("*.py")):
        for owner, function in _functions(ast.parse(path.read_text("utf-8"))):
            text = said(ast.get_docstring(function) or "")
            for node in ast.walk(function):
                called = node.func if isinstance(node, ast.Call) else None
                if not (isinstance(called, ast.Attribute) and called.attr in names):
                    continue
                if ast.unparse(called.value).endswith(tuple(receivers)):
                    found.add((called.attr, f"{owner}.{function.name}", text))
    return sorted(found)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The methods of a module, each with the name of its class."""
    for part in tree.body:
        if isinstance(part, ast.ClassDef):
            yield from ((part.name, one) for one in part.body if isinstance(one, ast.FunctionDef))


def sections(owner: type) -> dict[str, str]:
    """The comment above which a class's source lists each of its methods, by method."""
    found, title = {}, ""
    for line in inspect.getsource(owner).splitlines():
        heading, method = re.match(r"    # -- (.*)", line), re.match(r"    def (\w+)", line)
        title = heading[1].strip("- ") if heading else title
        if method:
            found[method[1]] = title
    return found


# -- pages ------------------------------------------------------------------------------------


def connection_page() -> str:
    """The life of a connection that speaks lines."""
    _, steps = connection_steps()
    rows = [(step.before, step.after, f"`{step.by}`", step.why) for step in steps]
    return page(
        "The life of an NDJSON connection",
        said(inspect.getdoc(session) or ""),
        moving(),
        "Any other input in a state would be a bug, and raises.",
        table(("from", "to", "input", "meaning"), rows),
    )


def moving() -> str:
    """The diagram of a connection's life, without inputs that leave it where it is."""
    start, steps = connection_steps()
    return drawn([step for step in steps if step.before != step.after], start)


def letter_page() -> str:
    """The life of a letter."""
    return page(
        "The life of a letter",
        said(inspect.getdoc(mailbox) or ""),
        drawn(LETTER),
        listed(LETTER),
        "Who takes these steps, in `intercom/core/bus`:",
        _called(("keep", "queue", "hold", "left", "settle", "trim"), ("mailbox", "box")),
        "Letters that nobody is to see any more go through `give_up`, which tells the sender's "
        "record why, and `withdraw`, which strikes the line off:",
        _called(("give_up", "withdraw"), ("handover", "self")),
    )


def ask_page() -> str:
    """The life of an ask."""
    return page(
        "The life of an ask",
        said(inspect.getdoc(asks) or ""),
        "An ask is **opening** while its file is being written, **pending** while it is known and "
        "has its file, **closing** while there is only the file.",
        drawn(ASK),
        listed(ASK),
        "Who takes these steps, in `intercom/core/bus`:",
        _called(("add", "remove", "prune"), ("asks",)),
        "Its file goes with:",
        _called(("remove_ask", "remove_ask_file", "_end_ask"), ("world", "self")),
    )


def _called(names: Sequence[str], receivers: Sequence[str]) -> str:
    rows = [(f"`{name}`", f"`{by}`", text or "-") for name, by, text in callers(names, receivers)]
    return table(("step", "by", "which says of itself"), rows)


def bus_page() -> str:
    """Inputs, effects, limits and parts of the bus."""
    return page(
        "The bus: inputs, effects, limits, parts",
        said(inspect.getdoc(broker.Broker) or ""),
        "## Inputs\n\nWhat the shell tells the bus, each with the time.",
        table(("when", "input", "with", "meaning"), list(_inputs())),
        f"## Effects\n\n{said(inspect.getdoc(effects) or '')}",
        table(("effect", "with", "meaning"), list(_effects())),
        f"## Limits\n\n{said(inspect.getdoc(limits.Limits) or '')}",
        table(("limit", "default", "meaning"), list(_limits())),
        "## Parts\n\nThe modules of `intercom/core/bus`.",
        table(("module", "what it is for"), list(_parts())),
    )


def _inputs() -> Iterator[tuple[str, str, str, str]]:
    for name, title in sections(broker.Broker).items():
        method = getattr(broker.Broker, name)
        if not name.startswith("_") and inspect.isfunction(method):
            words = [word for word in inspect.signature(method).parameters if word != "self"]
            given = ", ".join(f"`{word}`" for word in words if word != "now")
            yield title, f"`{name}`", given, said(inspect.getdoc(method) or "")


def _effects() -> Iterator[tuple[str, str, str]]:
    for name, kind in vars(effects).items():
        own = inspect.isclass(kind) and kind.__module__ == effects.__name__
        if own and issubclass(kind, msgspec.Struct):
            doc = inspect.getdoc(kind) or ""
            notes = [f"`{field}`: {text}." for field, text in fields_of(doc).items()]
            fields = ", ".join(f"`{one.name}`" for one in msgspec.structs.fields(kind))
            yield f"`{name}`", fields, " ".join([said(doc), *notes])


def _limits() -> Iterator[tuple[str, str, str]]:
    meanings = fields_of(inspect.getdoc(limits.Limits) or "")
    for field in msgspec.structs.fields(limits.Limits):
        yield f"`{field.name}`", f"{field.default:,}", meanings[field.name]


def _parts() -> Iterator[tuple[str, str]]:
    for path in sorted(BUS.glob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if path.stem != "__init__":
            yield f"`{path.stem}`", said(doc.partition("\n\n")[0])


def page(title: str, *parts: str) -> str:
    """A page of this directory."""
    return "\n\n".join([f"# {title}", GENERATED, *parts]) + "\n"


# -- writing ----------------------------------------------------------------------------------


def inserted(text: str) -> str:
    """A page with the diagrams that belong between its markers."""
    diagrams = {"connection": moving(), "letter": drawn(LETTER), "ask": drawn(ASK)}
    for name, diagram in diagrams.items():
        marked = rf"(<!-- diagram: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(marked, rf"\g<1>\n{diagram}\n\n\g<2>", text, flags=re.DOTALL)
    return text


def wanted() -> dict[Path, str]:
    """What every generated page should be, and every page with markers."""
    pages = {
        PAGES / "connection.md": connection_page(),
        PAGES / "letter.md": letter_page(),
        PAGES / "ask.md": ask_page(),
        PAGES / "bus.md": bus_page(),
    }
    for path in sorted(HERE.glob("*.md")):
        text = path.read_text("utf-8")
        if "<!-- diagram: " in text:
            pages[path] = inserted(text)
    return pages


def stale() -> list[Path]:
    """The pages that are not what they should be."""
    return [
        path
        for path, text in wanted().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main(words: Sequence[str]) -> int:
    """Write the pages, or only say which of them would change."""
    changed = stale()
    if "--check" not in words:
        pages = wanted()
        PAGES.mkdir(exist_ok=True)
        for path in changed:
            path.write_text(pages[path], "utf-8")
    for path in changed:
        sys.stdout.write(f"{path.relative_to(HERE.parent)}\n")
    return 1 if changed and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
