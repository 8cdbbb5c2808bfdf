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
from penstock.broker.routing import META, Arguments, Options
from penstock.broker.service import Broker
from penstock.ids import QueuePath
from penstock.placement import BY_QUEUE, home_of, shard_of


class Router:
    """Knows the shards, and which of them a queue lives on."""

    def __init__(self, shards: Sequence[Broker]):
        self._shards = shards
        self.count = len(shards)
        self.numbers = range(self.count)
        self.asked = shards[META]
        """The shard that was asked last: the one whose commit `commit_now` is about."""
        self._methods: dict[tuple[int, str], Callable[..., Any]] = {}
        self._changing: dict[str, _Change] = {}
        self.names = asyncio.Lock()
        """Held while a schedule is created: its name must be new on all shards."""

    def call(self, shard: int, method: str, arguments: Arguments, options: Options) -> Any:
        """Call a method of this shard's facade."""
        self.asked = self._shards[shard]
        found = self._methods.get((shard, method))
        if found is None:
            found = self._methods[shard, method] = attrgetter(method)(self._shards[shard])
        return found(*arguments, **options)

    def everywhere(self, method: str, arguments: Arguments, options: Options) -> list[Any]:
        """Call a method of all shards."""
        return [self.call(shard, method, arguments, options) for shard in self.numbers]

    def shard_of(self, path: str) -> int:
        """The shard of a queue, or the one on which it would be created."""
        home = home_of(path, self.count)
        placement = self._shards[home].queues.placement(path)
        if placement is None or placement == BY_QUEUE:
            return home
        return shard_of(path, placement, self.count)

    def has(self, path: str, shard: int) -> bool:
        """True if the queue exists and lives on this shard, which must be that of `shard_of`."""
        placement = self._shards[shard].queues.placement(path)
        return placement is not None and shard_of(path, placement, self.count) == shard

    def is_unfinished(self, path: str) -> bool:
        """True if the home of a queue names another shard, and the queue is not there: not yet, or a crash came between
        the two steps."""
        shard = self.shard_of(path)
        return shard != home_of(path, self.count) and not self.has(path, shard)

    async def finish(self, path: QueuePath) -> None:
        """Create a queue on the shard that its home names."""
        async with self.changing(path):
            if self.is_unfinished(path):
                placement = self._shards[home_of(path, self.count)].queues.placement(path)
                await self.call(self.shard_of(path), "queues.put", (path, {"placement": placement}), {})

    @asynccontextmanager
    async def changing(self, path: str) -> AsyncIterator[None]:
        """One at a time: a queue on another shard than its home is created and deleted in two steps."""
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
    """The facade over several shards. It has the rooms and the properties of `Broker`."""

    def __init__(self, shards: Sequence[Broker], now_ms: Callable[[], int]):
        assert len(shards) > 1, "one shard needs no router"
        self.router = Router(shards)
        self._shards = shards
        self.id = shards[META].id
        self.auto_create = shards[META].auto_create
        for name in sorted({path.partition(".")[0] for path in ROUTES}):
            setattr(self, name, _Room(self.router, name))
        self.analytics = Analytics(self.stats, now_ms)  # type: ignore[attr-defined]

    def commit_now(self) -> None:
        self.router.asked.commit_now()

    @property
    def ready(self) -> bool:
        return all(shard.ready for shard in self._shards)

    @property
    def damage(self) -> tuple[int, int]:
        damages = [shard.damage for shard in self._shards]
        return sum(messages for messages, _ in damages), sum(errors for _, errors in damages)

    @property
    def written_bytes(self) -> int:
        return sum(shard.written_bytes for shard in self._shards)

    @property
    def waiting(self) -> int:
        return sum(shard.waiting for shard in self._shards)

    def watch_commits(self, took: Callable[[float], None]) -> None:
        for shard in self._shards:
            shard.watch_commits(took)

    def stop_waiting(self) -> None:
        for shard in self._shards:
            shard.stop_waiting()

    async def close(self, *, final_snapshot: bool = True) -> None:
        self.analytics.close()
        await asyncio.gather(*(shard.close(final_snapshot=final_snapshot) for shard in self._shards))
