"""The peers by name, and their start and stop for a workload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.peers.beanstalkd import Beanstalkd
from benchmarks.peers.nats import Nats
from benchmarks.peers.penstock_grpc import PenstockGrpc
from benchmarks.peers.penstock_http import PenstockHttp
from benchmarks.peers.penstock_sdk import PenstockSdk
from benchmarks.peers.port import NotInstalled, Peer
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.rabbitmq import RabbitMq
from benchmarks.peers.valkey import Valkey
from benchmarks.rounds import describe

__all__ = ["PEERS", "NotInstalled", "Peer", "started"]

PEERS: dict[str, Callable[[], Peer]] = {
    "penstock-http": lambda: PenstockHttp(ack_in_lease=False),
    "penstock-http-ack-in-lease": lambda: PenstockHttp(ack_in_lease=True),
    "penstock-sdk": lambda: PenstockSdk(batches=False),
    "penstock-sdk-batches": lambda: PenstockSdk(batches=True),
    "penstock-sdk-grpc": lambda: PenstockSdk(batches=False, grpc=True),
    "penstock-sdk-batches-grpc": lambda: PenstockSdk(batches=True, grpc=True),
    "penstock-grpc": PenstockGrpc,
    "valkey-always": lambda: Valkey("always"),
    "valkey-always-two-calls": lambda: Valkey("always", two_calls=True),
    "valkey-everysec": lambda: Valkey("everysec"),
    "nats": lambda: Nats(sync_always=False),
    "nats-always": lambda: Nats(sync_always=True),
    "postgres": Postgres,
    "rabbitmq": RabbitMq,
    "beanstalkd": Beanstalkd,
}

START_SECONDS_MAX = 150.0


@asynccontextmanager
async def started(names: Sequence[str], directory: Path) -> AsyncIterator[tuple[dict[str, Peer], dict[str, str]]]:
    """The running peers, and the reason for each peer that does not run. All are stopped at the end."""
    running: dict[str, Peer] = {}
    reasons: dict[str, str] = {}
    try:
        for name in names:
            home = directory / name
            home.mkdir()
            peer = PEERS[name]()
            try:
                await asyncio.wait_for(peer.start(home), START_SECONDS_MAX)
            except NotInstalled as missing:
                reasons[name] = str(missing)
            except Exception as error:
                reasons[name] = describe(error)
                await peer.stop()
            else:
                running[name] = peer
        yield running, reasons
    finally:
        for peer in running.values():
            await peer.stop()
