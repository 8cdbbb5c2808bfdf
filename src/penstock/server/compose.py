"""The composition root: builds every object of a server in one function. No other module imports all of them."""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
from typing import NamedTuple

from penstock.analytics.directory import lake_directory
from penstock.broker.service import Broker
from penstock.broker.vault import Vault
from penstock.clock import Clock, SystemClock
from penstock.engines import open_engine
from penstock.errors import InvalidRequest, Unavailable
from penstock.journal.port import Engine, EngineError
from penstock.logs import get_logger
from penstock.runtime.host import open_shard
from penstock.server.config import ConfigError, Settings
from penstock.server.keyfile import sealing_key
from penstock.server.malloc import MallocTrim
from penstock.transports.http import HttpApp
from penstock.transports.webhooks.deliverer import WebhookDeliverer
from penstock.transports.webhooks.guard import Guard, parse_networks
from penstock.transports.webhooks.lazy_sender import LazySender
from penstock.transports.websocket import WebSockets

_log = get_logger("penstock.server")


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

    async def close(self, grace_s: float = 0.0) -> None:
        """Answer waiting requests, make all writes durable and release the store. Webhook requests get `grace_s`."""
        try:
            self.broker.stop_waiting()
            await self.courier.close(grace_s)
            await self.broker.close()
        finally:
            await self.engine.close()


async def open_node(settings: Settings) -> Node:
    """Raises ConfigError for settings that cannot work, Unavailable if the store cannot be opened as it is now."""
    failed = asyncio.Event()

    def on_failure(reason: str) -> None:
        _log.critical("journal_failed", reason=reason)
        failed.set()

    def on_upkeep_failure(reason: str) -> None:
        _log.error("upkeep_failed", reason=reason)

    if settings.lake:
        _check_lake(settings.lake)
    clock = SystemClock()
    try:
        engine = open_engine(settings.store, data_dir=settings.data_dir, fsync=settings.fsync)
    except InvalidRequest as error:
        raise ConfigError(error.message) from None
    except OSError as error:
        raise ConfigError(f"data_dir: cannot use {settings.data_dir}: {error.strerror or error}") from None
    try:
        node = engine.node_id((clock.now_ms() << 80 | secrets.randbits(80)).to_bytes(16, "big"))
        host = await open_shard(
            engine, 0, clock, node, on_failure=on_failure, on_trouble=on_upkeep_failure, on_round=MallocTrim().trim
        )
    except (EngineError, OSError) as error:
        await engine.close()
        raise Unavailable(f"the store cannot be opened: {error}") from error
    vault = Vault(lambda: sealing_key(settings.store, settings.data_dir))
    broker = Broker(host, secrets.randbits, auto_create=settings.auto_create, vault=vault)
    if settings.lake:
        broker.analytics.use(settings.lake)
    _log.info(
        "store_opened", store=settings.store, data_dir=settings.data_dir, fsync=settings.fsync, replayed=host.replayed
    )
    app = _open_app(settings, broker, clock)
    broker.watch_commits(app.metrics.commit_took)
    guard = Guard(parse_networks(settings.webhook_allow))
    courier = WebhookDeliverer(broker, guard, LazySender(guard), clock)
    app.metrics.webhook_attempts = lambda: courier.outcomes
    return Node(engine, broker, app, courier, clock, failed)


def _open_app(settings: Settings, broker: Broker, clock: Clock) -> HttpApp:
    if settings.dialect:
        # A server without dialects does not load their packages.
        from penstock.transports.dialects import sockets_of, with_dialects

        app = HttpApp(broker, clock, with_dialects(settings.dialect), settings.access)
        protocols = sockets_of(settings.dialect, app.edge)
    else:
        app, protocols = HttpApp(broker, clock, access=settings.access), {}
    app.websockets = WebSockets(broker, clock, app.metrics, app.ask, settings.access, protocols, app.memory)
    return app


def _check_lake(lake: str) -> None:
    try:
        lake_directory(lake)
    except InvalidRequest as error:
        raise ConfigError(f"lake: {error.message}") from None
    missing = [name for name in ("deltalake", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"lake: {' and '.join(missing)} not installed: pip install 'penstock[lake]'")
