"""The life cycle of a server process: bind, open, announce readiness, serve, drain, stop.

A journal failure also ends the process, with EXIT_DISK_FAILED: the state in memory is then ahead of the disk, and
only a restart, which reads the journal again, may continue.

SIGTERM or SIGINT drains the server in this order: readiness and health probes fail; the listening sockets close;
waiting long polls get an empty reply and streams a closing frame; connections close after their reply; the broker
closes, which makes all writes durable, writes a snapshot and releases the journals; the process exits with 0. A second
signal ends the process at once: acknowledged writes are durable, only replies in flight are lost.
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
from collections.abc import Callable, Iterator

import structlog
import uvicorn
import uvloop

from penstock import limits
from penstock.server.compose import Node, open_node
from penstock.server.config import GRPC_DEFAULT, Address, ConfigError, Settings
from penstock.server.member import Member
from penstock.server.terminal import EXIT_DISK_FAILED, EXIT_TAKEN_OVER
from penstock.server.tls import ServerTls
from penstock.transports.grpc import GrpcServer
from penstock.transports.http.protocol import HttpProtocol

WATCH_CERTIFICATES_S = 5.0
"""Seconds between two looks whether the certificate files changed."""

_log = structlog.get_logger("penstock.server")


def run(
    settings: Settings,
    member: Member | None = None,
    on_ready: Callable[[Address, Address | None, str], None] | None = None,
    watch: Callable[[Callable[[], None]], None] = lambda _: None,
) -> int:
    """Serve until a signal arrives; return the exit code. Raises ConfigError or Unavailable if the start fails.

    `member`: this process is one of several. `on_ready` is called with the addresses of HTTP and gRPC when requests are
    accepted; by default it prints the ready line. `watch` is called with a function that stops the server.
    """
    # Files that this process creates are private to its user.
    os.umask(0o077)
    # Each connection needs a file descriptor; the default soft limit of shells is far below the connection limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    gc.set_threshold(*limits.GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, member, on_ready or announce, watch))


async def _serve(
    settings: Settings,
    member: Member | None,
    on_ready: Callable[[Address, Address | None, str], None],
    watch: Callable[[Callable[[], None]], None],
) -> int:
    tls = _open_tls(settings)
    listener = bind(settings.listen_address) if member is None else member.listener
    grpc = None
    try:
        grpc = bind_grpc(settings, tls) if member is None else _share_grpc(settings, tls, member.grpc_port)
        node = await open_node(settings, member)
    except BaseException:
        listener.close()
        if grpc is not None:
            await grpc.stop(0)
        raise
    if tls is not None and node.app.auth is not None:
        node.app.auth.is_revoked = tls.is_revoked
    node.courier.deny_own(*listener.getsockname()[:2])
    if grpc is not None and settings.grpc_address is not None:
        node.courier.deny_own(settings.grpc_address.host.replace("localhost", "127.0.0.1"), grpc.port)
    node.courier.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _on_signal, number, stop)
    watch(stop.set)
    server = _Server(node, settings, tls)
    watching = asyncio.create_task(_watch_certificates(tls)) if tls is not None else None
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await _first_of(serving, server.accepting)
        if server.accepting.is_set():
            if grpc is not None:
                await grpc.start(node.app)
            served = None if grpc is None else (settings.grpc_address or GRPC_DEFAULT)._replace(port=grpc.port)
            address, scheme = Address(*listener.getsockname()[:2]), "https" if tls else "http"
            node.state.http = f"{scheme}://{address}"
            node.state.grpc = None if served is None else f"{'grpcs' if tls else 'grpc'}://{served}"
            on_ready(address, served, scheme)
        await _first_of(serving, stop, node.failed)
        _log.info("drain_started", grace_s=settings.shutdown_grace_s)
        node.app.drain()
        if grpc is not None:
            await grpc.drain()
        node.courier.stop()
        server.stop_accepting()
        # Connections close after their reply, so long polls must be answered now.
        node.broker.stop_waiting()
        # The journals stay open until the last request is answered or the grace period has passed.
        await asyncio.gather(serving, *([grpc.stop(settings.shutdown_grace_s)] if grpc is not None else []))
        async with asyncio.timeout(settings.shutdown_grace_s):
            # Webhook endpoints get half of the grace period; closing the broker gets the rest.
            await node.close(settings.shutdown_grace_s / 2)
    except TimeoutError:
        _log.error("shutdown_timed_out")
    if watching is not None:
        watching.cancel()
    _log.info("server_stopped")
    if node.taken_over:
        return EXIT_TAKEN_OVER
    return EXIT_DISK_FAILED if node.failed.is_set() else 0


def _open_tls(settings: Settings) -> ServerTls | None:
    if not settings.tls_cert:
        return None
    return ServerTls(settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.tls_client_crl)


def bind(address: Address, name: str = "listen") -> socket.socket:
    """Bind the listening socket. The caller binds before it opens the store: a taken port must not cost a recovery."""
    # localhost means the loopback address, even if a hosts file says otherwise.
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


async def _watch_certificates(tls: ServerTls) -> None:
    """Load certificates that changed: at SIGHUP, and every few seconds, because renewals often send no signal."""
    hang_up = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up.set)
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WATCH_CERTIFICATES_S):
                await hang_up.wait()
        hang_up.clear()
        await asyncio.to_thread(tls.reload)


def bind_grpc(settings: Settings, tls: ServerTls | None = None) -> GrpcServer | None:
    """Bind the gRPC listener; None if gRPC is off."""
    address = settings.grpc_address
    if address is None:
        return None
    try:
        # This socket only tests the address: gRPC would not report the reason of a failure, and would fill the log.
        bind(address, "grpc").close()
    except ConfigError:
        if settings.grpc != "auto":
            raise
        # The default port was not requested, so a second server on a machine uses a free one; the ready line names it.
        _log.warning("grpc_default_port_taken", port=address.port)
        address = address._replace(port=0)
    try:
        host = address._replace(host="127.0.0.1") if address.host == "localhost" else address
        return GrpcServer(str(host), None if tls is None else tls.grpc_credentials())
    except OSError as error:
        raise ConfigError(f"grpc: cannot listen on {address}: {error}") from None


def _share_grpc(settings: Settings, tls: ServerTls | None, port: int) -> GrpcServer | None:
    """Listen on a port that other processes of this server listen on too."""
    address = settings.grpc_address
    if address is None:
        return None
    host = address._replace(host="127.0.0.1" if address.host == "localhost" else address.host, port=port)
    return GrpcServer(str(host), None if tls is None else tls.grpc_credentials(), shared=True)


class _Server(uvicorn.Server):
    """A Uvicorn server that leaves signals to this module and sets `accepting` when its sockets accept."""

    def __init__(self, node: Node, settings: Settings, tls: ServerTls | None):
        super().__init__(
            uvicorn.Config(
                node.app,  # type: ignore[arg-type] # not an ASGI application: only HttpProtocol calls it
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
        if tls is not None:
            self.config.load()
            self.config.ssl = tls.context
        self.accepting = asyncio.Event()
        metrics = node.app.metrics
        node.app.edge.list_connections = lambda: [each.describe() for each in self.server_state.connections]  # type: ignore[union-attr]
        metrics.count_connections = lambda: len(self.server_state.connections) - metrics.count_websockets()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections close after their reply."""
        for listening in self.servers:
            listening.close()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


async def _first_of(serving: asyncio.Task[None], *events: asyncio.Event) -> None:
    """Wait for one of the events or for the server task, which ends early only if it failed."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait((serving, *waiting), return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


def announce(http: Address, grpc: Address | None, scheme: str) -> None:
    """Print the ready line to standard output. Programs that start a server wait for it."""
    sys.stdout.write(f"ready http={scheme}://{http} grpc={grpc or '-'}\n")
    sys.stdout.flush()


def _on_signal(number: int, stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(128 + number)
    stop.set()
