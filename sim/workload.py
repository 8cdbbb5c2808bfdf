"""The clients: producers that repeat requests, consumers with different behaviour, an operator.

Clients use only the replies that they received. A feature that the plan switches off does not occur.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

from penstock.batch import Batch, layout
from penstock.batch.codec import build
from penstock.batch.priorities import priority_columns
from penstock.broker.types import LeaseReply, ProducerSeq, PublishPart, PublishReply
from penstock.core.order.lanes import NORMAL
from penstock.errors import Conflict, FencedProducer, PenstockError, QueueNotFound
from penstock.ids import QueuePath, parse_offsets, parse_receipt_prefix, ulid_text
from sim.archiver import Archiver
from sim.drain import Drain
from sim.keys import KeyAdministrator
from sim.ledger import SCOPE_CONSUMER, Ledger
from sim.loop import VirtualLoop
from sim.member_clients import MemberClient
from sim.network import Network, NoAnswer
from sim.operator import Operator
from sim.plan import Plan
from sim.sent_messages import KEYS, TENANTS, Sent
from sim.users import UserAdministrator


class Workload:
    def __init__(self, loop: VirtualLoop, plan: Plan, network: Network, ledger: Ledger, sent: list[Sent]):
        self.plan = plan
        self.network = network
        self.ledger = ledger
        self.sent = sent
        """By token."""
        self.known: deque[tuple[str, str]] = deque(maxlen=40)
        """(queue, message id) of recent publishes."""
        self.own_ids: deque[Sent] = deque(maxlen=40)
        """Recent publishes that are recognisable by their client id alone."""
        self.until_s = 0.0
        self._orders = plan.rng("in order")
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []
        self._drain: Drain | None = None

    async def start(self, until_s: float) -> None:
        """Create the queues, then start all clients."""
        plan = self.plan
        self.until_s = until_s
        operator = Operator(self)
        await operator.set_up()
        for number in range(plan.producers):
            self.spawn(self._produce(f"producer-{number}", plan.rng(f"producer-{number}")))
        for queue in plan.queues:
            for group in plan.groups:
                assigned = (queue.path, group) in plan.assigned
                for number in range(plan.consumers + assigned):
                    name = f"{queue.path[-1]}-{group}-{number}"
                    if assigned:
                        self.spawn(MemberClient(self, queue.path, group, name).live(until_s))
                    else:
                        self.spawn(self.consume(queue.path, group, name, until_s))
        if plan.has("scopes"):
            for group in plan.groups:
                scope = plan.rng(f"scope-{group}").choice(("sim", "sim/default"))
                self.spawn(self.consume(scope, group, f"{SCOPE_CONSUMER}{group}", until_s, "messages.lease_scope"))
        if plan.has("archives"):
            self.spawn(Archiver(self).live())
        if plan.has("api_keys"):
            self.spawn(KeyAdministrator(self).live())
            self.spawn(UserAdministrator(self).live())
        self.spawn(operator.meddle())

    def spawn(self, client: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._loop.create_task(client))

    def behave(self) -> None:
        """No new messages, and consumers that ack every message."""
        for task in self._tasks:
            task.cancel()
        self._drain = Drain(self._loop, self.network, self.ledger, self.plan.assigned)

    def now_s(self) -> float:
        return self._loop.time()

    def working(self) -> bool:
        return self._loop.time() < self.until_s

    # -- producers ----------------------------------------------------------------------------------------------------

    async def _produce(self, name: str, rng: Random) -> None:
        plan = self.plan
        epoch, seq = 1, 0
        think_s = 3.0 * plan.pace
        while self.working():
            await asyncio.sleep(rng.expovariate(1 / think_s))
            request = self._compose(rng)
            rows = sum(map(len, request))
            producer = None
            if plan.has("sequences") and rng.random() < 0.8:
                producer = ProducerSeq(name, epoch, seq)
                seq += rows
                for part in request:
                    for sent in part:
                        sent.sequenced = True
            publishing = self._publish(request, producer, rng)
            if rng.random() < plan.chance("pipelining", 0.4):
                # Without waiting for the answer: the next publish may overtake it.
                self.spawn(publishing)
            else:
                await publishing
            if rng.random() < plan.chance("epochs", 0.03):
                epoch, seq = epoch + 1, 0

    def _compose(self, rng: Random) -> list[list[Sent]]:
        plan = self.plan
        parts = [
            [self._message(rng.choice(plan.queues).path, rng)]
            for _ in range(2 if rng.random() < plan.chance("parts", 0.3) else 1)
        ]
        if plan.has("batches"):
            for part in parts:
                part += [self._message(part[0].queue, rng) for _ in range(rng.choice((0, 0, 1, 2, 7)))]
                if part[0].client_id and rng.random() < 0.1:
                    part.append(part[0])
        request = tuple(sent for part in parts for sent in part)
        for sent in request:
            sent.request = request
        return parts

    def _message(self, queue: str, rng: Random) -> Sent:
        plan = self.plan
        sent = Sent(len(self.sent), queue, rng.choice((0, 30, 30, 120)))
        self.sent.append(sent)
        self._put_in_order(sent)
        if rng.random() < plan.chance("keys", 0.7):
            sent.key = rng.choice(KEYS)
        if rng.random() < plan.chance("client_ids", 0.5):
            sent.client_id = b"c%d" % sent.token
        if rng.random() < plan.chance("delays", 0.3):
            sent.delay_ms = rng.choice((1, 500, 3_000, 20_000))
        if rng.random() < plan.chance("far", 0.02):
            sent.delay_ms = rng.choice((1_800_000, 7_200_000))
        if rng.random() < plan.chance("deliver_at", 0.2):
            sent.deliver_at_ms = max(0, self.ledger.now_ms + rng.choice((-5_000, 100, 2_000, 15_000)))
        if rng.random() < plan.chance("ttl", 0.3):
            sent.ttl_ms = rng.choice((50, 1_500, 8_000, 40_000))
        if rng.random() < plan.chance("budgets", 0.3):
            sent.max_retries = rng.choice((0, 1, 2, 10))
        return sent

    def _put_in_order(self, sent: Sent) -> None:
        """The priority or key that decides the order in its queue."""
        config = next(queue.config for queue in self.plan.queues if queue.path == sent.queue)
        rng = self._orders
        if config.get("order") == "lanes":
            sent.given_priority = rng.choice((0, 0, 1, 2, 3, 4, None))
            sent.priority = NORMAL if sent.given_priority is None else sent.given_priority
        elif config.get("order") == "heap":
            sent.given_priority = rng.choice((-5, 0, None, 1, 2**62))
            sent.priority = sent.given_priority or 0
        if "fair_share" in config:
            sent.tenant = rng.choice((*TENANTS, TENANTS[1], TENANTS[1]))
        if "ordered_keys" in config and rng.random() < 0.8:
            sent.key = rng.choice(KEYS)

    async def _publish(self, request: list[list[Sent]], producer: ProducerSeq | None, rng: Random) -> None:
        parts = [PublishPart(QueuePath(part[0].queue), _batch(part)) for part in request]
        safe = all(sent.deduplicated for part in request for sent in part)
        for attempt in range(8):
            try:
                reply: PublishReply = await self.network.call("messages.publish", parts, producer, about=request)
            except NoAnswer:
                # Without an id or a sequence number, a repeated publish may be stored twice. Some clients repeat it
                # anyway.
                if not safe and rng.random() < 0.5:
                    return
            except (FencedProducer, Conflict):
                return
            except PenstockError:
                if attempt >= 3:
                    return
            else:
                self.known.extend(
                    (run.queue, ulid_text(run.id + position)) for run in reply.runs for position in range(run.count)
                )
                self.own_ids.extend(sent for part in request for sent in part if sent.client_id and not sent.sequenced)
                return
            await asyncio.sleep(0.2 + rng.random() * attempt)

    async def publish_again(self, sent: Sent) -> None:
        """Whether or not it is stored under its client id already."""
        part = PublishPart(QueuePath(sent.queue), _batch([sent]))
        with suppress(NoAnswer, PenstockError):
            await self.network.call("messages.publish", [part], None, about=[[sent]])

    # -- consumers ----------------------------------------------------------------------------------------------------

    async def consume(self, source: str, group: str, name: str, until_s: float, method: str = "messages.lease") -> None:
        """From a queue or, with `lease_scope`, from all queues."""
        plan, rng = self.plan, self.plan.rng(f"consumer-{name}")
        acks: list[str] = []
        while self._loop.time() < until_s:
            wait_ms = rng.choice((0, 5_000, 15_000))
            try:
                reply: LeaseReply = await self.network.call(
                    method, source, group=group, max=rng.choice((1, 3, 10)), wait_ms=wait_ms, consumer=name,
                    lease_ms=rng.choice((None, None, 1_500, 6_000)), ack=acks, wait_s=wait_ms / 1000,
                )  # fmt: skip
            except NoAnswer:
                await asyncio.sleep(rng.random())
                continue
            except PenstockError as error:
                acks = []
                await asyncio.sleep(3 * rng.random() + (2 if isinstance(error, QueueNotFound) else 0.2))
                continue
            acks = []
            receipts = self.receipts(reply, rng)
            if reply.runs or not wait_ms:
                await asyncio.sleep(rng.expovariate(1 / ((2 if reply.runs else 6) * plan.pace)))
            if receipts:
                acks = await self.handle(receipts, rng)

    def receipts(self, reply: LeaseReply, rng: Random) -> list[str]:
        receipts: list[str] = []
        for run in reply.runs:
            if run.receipt is None:
                continue
            if run.count > 1 and rng.random() < self.plan.chance("ranges", 0.7):
                receipts.append(f"{run.receipt}{run.offset}-{run.offset + run.count - 1}")
            else:
                receipts += [f"{run.receipt}{run.offset + position}" for position in range(run.count)]
        return receipts

    async def handle(self, receipts: list[str], rng: Random) -> list[str]:
        """Settle messages according to this consumer's behaviour; returns the receipts to ack with the next lease."""
        plan = self.plan
        if rng.random() < 0.3:
            # Messages of one batch are settled differently.
            cut = rng.randint(1, len(receipts))
            await self._settle("messages.ack", receipts[cut:])
            receipts = receipts[:cut]
        chance = rng.random()
        if (chance := chance - plan.chance("nacks", 0.15)) < 0:
            delay_ms = rng.choice((None, None, 0, 100, 5_000))
            await self._settle("messages.nack", receipts, delay_ms=delay_ms, error="later")
        elif (chance := chance - plan.chance("rejects", 0.06)) < 0:
            await self._settle("messages.reject", receipts, error="never")
        elif (chance := chance - plan.chance("releases", 0.1)) < 0:
            await self._settle("messages.release", receipts)
        elif (chance := chance - plan.chance("forgets", 0.1)) < 0:
            return []
        elif (chance := chance - plan.chance("extends", 0.1)) < 0:
            await self._settle("messages.extend", receipts, lease_ms=rng.choice((200, 2_000, 8_000)))
            await asyncio.sleep(rng.random() * 5)
            await self._settle("messages.ack", receipts)
        elif (chance := chance - plan.chance("transacts", 0.25)) < 0:
            await self._transact(receipts, rng)
        elif (chance := chance - plan.chance("late_acks", 0.1)) < 0:
            await asyncio.sleep(rng.random() * 15)
            await self._settle("messages.ack", receipts)
        elif rng.random() < plan.chance("ack_in_lease", 0.7):
            return receipts
        else:
            await self._settle("messages.ack", receipts)
        return []

    async def _transact(self, receipts: list[str], rng: Random) -> None:
        """Ack the handled messages and publish their results. Without an answer, the same request is repeated."""
        request = [[self._message(rng.choice(self.plan.queues).path, rng)] for _ in range(rng.choice((1, 1, 2)))]
        for part in request:
            part += [self._message(part[0].queue, rng) for _ in range(rng.choice((0, 0, 2)))]
        together = tuple(sent for part in request for sent in part)
        consumed = frozenset(place for receipt in receipts for place in _places(receipt))
        for sent in together:
            sent.client_id, sent.request, sent.consumes = b"", together, consumed
        for place in consumed:
            self.ledger.transacted[place] = together
        parts = [PublishPart(QueuePath(part[0].queue), _batch(part)) for part in request]
        for attempt in range(5):
            try:
                await self.network.call("messages.transact", receipts, parts, about=(receipts, request))
            except NoAnswer:
                await asyncio.sleep(0.2 + rng.random() * attempt)
            except PenstockError as error:
                if not error.retryable:
                    return
                await asyncio.sleep(0.5)
            else:
                return

    async def _settle(self, method: str, receipts: list[str], **options: Any) -> None:
        for _ in range(2 if receipts else 0):
            try:
                await self.network.call(method, receipts, **options)
            except (NoAnswer, PenstockError):
                await asyncio.sleep(0.3)
            else:
                return


def _places(receipt: str) -> list[tuple[int, int]]:
    """(lease, offset) of all messages of a receipt."""
    prefix, _, tail = receipt.rpartition(".")
    parsed, offsets = parse_receipt_prefix(prefix), parse_offsets(tail)
    assert parsed is not None and offsets is not None
    return [(parsed[1], offset) for offset in range(offsets[0], offsets[1] + 1)]


def _batch(part: list[Sent]) -> Batch:
    columns: dict[int, Any] = {}
    if any(sent.delay_ms for sent in part):
        columns[layout.DELAY_MS] = [sent.delay_ms for sent in part]
    if any(sent.deliver_at_ms for sent in part):
        columns[layout.DELIVER_AT_MS] = [sent.deliver_at_ms for sent in part]
    if any(sent.ttl_ms for sent in part):
        columns[layout.TTL_MS] = [sent.ttl_ms for sent in part]
    if any(sent.max_retries is not None for sent in part):
        columns[layout.MAX_RETRIES] = [-1 if sent.max_retries is None else sent.max_retries for sent in part]
    columns |= priority_columns([sent.given_priority for sent in part])
    if any(sent.tenant for sent in part):
        columns[layout.TENANT] = [sent.tenant for sent in part]
    if any(sent.key for sent in part):
        columns[layout.KEY] = [sent.key for sent in part]
    if any(sent.client_id for sent in part):
        columns[layout.ID] = [sent.client_id for sent in part]
    return Batch.open(build([sent.payload for sent in part], kind=layout.KIND_BYTES, columns=columns))
