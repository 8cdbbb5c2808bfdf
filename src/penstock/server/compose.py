"""The composition root: builds every object of a server in one function. No other module imports all of them."""

from __future__ import annotations

import asyncio
import errno
import importlib
import importlib.util
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.analytics.directory import lake_directory
from penstock.broker.service import Broker
from penstock.clock import Clock, SystemClock
from penstock.dashboard import DashboardSite, SiteOptions
from penstock.encryption.master_keys import EncryptionKeyError
from penstock.engines import open_engine, without_password
from penstock.errors import InvalidRequest, Unavailable
from penstock.journal.port import Engine, EngineError, Failed
from penstock.logs import get_logger
from penstock.runtime.loop import ShardLoop
from penstock.server.audit_log import NAME as AUDIT_NAME
from penstock.server.audit_log import AuditLog
from penstock.server.auth import open_authenticator, watch_credentials
from penstock.server.config import ConfigError, DiskFailed, Settings, StoreRefused
from penstock.server.log_levels import LogLevels, watch_slow_operations
from penstock.server.master_key_file import read_master_keys
from penstock.server.member import Links, Member
from penstock.server.shards import count_shards, open_shards
from penstock.server.storage import DataDirectory
from penstock.transports.auth import Authenticator
from penstock.transports.http import HttpApp
from penstock.transports.http.edge import Edge
from penstock.transports.webhooks.deliverer import WebhookDeliverer
from penstock.transports.webhooks.guard import Guard, parse_networks
from penstock.transports.webhooks.lazy_sender import LazySender, SenderProtocol
from penstock.transports.websocket import WebSockets
from penstock.transports.websocket.connection import ProtocolSpec
from penstock.transports.websocket.gate import WebSocketGate

if TYPE_CHECKING:
    from penstock.server.tracing import ServerTracing

_log = get_logger("penstock.server")


WATCH_STORE_S = 1.0
"""Seconds between two looks whether the data directory is there."""


class Node(NamedTuple):
    """An open engine and broker with the HTTP application and the webhook courier, ready to be served."""

    engine: Engine
    broker: Broker
    app: HttpApp
    courier: WebhookDeliverer
    clock: Clock
    failed: asyncio.Event
    """Set after the outcome of a journal write became unknown. The process must end; a restart reads the journal
    again."""

    watching: Sequence[asyncio.Future[None]]
    audit: AuditLog | None
    tracing: ServerTracing | None
    links: Links | None
    """To other processes that serve the same store."""
    loops: Sequence[ShardLoop]

    @property
    def taken_over(self) -> bool:
        """True if the process must end because another owner has one of its shards."""
        return any(loop.taken_over for loop in self.loops)

    async def close(self, grace_s: float = 0.0) -> None:
        """Answer waiting requests, make all writes durable and release the store. Webhook requests get `grace_s`."""
        for each in self.watching:
            each.cancel()
        try:
            self.broker.stop_waiting()
            await self.courier.close(grace_s)
            if self.links is not None:
                await self.links.close()
            await self.broker.close()
            if self.audit is not None:
                await self.audit.close()
            if self.tracing is not None:
                await self.tracing.close()
        finally:
            await self.engine.close()


class OpenStore(NamedTuple):
    engine: Engine
    id: bytes
    shards: int
    """How many the store has."""


async def open_store(settings: Settings, clock: Clock, process: int | None = None) -> OpenStore:
    """Raises ConfigError, StoreRefused or DiskFailed. `process`: the number of this one, if several share the store."""
    try:
        engine = open_engine(settings.store, data_dir=settings.data_dir, fsync=settings.fsync, process=process)
    except InvalidRequest as error:
        raise ConfigError(error.message) from None
    except Unavailable as error:
        raise StoreRefused(error.message) from None
    except OSError as error:
        text = f"data_dir: cannot use {settings.data_dir}: {error.strerror or error}"
        raise (DiskFailed(text) if error.errno == errno.EIO else ConfigError(text)) from None
    try:
        await engine.check()
        node = engine.node_id((clock.now_ms() << 80 | secrets.randbits(80)).to_bytes(16, "big"))
        return OpenStore(engine, node, count_shards(engine, settings))
    except (EngineError, OSError) as error:
        await engine.close()
        raise _store_refused(error) from error
    except ConfigError:
        await engine.close()
        raise


def _store_refused(error: Exception) -> Unavailable:
    kind = DiskFailed if isinstance(error, Failed | OSError) else StoreRefused
    reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    return kind(f"the store cannot be opened: {reason}")


async def open_node(settings: Settings, member: Member | None = None) -> Node:
    """Raises ConfigError for settings that cannot work; StoreRefused or DiskFailed if the store cannot be opened.

    `member`: this process is one of several that divide the shards among them.
    """
    failed = asyncio.Event()

    def on_failure(reason: str) -> None:
        _log.critical("journal_failed", reason=reason)
        failed.set()

    if settings.lake:
        _check_lake(settings.lake)
    if settings.trace:
        _check_tracing()
    try:
        masters = read_master_keys(settings.encryption_key) if settings.encryption_key else None
    except EncryptionKeyError as error:
        raise ConfigError(error.message) from None
    clock = SystemClock()
    engine, node, count = await open_store(settings, clock, None if member is None else member.number)
    try:
        shards = await open_shards(engine, node, count, settings, clock, on_failure, masters, member)
    except EncryptionKeyError as error:
        await engine.close()
        raise ConfigError(error.message) from None
    except (EngineError, OSError) as error:
        await engine.close()
        raise _store_refused(error) from error
    except BaseException:
        await engine.close()
        raise
    broker = shards.broker
    if settings.lake:
        broker.analytics.use(settings.lake)
    _log.info(
        "store_opened", store=without_password(settings.store),
        data_dir=settings.data_dir, fsync=settings.fsync, shards=count,
        replayed=shards.replayed,
    )  # fmt: skip
    loops = [host.loop for host in shards.hosts]
    watching = [asyncio.ensure_future(_watch_store(engine, loops))]
    audit: AuditLog | None = None
    try:
        if settings.auth == "keys" and not settings.store.startswith("memory:"):
            audit = AuditLog(Path(settings.data_dir) / AUDIT_NAME, clock)
        auth = await open_authenticator(settings, broker, clock, audit) if settings.auth == "keys" else None
    except BaseException:
        watching[0].cancel()
        await broker.close()
        await engine.close()
        raise
    if auth is not None:
        watching.append(asyncio.ensure_future(watch_credentials(auth, clock)))
    app = _open_app(settings, broker, clock, auth)
    app.edge.audit = audit
    app.edge.log_levels = LogLevels(app, app.request_log, settings.log_level)
    watching.append(asyncio.ensure_future(watch_slow_operations(app)))
    if settings.store == "local:":
        app.edge.storage = DataDirectory(settings.data_dir, settings.fsync, clock).measure
    broker.watch_commits(app.metrics.commit_seconds.observe)
    guard = Guard(parse_networks(settings.webhook_allow))
    sender: SenderProtocol = LazySender(guard)
    tracing = _open_tracing(settings, app)
    if tracing is not None:
        broker.watch_commits(tracing.committed)
        sender = tracing.sending(sender)
    courier = WebhookDeliverer(broker, guard, sender, clock)
    app.metrics.webhook_attempts = lambda: courier.outcomes
    if shards.links is not None:
        await shards.links.start()
    return Node(engine, broker, app, courier, clock, failed, watching, audit, tracing, shards.links, loops)


def _open_tracing(settings: Settings, app: HttpApp) -> ServerTracing | None:
    if not settings.trace:
        return None
    from penstock.server.tracing import open_tracing

    tracing = open_tracing(settings.trace, settings.trace_sample, app.metrics)
    app.observe("tracing", tracing.observe)
    return tracing


async def _watch_store(engine: Engine, loops: Sequence[ShardLoop]) -> None:
    """Suspend the shards while the data directory is missing: what they wrote would be lost with the process."""
    while True:
        reason = await asyncio.to_thread(engine.missing)
        if reason is not None and loops[0].store_missing is None:
            _log.critical("data_directory_missing", reason=reason)
        elif reason is None and loops[0].store_missing is not None:
            _log.info("data_directory_found")
        for loop in loops:
            loop.store_missing = reason
        await asyncio.sleep(WATCH_STORE_S)


def _open_app(settings: Settings, broker: Broker, clock: Clock, auth: Authenticator | None) -> HttpApp:
    protocols_of: Callable[[Edge], Mapping[str, ProtocolSpec]]
    if settings.dialect:
        # A server without dialects does not load their packages.
        from penstock.transports.dialects import sockets_of, with_dialects

        app = HttpApp(broker, clock, with_dialects(settings.dialect), settings.access)
        protocols_of = partial(sockets_of, settings.dialect)
    else:
        app, protocols_of = HttpApp(broker, clock, access=settings.access), lambda _: {}
    app.auth = auth
    app.site = DashboardSite(
        SiteOptions(
            settings.environment,
            settings.environment_color,
            frozenset(map(str.lower, settings.mask)),
            secure=bool(settings.tls_cert),
        )
    )
    if auth is not None:
        app.metrics.collectors.append(auth.quotas_families)
    gate = None if auth is None else WebSocketGate(app, auth, protocols_of)
    app.websockets = WebSockets(
        broker, clock, app.metrics, app.ask, settings.access, protocols_of(app.edge), app.memory, gate
    )
    return app


def _check_tracing() -> None:
    """A server without tracing does not load OpenTelemetry."""
    try:
        for name in ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "penstock.server.tracing"):
            importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"trace: {error.name} is not installed: pip install 'penstock[otel]'") from None


def _check_lake(lake: str) -> None:
    try:
        lake_directory(lake)
    except InvalidRequest as error:
        raise ConfigError(f"lake: {error.message}") from None
    missing = [name for name in ("deltalake", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"lake: {' and '.join(missing)} not installed: pip install 'penstock[lake]'")
