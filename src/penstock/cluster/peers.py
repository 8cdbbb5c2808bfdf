"""Calls between the processes of one server about themselves: counters, connections, logs.

They are not about a shard, so they have no route. A process that does not answer soon is left out: one that hangs must
not take the metrics of the others with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from penstock import limits
from penstock.errors import PenstockError
from penstock.wire.logs import LogsReply, LogsRequest
from penstock.wire.queue_table import ConnectionsReply

if TYPE_CHECKING:
    from penstock.cluster.link import Link

ROOM = "process"
"""The first part of the names of these methods."""


class ExemplarReport(NamedTuple):
    trace_id: str
    seconds: float
    at_s: float


class HistogramReport(NamedTuple):
    counts: list[int]
    """By bucket."""
    total: float
    exemplars: dict[int, ExemplarReport]
    """By bucket."""


class SampleReport(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class FamilyReport(NamedTuple):
    """A metric family of which the server knows the samples alone."""

    name: str
    text: str
    kind: str
    samples: list[SampleReport]


class MetricsReport(msgspec.Struct):
    """The counters of a process since its start, and its gauges."""

    ready: bool
    requests: list[tuple[str, int, int]]
    """(operation, status, count)"""
    calls: list[tuple[str, str, int]]
    """Of gRPC."""
    traffic: dict[str, int]
    """Messages of the busiest queues."""
    duplicates: int
    histograms: dict[str, HistogramReport]
    connections: dict[str, int]
    """By transport."""
    webhook_attempts: dict[str, int]
    damaged: tuple[int, int]
    written_bytes: int
    families: list[FamilyReport]
    """Of other transports; they add up."""
    usage: list[FamilyReport]
    """CPU, memory and files of the process."""


class RecentCommits(NamedTuple):
    """The commits of the last minutes."""

    counts: list[int]
    """By bucket of their duration."""
    seconds: float


class ShardReport(NamedTuple):
    number: int
    term: int
    is_open: bool
    """It takes writes."""


class NodeReport(NamedTuple):
    """A process as a node."""

    shards_of_store: int
    engine: str
    durability: Literal["memory", "disk", "replicated"]
    http: str
    grpc: str | None
    is_draining: bool
    shards: list[ShardReport]
    """That it serves."""


class ProcessCalls(Protocol):
    """The calls that each process answers about itself. The forms on a link follow from these signatures."""

    def metrics(self) -> MetricsReport: ...
    def node(self) -> NodeReport: ...
    def commits(self) -> RecentCommits: ...
    def connections(self, limit: int) -> ConnectionsReply: ...
    def set_log_levels(self, asked: LogsRequest, actor: str) -> LogsReply: ...


class Peers:
    """The other processes of this server."""

    def __init__(self, number: int, links: Mapping[int, Link]):
        self.number = number
        """Of this process."""
        self._links = links

    @property
    def count(self) -> int:
        """All processes, with this one."""
        return len(self._links) + 1

    @property
    def unreachable(self) -> list[int]:
        """The numbers of the processes to which there is no connection now."""
        return [number for number, link in self._links.items() if not link.is_connected]

    async def ask(self, method: str, *arguments: Any) -> dict[int, Any]:
        """The answers by process. One that cannot be reached or fails is left out."""
        calls = {
            number: link.call(0, f"{ROOM}.{method}", arguments, {}, routed=False)
            for number, link in self._links.items()
            if link.is_connected
        }
        found = await asyncio.gather(*map(_answer, calls.values()))
        return {number: answer for number, answer in zip(calls, found, strict=True) if answer is not None}


async def _answer(call: Any) -> Any:
    try:
        async with asyncio.timeout(limits.PEER_ANSWER_S):
            return await call
    except (TimeoutError, PenstockError):
        return None
