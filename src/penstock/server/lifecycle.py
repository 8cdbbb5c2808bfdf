"""A server from its first line to its last: listen, say that it is ready, serve, drain, stop.

A journal that fails while serving ends the process too, with EXIT_JOURNAL_FAILED: memory is then ahead of the disk, and
only a start that reads the disk again may go on.

Draining on SIGTERM or SIGINT, in this order: readiness and health probes are told no; the listening sockets close;
parked long polls are answered empty and streams are told; connections end when their request is answered; the broker
closes, which makes everything durable, leaves a snapshot and releases the journals; the process leaves with 0. A second
signal ends it at once: what was acknowledged is durable, so nothing is lost by that but the answers in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator

import structlog
import uvicorn
import uvloop

from penstock import limits
from penstock.server.compose import Node, open_node
from penstock.server.config import Address, ConfigError, Settings
from penstock.transports.grpc import GrpcServer
from penstock.transports.http.protocol import HttpProtocol

_log = structlog.get_logger("penstock.server")


EXIT_JOURNAL_FAILED = 74


def run(settings: Settings) -> int:
    """Serve until told to stop; returns the exit code. Raises ConfigError or Unavailable if it cannot even start."""
    # Whatever this process creates is nobody else's to read.
    os.umask(0o077)
    # A connection is a file, and as many as may be open are many more than shells allow by default.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # What was imported stays, and what requests leave behind dies by its reference count: cycles are rare here.
    # Looking for them seldom saves a twentieth of the CPU.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    listener = bind(settings.listen_address)
    grpc = None
    try:
        grpc = bind_grpc(settings)
        node = await open_node(settings)
    except BaseException:
        listener.close()
        if grpc is not None:
            await grpc.stop(0)
        raise
    node.courier.deny_own(*listener.getsockname()[:2])
    if grpc is not None and settings.grpc_address is not None:
        node.courier.deny_own(settings.grpc_address.host.replace("localhost", "127.0.0.1"), grpc.port)
    node.courier.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _on_signal, number, stop)
    server = _Server(node, settings)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await _first_of(serving, server.accepting)
        if server.accepting.is_set():
            if grpc is not None:
                await grpc.start(node.broker, node.clock, node.app.metrics)
            _announce(Address(*listener.getsockname()[:2]), settings.grpc_address, grpc)
        await _first_of(serving, stop, node.failed)
        _log.info("draining", grace_s=settings.shutdown_grace_s)
        node.app.drain()
        if grpc is not None:
            await grpc.drain()
        node.courier.stop()
        server.stop_accepting()
        # Without this no connection with a long poll would ever end.
        node.broker.stop_waiting()
        # The journals stay open until the last request has its answer, or its time is up.
        await asyncio.gather(serving, *([grpc.stop(settings.shutdown_grace_s)] if grpc is not None else []))
        async with asyncio.timeout(settings.shutdown_grace_s):
            # Half of the time for the endpoints of webhooks, half for what must not be cut short.
            await node.close(settings.shutdown_grace_s / 2)
    except TimeoutError:
        _log.error("not everything could be closed in time")
    _log.info("stopped")
    return EXIT_JOURNAL_FAILED if node.failed.is_set() else 0


def bind(address: Address, name: str = "listen") -> socket.socket:
    """A listening socket, before anything else is opened: a taken port must not cost a recovery."""
    # Whatever a hosts file says, the name means this machine.
    host = "127.0.0.1" if address.host == "localhost" else address.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, address.port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"{name}: cannot listen on {address}: {error.strerror or error}") from None
    return listener


def bind_grpc(settings: Settings) -> GrpcServer | None:
    """The same for gRPC; None where it is off."""
    address = settings.grpc_address
    if address is None:
        return None
    try:
        # Only to see whether it can be had: gRPC itself would not say why not, and fill the log.
        bind(address, "grpc").close()
    except ConfigError:
        if settings.grpc != "auto":
            raise
        # Nobody asked for this port, so a second server on a machine must not fail for it. The ready line says which.
        _log.warning("the default port of gRPC is taken, using another", port=address.port)
        address = address._replace(port=0)
    try:
        return GrpcServer(str(address._replace(host="127.0.0.1") if address.host == "localhost" else address))
    except OSError as error:
        raise ConfigError(f"grpc: cannot listen on {address}: {error}") from None


class _Server(uvicorn.Server):
    """Uvicorn inside our own process: signals are ours, and we want to know when it accepts."""

    def __init__(self, node: Node, settings: Settings):
        super().__init__(
            uvicorn.Config(
                node.app,  # type: ignore[arg-type] # no ASGI application: only HttpProtocol asks it
                http=HttpProtocol,
                ws="none",  # HttpProtocol opens WebSockets itself
                lifespan="off",
                interface="asgi3",
                access_log=False,
                log_config=None,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=limits.KEEP_ALIVE_MS // 1000,
                timeout_graceful_shutdown=settings.shutdown_grace_s,
            )
        )
        self.accepting = asyncio.Event()
        metrics = node.app.metrics
        metrics.count_connections = lambda: len(self.server_state.connections) - metrics.count_websockets()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_accepting(self) -> None:
        """Close the door now; connections that are in end when their request is answered."""
        for listening in self.servers:
            listening.close()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


async def _first_of(serving: asyncio.Task[None], *events: asyncio.Event) -> None:
    """Waits for one of the events, or for the server to end, which it only does early if it failed."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait((serving, *waiting), return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


def _announce(http: Address, grpc: Address | None, server: GrpcServer | None) -> None:
    """The one line on standard output. Programs that start a server wait for it."""
    served = "-" if grpc is None or server is None else grpc._replace(port=server.port)
    sys.stdout.write(f"ready http=http://{http} grpc={served}\n")
    sys.stdout.flush()


def _on_signal(number: int, stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(128 + number)
    stop.set()
