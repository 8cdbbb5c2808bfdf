"""Slices of work on one server that alternate between modes, compared by CPU time per operation."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.dashboard.server import BenchServer

ROUNDS = 300
PER_SLICE = 40
"""Operations of each kind: a slice is so short that the machine is as busy in the next one."""
RESAMPLED = 1_000


class Cost(NamedTuple):
    """Microseconds of CPU per operation."""

    publish: float
    lease_ack: float


def work(server: BenchServer, operations: int, between: Callable[[], object] = lambda: None) -> Cost:
    """One client that publishes single messages, then leases and acks them. `between` runs after each operation."""
    spent = []
    for act in (_publish, _lease_ack):
        before = server.cpu_s()
        for number in range(operations):
            act(server, number)
            between()
        spent.append((server.cpu_s() - before) / operations * 1e6)
    return Cost(*spent)


def _publish(server: BenchServer, number: int) -> None:
    server.ask("POST", "/v1/publish", {"queue": "load", "messages": [{"payload": {"n": number}}]})


def _lease_ack(server: BenchServer, _: int) -> None:
    (message,) = json.loads(server.ask("POST", "/v1/lease", {"queue": "load"}))["messages"]
    server.ask("POST", "/v1/ack", {"receipts": [message["receipt"]]})


def compare(modes: dict[str, Callable[[], Cost]], rounds: int) -> None:
    """Rounds in which every mode has one short slice, each round in the opposite order of the one before it.

    Prints the mean cost of each mode, and its ratio to the first mode: of the sums with the range in which 90 % of the
    resampled runs are, and of the medians of the slices.
    """
    taken: dict[str, list[Cost]] = {name: [] for name in modes}
    for measure in modes.values():
        measure()
    for number in range(rounds):
        for name in list(modes) if number % 2 else reversed(modes):
            taken[name].append(modes[name]())
    first = next(iter(modes))
    for kind in Cost._fields:
        bases = [getattr(cost, kind) for cost in taken[first]]
        for name, costs in taken.items():
            each = [getattr(cost, kind) for cost in costs]
            low, high = _resampled(list(zip(bases, each, strict=True)))
            print(
                f"{kind.replace('_', '+'):10} {name:16} {sum(each) / len(each):8.1f} us CPU"
                f"  sums {sum(bases) / sum(each):.3f}x ({low:.3f} to {high:.3f})"
                f"  medians {statistics.median(bases) / statistics.median(each):.3f}x"
            )


def _resampled(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    """The range of 90 % of the ratios of sums, over runs drawn from these rounds."""
    dice, ratios = random.Random(1), []
    for _ in range(RESAMPLED):
        drawn = dice.choices(rounds, k=len(rounds))
        ratios.append(sum(base for base, _ in drawn) / sum(other for _, other in drawn))
    ratios.sort()
    return ratios[RESAMPLED // 20], ratios[-RESAMPLED // 20]
