"""The gRPC server of a node: its port, the bounds that gRPC keeps for us, health and reflection, and how it ends.

`grpc.aio` has a poller thread of its own that wakes the event loop, also uvloop's; everything of ours runs on the loop.
There may be one such loop in a process.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from penstock import limits
from penstock.clock import Clock
from penstock.transports.grpc.calls import Calls
from penstock.transports.grpc.connections import Connections
from penstock.transports.grpc.edge import Edge
from penstock.transports.grpc.introspection import add_health, add_reflection
from penstock.transports.grpc.methods import SERVICE, handlers
from penstock.transports.grpc.peers import Peers
from penstock.transports.metrics import Metrics

if TYPE_CHECKING:
    from penstock.broker.service import Broker

_TOLD_WITHIN_S = 1.0
"""Those who watch our health get this long to be told that it ends."""
_LAST_CALLS_S = 0.2
"""For what came in while the last calls from before the end were being answered."""

OPTIONS: list[tuple[str, Any]] = [
    # A port that is taken is an error, not a port that is shared.
    ("grpc.so_reuseport", 0),
    # Above what we take, so that it is we who say what is too large, up to twice of it.
    ("grpc.max_receive_message_length", 2 * limits.REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", 2 * limits.GRPC_REPLY_BYTES_MAX),
    ("grpc.max_metadata_size", limits.METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", 2 * limits.METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", limits.CALLS_PER_CONNECTION_MAX),
    # A few bytes that unfold into gigabytes are not taken: messages come as they are, or not at all.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Counts connections for our metrics.
    ("grpc.enable_channelz", 1),
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_WAIT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", limits.PING_MS_MIN),
    ("grpc.http2.min_ping_interval_without_data_ms", limits.PING_MS_MIN),
]


class GrpcServer:
    """One port. Bound when it is made, served from `start` to `stop`."""

    def __init__(self, address: str):
        """Raises OSError if the address cannot be had."""
        self._server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=limits.CALLS_MAX)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        self._connections = Connections()
        self._health: Any = None
        self._edge: Edge | None = None
        self._calls: Calls | None = None

    async def start(self, broker: Broker, clock: Clock, metrics: Metrics) -> None:
        metrics.count_grpc_connections = self._connections.count
        self._edge = Edge(broker, clock, metrics, Peers(self.port))
        self._calls = Calls(self._edge)
        self._health = await add_health(SERVICE.full_name, self._server)
        add_reflection(SERVICE.full_name, self._server)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers(self._calls)),)
        )
        await self._server.start()

    async def drain(self) -> None:
        """Whoever asks for our health, or watches it, is sent elsewhere; then those on streams are told."""
        assert self._edge is not None, "only what was started can be drained"
        with suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_WITHIN_S):
                await self._health.enter_graceful_shutdown()
        self._edge.draining.set()

    async def stop(self, grace_s: float) -> None:
        """Calls that are under way get this long to end by themselves. Then everything is closed.

        gRPC is told late, and once: it would wait for whoever watches our health, and two stops at a time crash it.
        What comes in meanwhile is served: most of it settles what was delivered before.
        """
        if self._calls is not None:
            await self._calls.ended(grace_s)
        await self._server.stop(min(grace_s, _LAST_CALLS_S))
        if self._edge is not None:
            await self._edge.settle()
