"""`python -m sim SEED`, `python -m sim --seeds 1..500 -j 2`, `python -m sim --planted all`.

A run that finds a violation prints one line that replays it. The summary has the simulated time and its cost. Exit
status: 0 if no violation was found (with `--planted`: if every planted bug was found), 1 otherwise.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from sim import planted
from sim.plan import FAULTS, FEATURES, ORDERS, Plan
from sim.world import Result, run

MINUTES = 10.0
SWITCHES = (*FEATURES, *FAULTS, *ORDERS, "exclusive", "lulls", "archives", "api_keys", "remote_store", "standstills")
CHUNK = 10
"""Seeds in one job of a worker process."""


class Summary(NamedTuple):
    failed: int
    seeds: int
    simulated_s: float
    cpu_s: float
    starts: int
    requests: int
    frames: int

    def __str__(self) -> str:
        hours = self.simulated_s / 3600
        rate = hours / (self.cpu_s / 60) if self.cpu_s else 0.0
        return (
            f"{self.seeds} seeds, {self.failed} failed; {hours:.1f} simulated hours in {self.cpu_s:.1f} s of CPU "
            f"({rate:.1f} h per CPU minute); {self.starts} starts, {self.requests} requests, {self.frames} commits"
        )


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if options.planted:
        return _hunt(options)
    seeds = _seeds(options)
    summary = run_seeds(seeds, options.minutes, options.jobs)
    if len(seeds) > 1 or summary.failed:
        print(summary)
    return 1 if summary.failed else 0


def run_seeds(seeds: list[int], minutes: float, jobs: int = 1) -> Summary:
    """Run all seeds, and print each violation as it is found."""
    failed = starts = requests = frames = 0
    simulated_s = cpu_s = 0.0
    for result, took_s in _results(seeds, minutes, jobs):
        simulated_s += result.seconds
        cpu_s += took_s
        starts += result.starts
        requests += result.requests
        frames += result.frames
        if result.violation is not None:
            failed += 1
            print(replay_line(result, minutes), flush=True)
        elif len(seeds) == 1:
            print(f"seed {result.seed}: nothing found; final state {result.digest}")
    return Summary(failed, len(seeds), simulated_s, cpu_s, starts, requests, frames)


def replay_line(result: Result, minutes: float) -> str:
    length = "" if minutes == MINUTES else f" --minutes {minutes:g}"
    return f"python -m sim {result.seed}{length}   # commit {_commit()}: {result.violation}"


def _results(seeds: list[int], minutes: float, jobs: int) -> Iterator[tuple[Result, float]]:
    if jobs <= 1:
        yield from _run_some(seeds, minutes)
        return
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for some in pool.map(_run_list, chunks, [minutes] * len(chunks)):
            yield from some


def _run_list(seeds: list[int], minutes: float) -> list[tuple[Result, float]]:
    return list(_run_some(seeds, minutes))


def _run_some(seeds: Iterable[int], minutes: float) -> Iterator[tuple[Result, float]]:
    for seed in seeds:
        began = time.process_time()
        result = run(seed, minutes)
        yield result, time.process_time() - began


def _hunt(options: argparse.Namespace) -> int:
    """Run seeds on a copy of the tree with each planted bug, until one finds it."""
    names = planted.names() if options.planted == "all" else [options.planted]
    seeds = _seeds(options) if options.seeds or options.seed is not None else list(range(options.count or 1000))
    missed = 0
    for name in names:
        find = planted.hunt(name, seeds, options.minutes)
        if find is None:
            missed += 1
            print(f"{name:32} NOT FOUND by {len(seeds)} seeds", flush=True)
        else:
            print(f"{name:32} seed {find.seed:<5} {find.violation[:140]}", flush=True)
    print(f"{len(names) - missed} of {len(names)} planted bugs found")
    return 1 if missed else 0


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seed is not None:
        return [options.seed]
    if options.having:
        with_it = (seed for seed in count() if Plan(seed, options.minutes).has(options.having))
        return list(islice(with_it, options.count or 100))
    if options.seeds:
        first, _, last = options.seeds.partition("..")
        return list(range(int(first), int(last or first) + 1))
    fresh = random.Random()
    return [fresh.randrange(1 << 48) for _ in range(options.count or 100)]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sim", description="The deterministic simulator.")
    parser.add_argument("seed", nargs="?", type=int, help="run this one")
    parser.add_argument("--seeds", metavar="A..B", help="run these, both ends included")
    parser.add_argument("--count", type=int, metavar="N", help="run this many random ones (100 if nothing is said)")
    parser.add_argument(
        "--having", choices=SWITCHES, metavar="SWITCH", help="run the first N whose world has this (see sim/plan.py)"
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="simulated minutes per seed (default %(default)g)"
    )
    parser.add_argument("-j", dest="jobs", type=int, default=1, metavar="N", help="processes (default 1)")
    parser.add_argument("--planted", metavar="NAME", help="run on a copy of the tree with this bug; 'all' for each")
    return parser.parse_args(arguments)


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, cwd=Path(__file__).parent, check=False,
    )  # fmt: skip
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
