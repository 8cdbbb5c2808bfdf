"""The gRPC server of a node: port, limits, health, reflection, shutdown.

A poller thread of `grpc.aio` wakes the event loop (also uvloop); all handlers run on the loop. A process may have one
such loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from penstock import limits
from penstock.transports.grpc.calls import CallHandlers
from penstock.transports.grpc.connections import ConnectionCounter
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.introspection import add_health, add_reflection
from penstock.transports.grpc.methods import SERVICE, handlers
from penstock.transports.grpc.peers import Peers
from penstock.transports.http.app import HttpApp
from penstock.transports.http.in_process import InProcessHttp

_HEALTH_NOTICE_S = 1.0
"""The time for health watchers to receive NOT_SERVING."""
_LAST_CALLS_S = 0.2
"""The time for calls that arrived while `stop` waited for earlier calls."""

OPTIONS: list[tuple[str, Any]] = [
    # Twice the limit, so that requests up to that size are refused with an error of the contract.
    ("grpc.max_receive_message_length", 2 * limits.REQUEST_BYTES_MAX),
    # The operations bound their replies.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", limits.METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", 2 * limits.METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", limits.CALLS_PER_CONNECTION_MAX),
    # Compressed messages are refused, because a few bytes could expand to gigabytes.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # The metrics count connections with channelz.
    ("grpc.enable_channelz", 1),
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_WAIT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", limits.PING_MS_MIN),
    ("grpc.http2.min_ping_interval_without_data_ms", limits.PING_MS_MIN),
]


class GrpcServer:
    """A server on one port. The constructor binds the port; the server runs from `start` to `stop`."""

    def __init__(self, address: str, credentials: grpc.ServerCredentials | None = None, *, shared: bool = False):
        """With credentials the port has TLS. `shared`: other processes may listen on the port too. Raises OSError if
        the address cannot be bound."""
        options = [*OPTIONS, ("grpc.so_reuseport", int(shared))]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.CALLS_MAX)
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        self._connections = ConnectionCounter()
        self._health: Any = None
        self._edge: GrpcEdge | None = None
        self._calls: CallHandlers | None = None

    async def start(self, app: HttpApp) -> None:
        """Serve the broker of this application, with its metrics and its rules for credentials."""
        app.metrics.count_grpc_connections = self._connections.count
        self._edge = GrpcEdge(app.edge.broker, app.edge.clock, app.metrics, Peers(self.port))
        self._edge.auth = app.auth
        self._calls = CallHandlers(self._edge)
        self._health = await add_health(SERVICE.full_name, self._server)
        if app.auth is None:
            add_reflection(SERVICE.full_name, self._server)  # it has no credentials
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers(self._calls, InProcessHttp(app))),)
        )
        await self._server.start()

    async def drain(self) -> None:
        """Set the health to NOT_SERVING, then end the streams."""
        assert self._edge is not None, "call start first"
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEALTH_NOTICE_S):
                await self._health.enter_graceful_shutdown()
        self._edge.draining.set()

    async def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` for running calls, then close all connections.

        gRPC's own stop is called late and once: it would wait for health watchers, and two concurrent stops crash it.
        Calls that arrive meanwhile are served, because most of them settle delivered messages.
        """
        if self._calls is not None:
            await self._calls.wait_ended(grace_s)
        await self._server.stop(min(grace_s, _LAST_CALLS_S))
        if self._edge is not None:
            await self._edge.wait_detached()
