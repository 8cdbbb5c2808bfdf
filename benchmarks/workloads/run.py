"""The arguments of every workload: rounds, peers, and the making of its rows."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks.peers import Peer, started
from benchmarks.report import Row, failure, figure
from benchmarks.rounds import Pace
from benchmarks.stats import Spread, ratio

_queue_numbers = itertools.count(1)


class Run:
    """One invocation of the suite, with the versions of its peers."""

    def __init__(self, *, quick: bool, only: frozenset[str] | None = None):
        self.quick = quick
        self.pace = Pace.of(quick=quick)
        self.versions: dict[str, str] = {}
        self._only = only

    def wants(self, name: str) -> bool:
        return self._only is None or name in self._only

    @asynccontextmanager
    async def peers(self, workload: str, names: Sequence[str]) -> AsyncIterator[tuple[dict[str, Peer], list[Row]]]:
        """The chosen peers of `names` that run, and a row for each chosen peer that does not."""
        chosen = [name for name in names if self.wants(name)]
        with data_directory() as directory:
            async with started(chosen, directory) as (running, reasons):
                for peer in running.values():
                    self.versions |= peer.versions()
                yield running, failures(workload, reasons)


@contextmanager
def data_directory() -> Iterator[Path]:
    """Removed afterwards with all files of the servers. Other users may enter it: a peer may run as another user."""
    with tempfile.TemporaryDirectory(prefix="penstock-benchmarks-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o711)
        yield directory


def new_queue() -> str:
    """A name that was not used before: no turn sees messages of another turn."""
    return f"bench-{next(_queue_numbers)}"


def failures(workload: str, reasons: Mapping[str, str]) -> list[Row]:
    return [failure(workload, system, reason) for system, reason in reasons.items()]


def comparison(
    workload: str,
    name: str,
    unit: str,
    values: Mapping[str, Sequence[float]],
    peers: Mapping[str, Peer],
    note: str = "",
) -> list[Row]:
    """The figures of each, then the ratios of Penstock to each peer; `note` belongs to the ratios."""
    rows = [
        figure(workload, name, system, unit, Spread.of(each), peers[system].promise) for system, each in values.items()
    ]
    for ours, theirs in itertools.product(values, values):
        if ours.startswith("penstock") and not theirs.startswith("penstock"):
            quotient = ratio(values[ours], values[theirs])
            rows.append(figure(workload, f"{name} ratio", f"{ours} / {theirs}", "x", quotient, note))
    return rows
