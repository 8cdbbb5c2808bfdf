"""The Broker: every operation of one shard, independent of the transport, as `broker.<room>.<operation>`.

Transports call nothing else. Every operation either does what it says durably before it replies, or raises an error of
`penstock.errors` and has changed nothing. The rooms read the shard through its view and act by commands alone.

With one shard the transports have this object itself. With several they have a `RoutedBroker` (`router.py`), which has
the same rooms and chooses the shard.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.broker.alarms import Alarms
from penstock.broker.analytics import Analytics
from penstock.broker.autoscale import Autoscale
from penstock.broker.confirm import Confirmations
from penstock.broker.deadletters import DeadLetterOperations
from penstock.broker.erasure import Erasure
from penstock.broker.events import Events
from penstock.broker.explain import Explanations
from penstock.broker.feed import Feed
from penstock.broker.groups import Groups
from penstock.broker.holds import Holds
from penstock.broker.identity import Identity
from penstock.broker.in_flight import InFlight
from penstock.broker.intake import Intake
from penstock.broker.keys import Keys
from penstock.broker.letter_groups import LetterGroups
from penstock.broker.log_reads import LogReads
from penstock.broker.members import Members
from penstock.broker.messages import Messages
from penstock.broker.queues import Queues
from penstock.broker.readers import Readers
from penstock.broker.redrives import Redrives
from penstock.broker.scheduled import ScheduledMessages
from penstock.broker.schedules import Schedules
from penstock.broker.series import Series
from penstock.broker.stats import Stats
from penstock.broker.types import Entropy
from penstock.broker.users import Users
from penstock.broker.vault import Vault
from penstock.broker.webhooks import Webhooks
from penstock.core.config import DEFAULT
from penstock.placement import home_of, shard_of
from penstock.runtime.events import EventLog
from penstock.runtime.history import MessageHistory
from penstock.runtime.host import ShardHost
from penstock.runtime.view import PlacedView

ROOMS: dict[str, type] = {
    "messages": Messages,
    "scheduled": ScheduledMessages,
    "in_flight": InFlight,
    "stats": Stats,
    "series": Series,
    "queues": Queues,
    "autoscale": Autoscale,
    "readers": Readers,
    "log": LogReads,
    "groups": Groups,
    "members": Members,
    "dead_letters": DeadLetterOperations,
    "letter_groups": LetterGroups,
    "redrives": Redrives,
    "schedules": Schedules,
    "webhooks": Webhooks,
    "erasure": Erasure,
    "keys": Keys,
    "users": Users,
    "explanations": Explanations,
    "events": Events,
    "feed": Feed,
    "holds": Holds,
    "analytics": Analytics,
}
"""The class of each room, by the name of its attribute."""


class Broker:
    def __init__(
        self, host: ShardHost, entropy: Entropy, *, auto_create: bool = True, vault: Vault | None = None,
        encrypt_all: bool = False, shards: int = 1, confirmations: Confirmations | None = None,
    ):  # fmt: skip
        """`auto_create`: a publish creates the queues that it names. Without a vault there are no webhooks.
        `encrypt_all`: new queues are encrypted, unless their settings say otherwise. `shards`: how many the store
        has. `confirmations`: those of all shards of this process."""
        self._host = host
        self._loop = loop = host.loop
        shard = host.number
        view, submit = host.view, host.loop.submit
        if shards > 1:
            view = PlacedView(
                loop,
                lambda queue: shard_of(queue.path, queue.config.placement, shards) == shard,
                lambda path: home_of(path, shards) == shard,
            )
        self._view = view
        view.new_queue = replace(DEFAULT, encryption=encrypt_all)
        identity = Identity(host.node, host.number)
        confirmations = confirmations or Confirmations(entropy(256).to_bytes(32, "big"))
        intake = Intake(view, submit, auto_create=auto_create)
        self._alarms = Alarms(view)
        self.id = identity.broker
        """The ULID of this broker's storage."""
        self.auto_create = auto_create
        self.messages = Messages(view, submit, loop.lease, intake, entropy, durable=host.journal.durable, shard=shard)
        self.scheduled = ScheduledMessages(view, submit)
        self.in_flight = InFlight(view, shard)
        self.stats = Stats(view, self._alarms, identity)
        self.series = Series(view, self.stats)
        self.queues = Queues(view, submit, confirmations, identity, self.stats, shards)
        self.autoscale = Autoscale(view, self.stats)
        self.readers = Readers(view, submit)
        self.log = LogReads(view, self.readers, identity)
        self.groups = Groups(view, submit, self.stats, self.readers, confirmations)
        self.members = Members(view, submit, entropy)
        self.dead_letters = DeadLetterOperations(view, submit, confirmations)
        self.letter_groups = LetterGroups(view)
        self.redrives = Redrives(view, submit, self.dead_letters, intake, entropy)
        self.schedules = Schedules(view, submit, intake)
        self.webhooks = Webhooks(view, submit, intake, entropy, vault, shard)
        self.erasure = Erasure(view, submit, confirmations, host.upkeep.rewrite)
        self.keys = Keys(view, submit, entropy)
        self.users = Users(view, submit)
        self.explanations = Explanations(view, self.webhooks, self.stats)
        self.events = Events(view, EventLog(loop), MessageHistory(loop), identity)
        self.feed = Feed(view)
        self.holds = Holds(view, submit, identity)
        self.analytics = Analytics(self.stats, view.now_ms)
        self.redrives.resume()
        loop.on_reread = self.redrives.resume

    def commit_now(self) -> None:
        """Make what was asked so far durable before returning, if no other command is expected to share the commit.

        A transport that serves a single client calls it behind each request. Without the call the same commit starts in
        the next turn of the event loop.
        """
        self._loop.commits.commit_now()

    @property
    def ready(self) -> bool:
        return self._loop.failed is None and self._loop.suspended is None and not self._loop.closing

    @property
    def damage(self) -> tuple[int, int]:
        """Since the start: (messages that became dead letters as damaged, reads that the disk refused)."""
        return self._loop.damaged_messages, self._loop.log.pieces.read_errors

    @property
    def written_bytes(self) -> int:
        """Bytes of records that were given to the journal since the start."""
        return self._loop.commits.taken_bytes

    @property
    def waiting(self) -> int:
        """Lease requests that wait for messages."""
        return self._view.waiting

    def watch_commits(self, took: Callable[[float], None]) -> None:
        """Call `took` after every commit with the seconds that it took to make it durable."""
        self._loop.commits.on_duration = took

    def stop_waiting(self) -> None:
        """Begin to shut down: waiting requests are answered, publishes are refused, commits under way are finished."""
        self._loop.stop_waiting()

    async def close(self, *, final_snapshot: bool = True) -> None:
        """Drain: waiting requests are answered, decisions become durable, and a snapshot makes the next start quick."""
        self._alarms.close()
        await self.series.close()
        self.analytics.close()
        self._loop.on_reread = lambda: None
        await self.redrives.close()
        await self._host.close(final_snapshot=final_snapshot)
