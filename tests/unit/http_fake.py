"""The HTTP edge without sockets: requests that are made by hand, and a broker that is a few dictionaries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.batch import Batch
from penstock.broker.types import (
    CancelResult,
    DeliveredRun,
    FoundLetter,
    LeaseReply,
    PublishedRun,
    PublishReply,
    QueueRow,
    ReadReply,
)
from penstock.clock import SystemClock
from penstock.core.state.letter_chunks import DeadLetter
from penstock.errors import Conflict, QueueNotFound
from penstock.pending import PendingReply
from penstock.transports.http import HttpApp
from penstock.transports.http.answer import answer_head
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request
from penstock.wire.delivery import Settled

FIRST_ID = 0x0193A7F1C2D3 << 80


def done(reply: Any) -> PendingReply:
    pending = PendingReply()
    pending.complete(reply)
    return pending


class FakeBroker:
    """Enough of the facade to see what the edge asks of it. `fails` is raised by the next call, whatever it is."""

    ready = True
    damage = (0, 0)

    def __init__(self) -> None:
        self.stored: dict[str, list[Batch]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.fails: BaseException | None = None
        self.arrived = asyncio.Event()
        self.parked = asyncio.Event()
        self.cancelled = False
        self._waiting: set[asyncio.Future] = set()
        self.inline_commits = 0
        self.messages = SimpleNamespace(
            publish=self.publish, lease=self.lease, lease_scope=self.lease_scope, ack=self.ack, nack=self.nack,
            reject=self.reject, release=self.release, extend=self.extend,
        )  # fmt: skip
        self.scheduled = SimpleNamespace(cancel=self.cancel, reschedule=self.reschedule)
        self.log = SimpleNamespace(read=self.read, peek=self.peek)
        self.queues = SimpleNamespace(
            list=self.list_queues, paths=lambda: sorted(self.stored), get=self.get_queue, put=self.put_queue,
            patch=self.patch_queue, delete=self.delete_queue, purge=self.purge_queue,
        )  # fmt: skip
        self.stats = SimpleNamespace(
            queue=self.queue_stats, summary=self.summary, consumers=self.consumers, rows=self.rows
        )
        self.written_bytes = 0
        self.groups = SimpleNamespace(list=self.list_groups)
        self.dead_letters = SimpleNamespace(page=self.list_dead_letters)

    def _note(self, name: str, *what: Any) -> None:
        self.calls.append((name, what))
        if self.fails is not None:
            failure, self.fails = self.fails, None
            raise failure

    async def _park(self, queue, wait_ms: int) -> None:
        if wait_ms and not self.stored.get(queue):
            self.parked.set()
            try:
                await asyncio.wait_for(self.arrived.wait(), wait_ms / 1000)
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    def commit_now(self) -> None:
        self.inline_commits += 1

    def _known(self, queue: str) -> list[Batch]:
        if queue not in self.stored:
            raise QueueNotFound(f"there is no queue {queue}")
        return self.stored[queue]

    def publish(self, parts, producer=None) -> PendingReply:
        self._note("publish", parts, producer)
        runs = []
        for number, part in enumerate(parts):
            stored = self.stored.setdefault(part.queue, [])
            offset = sum(batch.count for batch in stored)
            stored.append(part.batch)
            runs.append(PublishedRun(number, part.queue, 0, offset, part.batch.count, FIRST_ID + offset, False, None))
        self.arrived.set()
        return done(PublishReply(runs, True))

    def _runs(self, queue: str, most: int, receipt: str | None) -> list[DeliveredRun]:
        runs, offset = [], 0
        for batch in self._known(queue):
            if most <= 0:
                break
            cut = batch.run(0, min(most, batch.count))
            most -= cut.count
            runs.append(
                DeliveredRun(
                    queue, 0, offset, cut.count, FIRST_ID + offset, 1_700_000_000_000, cut, 1, receipt,
                    None if receipt is None else 1_700_000_030_000,
                )
            )  # fmt: skip
            offset += batch.count
        return runs

    def lease(
        self, queue, *, group="default", max=1, wait_ms=0, lease_ms=None, consumer="", ack=(), member="", generation=0
    ) -> PendingReply:
        self._note("lease", queue, group, max, wait_ms, lease_ms, consumer, tuple(ack))
        self._known(queue)
        pending = PendingReply()

        def finish() -> None:
            runs = self._runs(queue, max, "r1.0.7.00000000000000ff.")
            self.stored[queue] = []
            pending.complete(LeaseReply(runs, [Settled(receipt, "acked") for receipt in ack]))

        async def wait() -> None:
            await self._park(queue, wait_ms)
            finish()

        if not wait_ms or self.stored.get(queue):
            finish()
            return pending

        def withdraw() -> None:
            waiting.cancel()
            finish()

        waiting = asyncio.ensure_future(wait())
        pending.on_cancel = waiting.cancel
        pending.on_withdraw = withdraw
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return pending

    def lease_scope(self, scope, **options) -> PendingReply:
        return self.lease(f"{scope}/default/any", **options)

    def ack(self, receipts):
        self._note("ack", receipts)
        return done([Settled(receipt, "acked") for receipt in receipts])

    def nack(self, receipts, *, delay_ms=None, error="", max_retries=None):
        self._note("nack", receipts, delay_ms, error, max_retries)
        return done([Settled(receipt, "retrying", due_at_ms=1) for receipt in receipts])

    def release(self, receipts):
        self._note("release", receipts)
        return done([Settled(receipt, "released") for receipt in receipts])

    def reject(self, receipts, *, error=""):
        self._note("reject", receipts, error)
        return done([Settled(receipt, "dead_lettered") for receipt in receipts])

    def extend(self, receipts, *, lease_ms):
        self._note("extend", receipts, lease_ms)
        return done([Settled(receipt, "extended", deadline_at_ms=2) for receipt in receipts])

    async def cancel(self, queue, *, ids=None, key=None):
        self._note("cancel", queue, ids, key)
        return 1, [CancelResult("x", "cancelled")]

    async def reschedule(self, queue, *, ids=None, key=None, deliver_at_ms=None, delay_ms=None):
        self._note("reschedule", queue, ids, key, deliver_at_ms, delay_ms)
        return 1, [CancelResult("x", "rescheduled")]

    async def read(
        self,
        queue,
        *,
        partition=0,
        offset="earliest",
        max=100,
        wait_ms=0,
        client_id=None,
        until=None,
        bytes_max=0,
        uuid=None,
    ) -> ReadReply:
        self._note("read", queue, partition, offset, max, wait_ms)
        await self._park(queue, wait_ms)
        runs = self._runs(queue, max, None)
        count = sum(run.count for run in runs)
        return ReadReply(runs, count, count, 0)

    async def peek(self, queue, *, max=10, group="default"):
        self._note("peek", queue, max, group)
        return self._runs(queue, max, None)

    async def list_queues(self, *, prefix="", page=1, limit=50):
        self._note("list_queues", prefix, page, limit)
        entries = [{"queue": name} for name in sorted(self.stored)][:limit]
        return {"queues": entries, "total": len(self.stored), "page": page, "limit": limit}

    def get_queue(self, queue):
        self._note("get_queue", queue)
        self._known(queue)
        return {"queue": queue}

    async def put_queue(self, queue, config, *, confirm=None):
        self._note("put_queue", queue, config)
        created = queue not in self.stored
        self.stored.setdefault(queue, [])
        return {"queue": queue, "config": config}, created

    async def patch_queue(self, queue, changes, *, confirm=None):
        self._note("patch_queue", queue, changes)
        self._known(queue)
        return {"queue": queue, "config": changes}

    async def delete_queue(self, queue, *, confirm):
        self._note("delete_queue", queue, confirm)
        if confirm is None:
            raise Conflict("confirm", details={"confirm": "t", "would_lose": {"messages": 0}})
        return {"deleted": queue}

    async def purge_queue(self, queue, *, confirm):
        self._note("purge_queue", queue, confirm)
        return {"purged": 0}

    async def queue_stats(self, queue):
        self._note("stats", queue)
        self._known(queue)
        names = (
            "published", "delivered", "redelivered", "acked", "retried", "dead_lettered", "expired", "cancelled",
            "redriven",
        )  # fmt: skip
        totals = dict.fromkeys(names, 3) | {"lease_expired": 1, "session_expired": 0}
        return {
            "queue": queue, "ready": 1, "leased": 2, "scheduled": 0, "dead": 0, "depth": 1, "oldest_age_ms": 1500,
            "dead_letter_alarm": None, "totals": totals, "partitions": [{"partition": 0, "depth": 1}],
            "groups": [{"group": "default", "lag": 4, "busy_workers": 2, "finished": 9, "service_s": 4.5}],
        }  # fmt: skip

    async def summary(self):
        self._note("summary")
        return {"queues": len(self.stored), "leased": 7}

    def consumers(self, queue, *, limit):
        self._known(queue)
        return {"latency": {"delivery": {"p50_ms": 2, "p95_ms": 8, "p99_ms": 250}, "ack": None}, "consumers": []}

    async def rows(self, prefix=""):
        totals = (await self.queue_stats(next(iter(self.stored))))["totals"]
        return [QueueRow(path, "fifo", 0, 1, 1, 0, 2, 0, 0, totals, {}, 1500) for path in self.stored]

    async def list_groups(self, queue):
        self._note("groups", queue)
        return {"groups": []}

    async def list_dead_letters(self, queue, *, group=None, filter=None, page=1, limit=50, after=None):
        self._note("dead_letters", queue, group, filter, page, limit, after)
        entries = self._letters(queue)
        return {"dead_letters": entries, "total": len(entries), "page": page, "limit": limit, "next": None}

    def _letters(self, queue):
        letter = DeadLetter(4, 1, 2, 3, "w", "retries", "e")
        return [FoundLetter(replace(run, attempt=4), "default", letter) for run in self._runs(queue, 1, None)]


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


class Http:
    """One application over one fake broker, and requests to it."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.app = HttpApp(self.broker, SystemClock())

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        then: Callable[[], Awaitable[Any]] | None = None,
    ) -> Response | None:
        """The answer, or None if there was none. A body that is not bytes is sent as JSON.

        `then` stands for what the client's socket does after the request: when it returns, the client has gone.
        """  # fmt: skip
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        path, _, query = target.partition("?")
        given = {"host": "127.0.0.1:7400", "content-type": "application/json", **(headers or {})}
        fields = Fields([(name.lower().encode(), value.encode("latin-1")) for name, value in given.items() if value])
        request = Request(method, path, query.encode(), fields, body or b"")

        async def leave() -> None:
            await then()
            request.disconnected = True
            request._notice()

        leaving = None if then is None else asyncio.ensure_future(leave())
        answer = await self.app.ask(request)
        if leaving is not None:
            leaving.cancel()
        if answer is None:
            return None
        line, *lines = answer_head(answer, close=request.must_close).decode().strip().split("\r\n")
        answered = dict(each.split(": ", 1) for each in lines)
        assert int(answered.get("content-length", 0)) == len(answer.body)
        return Response(int(line.split()[1]), answered, answer.body)


def ask(method: str, target: str, body: Any = None, **more: Any) -> Response:
    """One request to a fresh application."""

    async def one() -> Response | None:
        return await Http().ask(method, target, body, **more)

    response = asyncio.run(one())
    assert response is not None
    return response
