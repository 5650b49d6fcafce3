"""From the rounds' results to medians, spreads, ratios and a table."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

#: One target's results by round, in order.
Rounds = dict[str, list[dict[str, Any]]]

CPU = "cpu_s_per_100k"
#: What a figure is called in a table.
TITLES = {
    "messages_per_s": "messages/s",
    "arrival_p50_us": "us to the recipient",
    "p50_ms": "ms",
    "kept": "last part / first",
}
_DELAYS = ("p50", "p95", "p99")


def machine() -> dict[str, Any]:
    """What the figures depend on, as far as it can be told without naming anybody."""
    return {
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest of the rounds."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summary(rounds: Rounds, figure: str, base: str) -> list[dict[str, Any]]:
    """For each target the figure, its ratio to the base's, and the median of all else.

    A ratio is that of one round, in which both were measured within moments of each other;
    its median is what is left when the machine's slow spells are taken out.
    """
    rows = []
    for target, results in rounds.items():
        row: dict[str, Any] = {
            "target": target,
            "figure": spread([result[figure] for result in results]),
            "runs": results,
            "medians": {
                key: statistics.median(result[key] for result in results)
                for key, value in results[0].items()
                if isinstance(value, int | float)
            },
            "notes": results[-1].get("notes", {}),
        }
        if base in rounds:
            row["ratio"] = spread(_ratios(results, rounds[base], figure))
            if CPU in results[0] and CPU in rounds[base][0]:
                row["medians"]["cpu_ratio"] = statistics.median(_ratios(results, rounds[base], CPU))
        rows.append(row)
    return rows


def _ratios(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], key: str) -> list[float]:
    return [mine[key] / base[key] for mine, base in zip(ours, theirs, strict=True)]


def number(value: float) -> str:
    """Three significant digits, or all before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _spread(values: dict[str, float]) -> str:
    median, low, high = (number(values[key]) for key in ("median", "low", "high"))
    return median if low == high else f"{median} ({low}-{high})"


def _several(*keys: str) -> Callable[[dict[str, Any]], str]:
    """A column of several medians; empty where there are none."""

    def cell(row: dict[str, Any]) -> str:
        medians = row["medians"]
        return "/".join(number(medians[key]) for key in keys if key in medians)

    return cell


def _delays(name: str) -> Callable[[dict[str, Any]], str]:
    return _several(*(f"{name}_{mark}_us" for mark in _DELAYS))


def _notes(row: dict[str, Any]) -> str:
    notes = {**row["notes"], "fate": row["runs"][-1].get("fate", "")}
    said = (key if value is True else value for key, value in sorted(notes.items()))
    return ", ".join(text for text in said if text)


#: Title and content; a column that is empty in all rows is left out.
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "CPU s / 100,000": _several(CPU),
    "CPU, times": _several("cpu_ratio"),
    "CPU, last / first": _several("cpu_grown"),
    "us to recipient p50/p95/p99": _delays("arrival"),
    "us to receipt": _delays("receipt"),
    "us behind schedule": _delays("late"),
    "ms p50/p95": _several("p50_ms", "p95_ms"),
    "by itself p50": _several("calm_us"),
    "times that": _several("times_calm"),
    "beside it, a second": _several("flood_per_s"),
    "KiB an idle one": _several("kib_each"),
    "connects/s": _several("connects_per_s"),
    "MiB while stalled": _several("stalled_mib"),
    "MiB grown": _several("grown_mib"),
    "busy: server/load/others": _several("server_busy", "load_busy", "others_busy"),
    "MiB: rest/end/peak": _several("rest_mib", "memory_mib", "peak_mib"),
    "said": _notes,
}


def table(rows: list[dict[str, Any]], figure: str, base: str) -> str:
    """Rows of :func:`summary` as a table of text, which is Markdown, too."""
    lines = [["target", TITLES[figure], f"times {base}"]]
    lines += [
        [row["target"], _spread(row["figure"]), _spread(row["ratio"]) if "ratio" in row else ""]
        for row in rows
    ]
    for title, cell in COLUMNS.items():
        cells = [cell(row) for row in rows]
        if any(cells):
            for line, text in zip(lines, [title, *cells], strict=True):
                line.append(text)
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )
