"""Several shards behind one facade: the shard of each call, and one answer where a call concerns several shards.

`RoutedBroker` has the rooms of `Broker`. The table `ROUTES` (`routes.py`) says for each method which shards it
concerns: that of a queue, those of receipts, all of them, or the meta shard. A method without a row cannot be called.
Shards know nothing of each other: what must happen together happens on one shard, or is refused as `cross_shard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any

from penstock.broker.analytics import Analytics
from penstock.broker.routes import ROUTES
from penstock.broker.routing import Arguments, Options, ShardCalls
from penstock.broker.service import Broker
from penstock.ids import QueuePath
from penstock.pending import value_of
from penstock.placement import BY_QUEUE, home_of, shard_of


class LocalShard:
    """A shard that this process serves."""

    is_here = True

    def __init__(self, number: int, broker: Broker):
        self.number = number
        self.broker = broker
        self._methods: dict[str, Callable[..., Any]] = {}

    def call(self, method: str, arguments: Arguments, options: Options) -> Any:
        found = self._methods.get(method)
        if found is None:
            found = self._methods[method] = attrgetter(method)(self.broker)
        return found(*arguments, **options)

    def route(self, method: str, arguments: Arguments, options: Options) -> Any:  # noqa: ARG002
        raise AssertionError(f"{method}: the router of this process makes the calls to its own shards")


class Router:
    """Knows the shards, and which of them a queue lives on.

    The home of a queue knows its shard, so a call about a queue whose home another process serves is routed there.
    """

    def __init__(self, shards: Sequence[ShardCalls]):
        self._shards = shards
        self.count = len(shards)
        self.numbers = range(self.count)
        self.asked: LocalShard | None = None
        """The shard of this process that was asked last: the one whose commit `commit_now` is about."""
        self._changing: dict[str, _Change] = {}
        self.names = asyncio.Lock()
        """Held by the process of the meta shard while a schedule is created: its name must be new on all shards."""

    def is_here(self, shard: int) -> bool:
        return self._shards[shard].is_here

    def call(self, shard: int, method: str, arguments: Arguments, options: Options) -> Any:
        """Call a method of this shard's facade."""
        asked = self._shards[shard]
        if isinstance(asked, LocalShard):
            self.asked = asked
        return asked.call(method, arguments, options)

    def route(self, shard: int, method: str, arguments: Arguments, options: Options) -> Any:
        """Make a call by its route in the process of this shard, which is another one."""
        return self._shards[shard].route(method, arguments, options)

    def everywhere(self, method: str, arguments: Arguments, options: Options) -> list[Any]:
        """Call a method of all shards."""
        return [self.call(shard, method, arguments, options) for shard in self.numbers]

    # -- queues -------------------------------------------------------------------------------------------------------

    def home_of(self, path: str) -> int:
        return home_of(path, self.count)

    def has_home(self, path: str) -> bool:
        """True if this process serves the home of the queue."""
        return self._shards[home_of(path, self.count)].is_here

    def shard_of(self, path: str) -> int:
        """The shard of a queue whose home is here, or the one on which it would be created."""
        home = home_of(path, self.count)
        return self._placed(path, home, self.call(home, "queues.placement", (path,), {}))

    def _placed(self, path: str, home: int, placement: str | None) -> int:
        if placement is None or placement == BY_QUEUE:
            return home
        return shard_of(path, placement, self.count)

    def here(self, path: str) -> int | None:
        """The shard of a queue, if this process serves its home and that shard, and the queue is not created by half.
        None: `locate` finds it."""
        if not self.has_home(path):
            return None
        home, shard = home_of(path, self.count), self.shard_of(path)
        if shard == home:
            return home
        if not self._shards[shard].is_here or self.call(shard, "queues.placement", (path,), {}) is None:
            return None
        return shard

    async def locate(self, path: str) -> int:
        """The shard of a queue, wherever its home is."""
        home = home_of(path, self.count)
        return self._placed(path, home, await value_of(self.call(home, "queues.placement", (path,), {})))

    async def has(self, path: str, shard: int) -> bool:
        """True if the queue exists and lives on this shard, which must be that of `locate`."""
        placement = await value_of(self.call(shard, "queues.placement", (path,), {}))
        return placement is not None and shard_of(path, placement, self.count) == shard

    async def is_unfinished(self, path: str) -> bool:
        """True if the home of a queue names another shard, and the queue is not there: not yet, or a crash came between
        the two steps."""
        shard = await self.locate(path)
        return shard != home_of(path, self.count) and not await self.has(path, shard)

    async def finish(self, path: QueuePath) -> None:
        """Create a queue on the shard that its home names, if it is not there."""
        if await self.is_unfinished(path):
            home = home_of(path, self.count)
            placement = await value_of(self.call(home, "queues.placement", (path,), {}))
            if placement is not None:
                await ROUTES["queues.put"](self, "queues.put", (path, {"placement": placement}), {})

    @asynccontextmanager
    async def changing(self, path: str) -> AsyncIterator[None]:
        """One at a time, in the process of the home: a queue on another shard than its home is created and deleted in
        two steps."""
        change = self._changing.setdefault(path, _Change())
        change.waiting += 1
        try:
            async with change.lock:
                yield
        finally:
            change.waiting -= 1
            if not change.waiting:
                del self._changing[path]


class _Change:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class _Room:
    """The methods of one room, each made at its first use and kept."""

    def __init__(self, router: Router, name: str):
        self._router = router
        self._name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, router = f"{self._name}.{name}", self._router
        route = ROUTES.get(method)
        if route is None:
            raise AttributeError(f"{method} has no row in the table of routes")

        def call(*arguments: Any, **options: Any) -> Any:
            return route(router, method, arguments, options)

        setattr(self, name, call)
        return call


class RoutedBroker:
    """The facade over several shards. It has the rooms and the properties of `Broker`; the properties are about the
    shards of this process."""

    def __init__(self, shards: Sequence[ShardCalls], now_ms: Callable[[], int]):
        """At least one of the shards is of this process."""
        assert len(shards) > 1, "one shard needs no router"
        self.router = Router(shards)
        self._here = [shard.broker for shard in shards if isinstance(shard, LocalShard)]
        self.id = self._here[0].id
        self.auto_create = self._here[0].auto_create
        for name in sorted({path.partition(".")[0] for path in ROUTES}):
            setattr(self, name, _Room(self.router, name))
        self.analytics = Analytics(self.stats, now_ms)  # type: ignore[attr-defined]

    def commit_now(self) -> None:
        if self.router.asked is not None:
            self.router.asked.broker.commit_now()

    @property
    def ready(self) -> bool:
        return all(shard.ready for shard in self._here)

    @property
    def damage(self) -> tuple[int, int]:
        damages = [shard.damage for shard in self._here]
        return sum(messages for messages, _ in damages), sum(errors for _, errors in damages)

    @property
    def written_bytes(self) -> int:
        return sum(shard.written_bytes for shard in self._here)

    @property
    def waiting(self) -> int:
        return sum(shard.waiting for shard in self._here)

    def watch_commits(self, took: Callable[[float], None]) -> None:
        for shard in self._here:
            shard.watch_commits(took)

    def stop_waiting(self) -> None:
        for shard in self._here:
            shard.stop_waiting()

    async def close(self, *, final_snapshot: bool = True) -> None:
        self.analytics.close()
        await asyncio.gather(*(shard.close(final_snapshot=final_snapshot) for shard in self._here))


def routed_over(brokers: Sequence[Broker], now_ms: Callable[[], int]) -> RoutedBroker:
    """The facade over shards that this process serves all."""
    return RoutedBroker([LocalShard(number, broker) for number, broker in enumerate(brokers)], now_ms)
