"""Read access to one shard for the facade: its state, its stored messages, its counters.

The objects that a view returns are live. A caller reads them before its next `await` and changes none of them: a change
is a command for `ShardLoop.submit` or `ShardLoop.lease`. After the shard was read again from its journal the same view
shows the new state.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.core import commands
from penstock.core.config import DEFAULT, QueueConfig, parse_config
from penstock.core.decide import check
from penstock.core.decide.keys import key_of
from penstock.core.decide.schedules import schedule_of
from penstock.core.decide.scopes import scopes_over
from penstock.core.decide.settling import all_held
from penstock.core.decide.users import user_of
from penstock.core.decide.webhooks import webhook_of
from penstock.core.explain import Explainer
from penstock.core.state import FormerQueue, Hold, Queue, Schedule, Shard, Webhook
from penstock.core.state.keys import StoredKey
from penstock.core.state.leases import Lease
from penstock.core.state.users import StoredUser
from penstock.encryption.shard_encryption import ShardEncryption
from penstock.errors import Conflict, DiskFull, QueueNotFound, Unavailable
from penstock.journal.port import EngineError, OutOfSpace
from penstock.runtime.holding import spanned_bytes
from penstock.runtime.log import MessageLog
from penstock.runtime.watchers import Changed

if TYPE_CHECKING:
    from penstock.runtime.loop import ShardLoop

Check = commands.Publish | commands.SetSchedule | commands.SetWebhook


COMMIT_PAUSE_S = 0.001


def queue_not_found(path: str) -> QueueNotFound:
    return QueueNotFound(f"there is no queue {path}", details={"queue": path})


class ShardView:
    """The state of a shard that this process owns."""

    def __init__(self, loop: ShardLoop):
        self._loop = loop
        self.now_ms = loop.now_ms
        self.counters = loop.counters
        self.new_queue = DEFAULT
        """The settings of a queue that is created without any."""
        self._paths: list[str] = []
        self._paths_version: tuple[Shard, int, int, int] | None = None

    def advance(self) -> int:
        """Process the deadlines that are due, so that the state is that of the time that is returned."""
        return self._loop.advance_to_now()

    async def give_way(self) -> None:
        """Let other work run before a long read goes on. A commit that is being written needs time outside of the event
        loop: its thread gets the interpreter only while the event loop waits."""
        await asyncio.sleep(0 if self._loop.commits.is_clean else COMMIT_PAUSE_S)

    def check(self, command: Check) -> None:
        """Raise the refusal that this command would meet now. Decides and changes nothing."""
        self._loop.admit(command)
        check(self._loop.shard, command, self.now_ms())

    def config(self, values: dict[str, Any], base: QueueConfig | None = None) -> QueueConfig:
        """The settings of a new queue, or of one that had `base`, with these values. Raises InvalidRequest, or Conflict
        if the queue cannot be encrypted here."""
        config = parse_config(values, self.new_queue if base is None else base)
        if config.encryption and self._loop.encryption is None:
            raise Conflict(
                "queue configuration, encryption: this server has no encryption key; start it with "
                "--encryption-key FILE (`penstock encryption new-key FILE` makes one)",
                details={"field": "encryption"},
            )
        return config

    @property
    def encryption(self) -> ShardEncryption | None:
        """None: the server has no encryption key."""
        return self._loop.encryption

    async def settled(self) -> None:
        """Return when everything that was decided so far is durable. Raises Unavailable or DiskFull."""
        try:
            await self._loop.cut(lambda *_: None)
        except OutOfSpace as error:
            raise DiskFull(str(error), retry_after_ms=5_000) from None
        except EngineError as error:
            raise Unavailable(str(error), retry_after_ms=1_000) from None

    # -- queues -------------------------------------------------------------------------------------------------------

    def queue(self, path: str) -> Queue:
        """Raises QueueNotFound."""
        shard = self._loop.shard
        number = shard.paths.get(path)
        if number is None:
            raise queue_not_found(path)
        return shard.queues[number]

    def find_queue(self, path: str) -> Queue | None:
        shard = self._loop.shard
        number = shard.paths.get(path)
        return None if number is None else shard.queues[number]

    def is_home(self, path: str) -> bool:  # noqa: ARG002  the only shard
        """True if a queue of this path is created here, unless its settings place it elsewhere."""
        return True

    def queue_numbered(self, number: int) -> Queue | None:
        return self._loop.shard.queues.get(number)

    def former_queue(self, number: int) -> FormerQueue | None:
        """One of the queues that were deleted last."""
        return self._loop.shard.former_queues.get(number)

    def queues(self) -> Collection[Queue]:
        return self._loop.shard.queues.values()

    def paths(self, prefix: str) -> list[str]:
        """The paths that begin with `prefix`, sorted."""
        shard = self._loop.shard
        version = (shard, shard.next_queue, len(shard.paths), shard.placements)
        if version != self._paths_version:  # a queue was created, deleted or placed
            self._paths, self._paths_version = sorted(self._shown_paths()), version
        return self._paths[bisect_left(self._paths, prefix) : bisect_left(self._paths, f"{prefix}\U0010ffff")]

    def _shown_paths(self) -> Iterable[str]:
        return self._loop.shard.paths

    def placement(self, path: str) -> str | None:
        """The placement in the entry of this path, whether or not the queue lives on this shard; None: no entry."""
        shard = self._loop.shard
        number = shard.paths.get(path)
        return None if number is None else shard.queues[number].config.placement

    def number_of(self, path: str) -> int:
        """The number of the entry of this path."""
        return self._loop.shard.paths[path]

    # -- leases and transactions --------------------------------------------------------------------------------------

    def leases(self) -> Collection[Lease]:
        return self._loop.shard.leases.values()

    def leased_from(self, lease: int) -> Queue | None:
        """The queue of a lease; None if the lease has ended."""
        shard = self._loop.shard
        found = shard.leases.get(lease)
        return None if found is None else shard.queues[found.queue]

    def held_by(self, lease: int, nonce: int) -> int:
        """The messages that a lease holds; 0 if it has ended."""
        found = self._loop.shard.leases.get(lease)
        if found is None or found.nonce != nonce:
            return 0
        return sum([run.stop - run.first for run in found.held])

    def all_held(self, claims: list[commands.Claim]) -> bool:
        """True if an ack of these would ack every one of them now."""
        return all_held(self._loop.shard, claims)

    def was_transacted(self, key: bytes) -> bool:
        """True if the transaction with this digest was done before."""
        return key in self._loop.shard.transactions

    # -- schedules, webhooks, holds -----------------------------------------------------------------------------------

    def schedule(self, name: str) -> Schedule:
        """Raises NotFound."""
        return schedule_of(self._loop.shard, name)

    def schedules(self) -> Mapping[str, Schedule]:
        return self._loop.shard.schedules

    def webhook(self, id: str) -> Webhook:
        """Raises NotFound."""
        return webhook_of(self._loop.shard, id)

    def webhooks(self) -> Mapping[str, Webhook]:
        return self._loop.shard.webhooks

    def webhook_of_group(self, path: str, group: str) -> Webhook | None:
        return self._loop.shard.webhook_groups.get((path, group))

    def key(self, id: str) -> StoredKey:
        """Raises NotFound."""
        return key_of(self._loop.shard, id)

    def keys(self) -> Mapping[str, StoredKey]:
        return self._loop.shard.keys

    def user(self, email: str) -> StoredUser:
        """Raises NotFound."""
        return user_of(self._loop.shard, email)

    def users(self) -> Mapping[str, StoredUser]:
        return self._loop.shard.users

    def holds(self) -> Mapping[str, Hold]:
        return self._loop.shard.holds

    def spanned_bytes(self, hold: Hold) -> int:
        return spanned_bytes(self._loop, hold)

    # -- messages -----------------------------------------------------------------------------------------------------

    @property
    def log(self) -> MessageLog:
        return self._loop.log

    @property
    def durable_index(self) -> int:
        """The last frame of the journal that is durable."""
        return self._loop.durable_index

    @property
    def without_room(self) -> bool:
        """True while nothing can be written, and so nothing can be delivered."""
        return self._loop.without_room

    def explainer(self, queue: Queue, group: str, now_ms: int) -> Explainer:
        return Explainer(self._loop.shard, queue, group, now_ms)

    # -- consumers ----------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Lease requests that wait for messages."""
        return self._loop.waiters.count

    def waiting_in(self, queue: Queue, group: str) -> int:
        """Consumers of this group that wait for messages of this queue, or of a scope that it is in."""
        waiters = self._loop.waiters
        in_scopes = sum([waiters.count_of(scope, group) for scope in set(scopes_over(queue.path))])
        return waiters.count_of(queue.number, group) + in_scopes

    def last_asked_ms(self, queue: Queue, group: str) -> int | None:
        """When a consumer of this group last asked for messages of this queue; None: not since the start."""
        return self.counters.last_asked(queue.number, scopes_over(queue.path), group)

    def scope_head(self, scope: str, group: str) -> tuple[int, int] | None:
        """(minus the priority, the time) of the message that a lease of this scope would deliver next."""
        return self._loop.scopes.head(scope, group, self.advance())

    # -- changes as they become durable -------------------------------------------------------------------------------

    async def grown(self, queue: int, partition: int, wait_ms: int) -> None:
        """Wait until something is stored in this partition, or the time is over."""
        await self._loop.grown(queue, partition, wait_ms)

    def watch(self, queue: int, changed: Changed) -> Callable[[], None]:
        """Call `changed` when the queue has grown or is deleted. Returns a function that ends it."""
        return self._loop.watchers.watch(queue, changed)

    def watch_end(self, queue: int, deleted: Callable[[], None]) -> Callable[[], None]:
        """Call `deleted` when the queue is deleted. Returns a function that ends it."""
        return self._loop.watchers.watch_end(queue, deleted)

    def follow_records(self, follow: Callable[[list[bytes]], None] | None) -> None:
        """Call `follow` with the encoded records of every commit; None ends it."""
        self._loop.on_facts = follow


class PlacedView(ShardView):
    """The state of one of several shards. It hides the entries of queues that live on another shard."""

    def __init__(self, loop: ShardLoop, lives_here: Callable[[Queue], bool], is_home: Callable[[str], bool]):
        super().__init__(loop)
        self._lives_here = lives_here
        self._is_home = is_home

    def is_home(self, path: str) -> bool:
        return self._is_home(path)

    def queue(self, path: str) -> Queue:
        queue = self.find_queue(path)
        if queue is None:
            raise queue_not_found(path)
        return queue

    def find_queue(self, path: str) -> Queue | None:
        queue = super().find_queue(path)
        return queue if queue is not None and self._lives_here(queue) else None

    def queues(self) -> Collection[Queue]:
        return [queue for queue in super().queues() if self._lives_here(queue)]

    def _shown_paths(self) -> Iterable[str]:
        return [queue.path for queue in self.queues()]
