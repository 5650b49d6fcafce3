"""The command: which servers, which workloads, how many rounds; and the rounds themselves."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from gauge import processes, report
from gauge.dialects import DIALECTS
from gauge.load import Job
from gauge.server import BENCH, ROOT, Absent, Target, running, scratch
from gauge.targets import LEVELS, OURS, SETS, targets_named
from gauge.texts import Broken
from gauge.workloads import GROUPS, LOADS, PROCESSES, Workload

#: For each workload of processes: its round, what it is called, what it is compared with.
_ROUNDS = {
    "send": (processes.send, "intercom send, spawn to exit", processes.PLAIN),
    "poll": (processes.poll, "intercom poll of one message, spawn to exit", processes.PLAIN),
    "cold-start": (processes.cold_start, "spawn to first connection", processes.REACTOR),
}
assert tuple(_ROUNDS) == PROCESSES


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Measure hubs: every message is checked, and everything is a ratio.",
        epilog="A --target is echo, relay, ours (at each --level), ours-live (the same, its "
        "receivers taking pushes only), pi, pi-subagents, pi-ndjson (our hub as pi-broker, and "
        f"these as its clients), {', '.join(SETS['peers'])}, peers (all of these), all, the path "
        "of the socket of a hub that runs, or cmd:COMMAND (see docs/performance.md).",
    )
    add = parser.add_argument
    known = [*GROUPS, *LOADS, *PROCESSES]
    add("workloads", nargs="+", choices=known, metavar="WORKLOAD", help=", ".join(known))
    add("--target", action="append", default=[], help="by default echo, relay and ours")
    add("--level", action="append", choices=LEVELS, help="by default all three")
    add(
        "--checkout",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="our hub of another tree, too: before and after a change",
    )
    add("--rounds", type=int, default=5)
    add("--base", help="the target that ratios refer to; relay, or the first")
    add("--messages", type=int, metavar="N", help="instead of each workload's own number")
    add("--size", type=int, metavar="BYTES", help="of a text, instead of each workload's own")
    add("--seconds", type=float, default=15.0, help="most that one load may send")
    add("--runs", type=int, default=20, metavar="N", help="of each command in a round")
    add(
        "--original",
        default=ROOT / "tests" / "seed" / "original_client.py",
        type=Path,
        metavar="FILE",
        help="a client of the original mesh, for send and poll; by default our stand-in for it",
    )
    add("--dir", default="/var/tmp", help="where hubs keep their files: a disk, not memory")
    add("--pin", action="store_true", help="server and load on a processor of their own")
    add("--profile", type=Path, metavar="DIR", help="cProfile's figures of our hub")
    add("--json", metavar="FILE", help="all results; - for standard output")
    return parser.parse_args(words)


def chosen_targets(options: argparse.Namespace) -> list[Target]:
    """The servers to compare, in order."""
    levels = options.level or LEVELS
    names = options.target or ["echo", "relay", "ours"]
    targets = [target for name in names for target in targets_named(name, levels)]
    for tree in options.checkout:
        for name in [name for name in names if name in OURS] or ["ours"]:
            targets += targets_named(name, levels, tree.resolve())
    return targets


def chosen_workloads(options: argparse.Namespace) -> list[str]:
    """Their names, groups resolved, each once."""
    names = [name for word in options.workloads for name in GROUPS.get(word, (word,))]
    return list(dict.fromkeys(names))


def fits(load: Workload, target: Target) -> bool:
    """Whether a server has what a load wants of it: recipients, or room for a crowd."""
    if (load.fan_out or load.stalls) and DIALECTS[target.dialect].returns:
        return False
    return load.idle <= target.crowd


class Bench:
    """One interleaved run of everything that was asked for.

    :param talk: where tables go; progress goes to standard error.
    """

    def __init__(self, options: argparse.Namespace, talk: TextIO) -> None:
        self._options = options
        self._talk = talk
        self._targets = chosen_targets(options)
        names = [target.name for target in self._targets]
        if options.base not in (None, *names):
            raise ValueError(f"--base is one of {', '.join(names)}")
        cores = sorted(os.sched_getaffinity(0))
        self._cores = (cores[0], cores[-1]) if options.pin else (None, None)

    def run(self) -> dict[str, Any]:
        """Do all workloads, and tell of each when it is done.

        :raise Broken: a server lost, repeated, damaged or refused something.
        """
        done = []
        for name in chosen_workloads(self._options):
            done.append(self._load(LOADS[name]) if name in LOADS else self._processes(name))
            told = done[-1]
            print(f"\n{told['name']}: {told['title']}\n", file=self._talk)
            print(report.table(told["rows"], told["figure"], told["base"]), file=self._talk)
            self._talk.flush()
        words = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in vars(self._options).items()
            if key != "checkout"
        }
        return {"machine": report.machine(), "options": words, "workloads": done}

    def _load(self, load: Workload) -> dict[str, Any]:
        load = load.changed(messages=self._options.messages, size=self._options.size)
        targets = [target for target in self._targets if fits(load, target)]
        if not targets:
            raise ValueError(f"{load.name} fits none of these targets")
        rounds: report.Rounds = {target.name: [] for target in targets}
        for number in range(self._options.rounds):
            # Nobody is always first, or always behind the same other.
            start = number % len(targets)
            for target in targets[start:] + targets[:start]:
                self._say(f"{load.name}, round {number + 1}: {target.name}")
                rounds[target.name].append(self._measure(load, target, number))
        base = self._options.base
        if base not in rounds:
            base = "relay" if "relay" in rounds else targets[0].name
        rows = report.summary(rounds, load.figure, base)
        return {
            "name": load.name,
            "title": load.title,
            "figure": load.figure,
            "base": base,
            "rows": rows,
        }

    def _measure(self, load: Workload, target: Target, number: int) -> dict[str, Any]:
        """One load on one fresh server."""
        options = self._options
        profile = None
        if options.profile is not None and target.profiled:
            options.profile.mkdir(parents=True, exist_ok=True)
            file = f"{load.name}-{target.name}-{number + 1}.pstats"
            profile = options.profile.resolve() / file
        server_core, load_core = self._cores
        with (
            scratch(options.dir) as place,
            running(target, place, core=server_core, profile=profile) as server,
        ):
            job = Job(
                workload=load,
                dialect=target.dialect,
                address=server.address,
                channel=target.channel,
                pid=server.pid,
                prefix=f"{load.name}-{os.getpid()}-{number}",
                seconds=options.seconds,
            )
            result = generate(job, load_core)
            result["startup_ms"] = server.startup_s * 1000
            result["notes"].setdefault("level", target.promise)
            return result

    def _processes(self, name: str) -> dict[str, Any]:
        measure, title, base = _ROUNDS[name]
        options = self._options
        # Clients play no part in these: a hub whose clients are different is no other.
        targets = [target for target in self._targets if not target.twin]
        original = options.original if options.original.is_file() else None
        rounds: report.Rounds = {}
        for number in range(options.rounds):
            self._say(f"{name}, round {number + 1}")
            found = measure(targets, options.dir, options.runs, original)
            for command, result in found.items():
                rounds.setdefault(command, []).append(result)
        rows = report.summary(rounds, "p50_ms", base)
        title += f", {options.runs} runs a round"
        return {"name": name, "title": title, "figure": "p50_ms", "base": base, "rows": rows}

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def generate(job: Job, core: int | None) -> dict[str, Any]:
    """Have a load generator do a job.

    :param core: the only processor that it may use.
    :raise Broken: what it found wrong with the server.
    """
    environment = os.environ | {"PYTHONPATH": str(BENCH) + os.pathsep + str(ROOT)}
    words = [sys.executable, "-m", "gauge.measure"]
    if core is not None:
        words = ["taskset", "--cpu-list", str(core), *words]
    done = subprocess.run(
        words,
        input=job.to_json(),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise Broken(done.stderr.strip())
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main(words: Sequence[str]) -> int:
    """Run the command.

    The status is 1 if a server broke its word, and 69 if one is not installed; there are
    no figures then.
    """
    options = arguments(words)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # load and servers have it from us
    try:
        bench = Bench(options, sys.stderr if options.json == "-" else sys.stdout)
        results = bench.run()
    except (Broken, ValueError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    except Absent as error:
        print(f"run.py: {error}", file=sys.stderr)
        return os.EX_UNAVAILABLE
    if options.json:
        text = json.dumps(results, indent=1) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            Path(options.json).write_text(text)
    return 0
