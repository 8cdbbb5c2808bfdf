"""The shards that this process serves, opened together, and the facade over them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from penstock.broker.confirm import Confirmations
from penstock.broker.router import routed_over
from penstock.broker.series import MemoryBlocks
from penstock.broker.service import Broker
from penstock.broker.vault import Vault
from penstock.clock import Clock
from penstock.encryption.master_keys import MasterKeys
from penstock.journal.port import Engine
from penstock.logs import get_logger
from penstock.runtime.host import ShardHost, open_shard
from penstock.runtime.node_memory import NodeMemory
from penstock.server.config import ConfigError, Settings
from penstock.server.keyfile import WEBHOOK_KEY_NAME, private_key
from penstock.server.malloc import MallocTrim
from penstock.server.master_key_file import read_master_keys
from penstock.server.member import Links, Member
from penstock.server.series_files import SeriesFiles

_log = get_logger("penstock.server")


class OpenShards(NamedTuple):
    hosts: list[ShardHost]
    broker: Broker
    """The facade: of the one shard, or routed over all."""
    links: Links | None
    """To the other processes, not started."""

    @property
    def replayed(self) -> int:
        return sum(host.replayed for host in self.hosts)


def count_shards(engine: Engine, settings: Settings) -> int:
    """The number of shards of the store. Raises ConfigError if the settings name another one."""
    count = engine.shard_count(settings.shards or settings.processes)
    if settings.shards not in (0, count):
        raise ConfigError(
            f"shards: the store has {count}, not {settings.shards}; the number is fixed when a store is created, so "
            f"leave it out or give {count}"
        )
    return count


async def open_shards(
    engine: Engine, node: bytes, count: int, settings: Settings, clock: Clock, on_failure: Callable[[str], None],
    masters: MasterKeys | None = None, member: Member | None = None,
) -> OpenShards:  # fmt: skip
    """Those of this process, if it is a member of several; otherwise all. Raises as `open_shard` does; then no shard is
    open."""
    memory = NodeMemory()
    numbers = range(count) if member is None else member.shards_of(count)
    opening = [_open(engine, node, number, clock, on_failure, masters, memory) for number in numbers]
    opened = await asyncio.gather(*opening, return_exceptions=True)
    errors = [each for each in opened if isinstance(each, BaseException)]
    hosts = [each for each in opened if isinstance(each, ShardHost)]
    if errors:
        await asyncio.gather(*(host.close(final_snapshot=False) for host in hosts), return_exceptions=True)
        raise errors[0]
    vault = Vault(lambda: private_key(WEBHOOK_KEY_NAME, settings.store, settings.data_dir))
    confirmations = Confirmations(secrets.token_bytes(32) if member is None else member.confirm_key)
    brokers = [
        Broker(
            host, secrets.randbits, auto_create=settings.auto_create, vault=vault, encrypt_all=settings.encrypt_all,
            shards=count, confirmations=confirmations,
        )
        for host in hosts
    ]  # fmt: skip
    for broker in brokers if masters is not None else ():
        broker.erasure.read_masters = partial(read_master_keys, settings.encryption_key)
    await asyncio.gather(*(_start_series(broker, host, settings) for broker, host in zip(brokers, hosts, strict=True)))
    if count == 1:
        return OpenShards(hosts, brokers[0], None)
    # Transports know the rooms and their methods, which both facades have.
    if member is None:
        return OpenShards(hosts, cast(Broker, routed_over(brokers, clock.now_ms)), None)
    links = Links(member)
    return OpenShards(hosts, cast(Broker, links.facade(brokers, count, clock.now_ms)), links)


async def _open(
    engine: Engine, node: bytes, number: int, clock: Clock, on_failure: Callable[[str], None],
    masters: MasterKeys | None, memory: NodeMemory,
) -> ShardHost:  # fmt: skip
    def on_upkeep_failure(reason: str) -> None:
        _log.error("upkeep_failed", reason=reason, shard=number)

    def on_damage(queue: str, partition: int, first: int, stop: int, problem: str) -> None:
        _log.error("messages_damaged", queue=queue, partition=partition, first=first, stop=stop, problem=problem)

    host = await open_shard(
        engine, number, clock, node, on_failure=on_failure, on_problem=on_upkeep_failure, on_round=MallocTrim().trim,
        masters=masters, memory=memory,
    )  # fmt: skip
    host.loop.on_damage = on_damage
    return host


async def _start_series(broker: Broker, host: ShardHost, settings: Settings) -> None:
    name = f"series-{host.number}" if host.number else "series"
    await broker.series.start(
        SeriesFiles(Path(settings.data_dir) / name) if settings.store == "local:" else MemoryBlocks()
    )
