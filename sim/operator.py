"""The operator: creates the queues, then cancels, moves, reads, reconfigures, purges and deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Conflict, PenstockError
from penstock.wire.schedules import CatchUp, ScheduleMessage, ScheduleRequest
from sim.network import NoAnswer
from sim.plan import QueuePlan
from sim.sent_messages import KEYS

if TYPE_CHECKING:
    from sim.workload import Workload

LATE_GROUPS = 2
SCHEDULES = 3
CATCH_UP: tuple[CatchUp, ...] = ("latest", "all", "none")
RARE_CRONS = ("5 3 * * *", "30 2 * * SUN")
CRONS = ("*/5 * * * * *", "7,8,50 * * * * *", "* * * * *", "*/10 * * * *")


class Operator:
    def __init__(self, workload: Workload):
        self._workload = workload
        self._plan = plan = workload.plan
        self._rng = plan.rng("operator")
        self._late_groups = 0
        self._redrives = 0
        self._known_redrives: list[tuple[str, dict[str, Any]]] = []
        actions: dict[str, list[Callable[[], Awaitable[None]]]] = {
            "cancels": [self._cancel, self._cancel_key, *([self._cancel_own] if plan.has("client_ids") else [])],
            "reschedules": [self._reschedule, self._reschedule_key],
            "reads": [self._read, self._read, self._peek],
            "patches": [self._patch],
            "purges": [self._purge],
            "deletes": [self._delete],
            "late_groups": [self._late_group],
            "growth": [self._grow],
            "redrives": [self._redrive, self._redrive, self._repeat_redrive, self._stop_redrive, self._delete_letters],
            "schedules": [self._schedule, self._schedule, self._touch_schedule],
            "offsets": [self._keep_offsets],
        }
        self._actions = [action for name, some in actions.items() if plan.has(name) for action in some]

    async def set_up(self) -> None:
        for queue in self._plan.queues:
            await self._put(queue)

    async def meddle(self) -> None:
        rng = self._rng
        while self._actions and self._workload.working():
            await asyncio.sleep(rng.expovariate(1 / (5 * self._plan.pace)))
            await rng.choice(self._actions)()

    async def _put(self, queue: QueuePlan) -> None:
        confirm: dict[str, Any] = {}
        while self._workload.working():
            try:
                await self._workload.network.call("queues.put", queue.path, queue.config, **confirm)
            except NoAnswer:
                await asyncio.sleep(0.2)
            except PenstockError as error:
                if "confirm" in error.details:
                    # A publish created the queue first, and it has messages that the new settings would remove.
                    confirm = {"confirm": error.details["confirm"]}
                elif not error.retryable:
                    return
                await asyncio.sleep(0.5)
            else:
                return

    async def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return await self._workload.network.call(method, *arguments, **options)
        except (NoAnswer, PenstockError) as error:
            return error

    def _queue(self) -> QueuePlan:
        return self._rng.choice(self._plan.queues)

    def _some_known(self) -> tuple[str, list[str]] | None:
        known = self._workload.known
        if not known:
            return None
        queue, _ = self._rng.choice(known)
        ids = [text for path, text in known if path == queue]
        return queue, self._rng.sample(ids, min(len(ids), self._rng.choice((1, 1, 3))))

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _cancel(self) -> None:
        chosen = self._some_known()
        if chosen is not None:
            await self._call("scheduled.cancel", chosen[0], ids=chosen[1])

    async def _cancel_own(self) -> None:
        """By a client id; then, in most cases, publish a message under the same id."""
        own_ids = self._workload.own_ids
        if not own_ids:
            return
        sent = self._rng.choice(own_ids)
        own_id = sent.client_id.decode()
        if self._rng.random() < 0.3:
            await self._call("scheduled.reschedule", sent.queue, ids=[own_id], delay_ms=4_000, about=own_id)
        reply = await self._call("scheduled.cancel", sent.queue, ids=[own_id], about=own_id)
        queue = self._workload.ledger.paths.get(sent.queue)
        if not isinstance(reply, Exception) and reply[0] and queue is not None:
            cancelled = [message.id for message in queue.own_ids.get(own_id, ()) if message.ended == "cancelled"]
            sent.freed = cancelled[-1] if cancelled else 0
        if self._rng.random() < 0.7:
            await self._workload.publish_again(sent)

    async def _cancel_key(self) -> None:
        if self._rng.random() < 0.3:
            await self._call("scheduled.cancel", self._queue().path, key=self._key())

    async def _reschedule(self) -> None:
        chosen = self._some_known()
        if chosen is not None:
            when = self._rng.choice(
                ({"delay_ms": 0}, {"delay_ms": 4_000}, {"deliver_at_ms": max(0, self._workload.ledger.now_ms - 1_000)})
            )
            await self._call("scheduled.reschedule", chosen[0], ids=chosen[1], **when)

    async def _reschedule_key(self) -> None:
        await self._call(
            "scheduled.reschedule", self._queue().path, key=self._key(), delay_ms=self._rng.choice((0, 1_500))
        )

    def _key(self) -> str:
        return self._rng.choice(KEYS).decode()

    async def _read(self) -> None:
        queue = self._queue()
        partition = self._rng.randrange(queue.config.get("partitions", 1))
        offset = self._rng.choice(("earliest", "earliest", "3"))
        wait_ms = self._rng.choice((0, 0, 2_000))
        await self._call(
            "log.read", queue.path, partition=partition, offset=offset, max=self._rng.choice((1, 10, 500)),
            wait_ms=wait_ms, wait_s=wait_ms / 1000,
        )  # fmt: skip

    async def _peek(self) -> None:
        await self._call("log.peek", self._queue().path, max=self._rng.choice((1, 20)))
        await self._call("stats.queue", self._queue().path)

    async def _patch(self) -> None:
        queue = self._queue()
        changes: list[dict[str, Any]] = [
            {"max_retries": 2},
            {"lease_ms": 3_000},
            {"dead_letter": False},
            {"dead_letter": True},
            {"delay_ms": 300},
            {"delay_ms": 0},
            {"max_messages": 50} if self._plan.has("max_messages") else {"max_retries": 0},
            {"ttl_ms": 15_000} if self._plan.has("ttl") else {"max_retries": 5},
            {"retention": {"mode": "keep", "ms": None, "bytes": None}}
            if self._plan.has("keep")
            else {"lease_ms": 2_000},
            {"retention": {"mode": "until_acked", "ms": None, "bytes": None}},
        ]
        if self._plan.has("scopes"):
            changes += [{"queue_priority": 2}, {"queue_priority": -2}]
        if self._plan.has("windows"):
            changes += [{"window_ms": 0}, {"window_ms": 700}, {"window_max_wait_ms": 1_500}]
        change = self._rng.choice(changes)
        first = await self._call("queues.patch", queue.path, change)
        if isinstance(first, Conflict) and "confirm" in first.details and self._rng.random() < 0.7:
            await self._call("queues.patch", queue.path, change, confirm=first.details["confirm"])

    async def _grow(self) -> None:
        if self._rng.random() < 0.1:
            queue = self._queue()
            stored = self._workload.ledger.paths.get(queue.path)
            if stored is not None and len(stored.partitions) < 6:
                await self._call("queues.patch", queue.path, {"partitions": len(stored.partitions) + 1})

    async def _purge(self) -> None:
        if self._rng.random() < 0.3:
            await self._confirmed("queues.purge", self._queue())

    async def _delete(self) -> None:
        if self._rng.random() < 0.3:
            queue = self._queue()
            await self._confirmed("queues.delete", queue)
            if self._rng.random() < 0.7:
                await self._put(queue)

    async def _confirmed(self, method: str, queue: QueuePlan) -> None:
        first = await self._call(method, queue.path)
        if isinstance(first, Conflict):
            await self._call(method, queue.path, confirm=first.details["confirm"])

    async def _schedule(self) -> None:
        rng = self._rng
        catch_up = rng.choice(CATCH_UP)
        asked = ScheduleRequest(
            queue=self._queue().path,
            # A clock may be set a year ahead while the broker is down; a schedule for every minute would fire too
            # often.
            cron=rng.choice(RARE_CRONS if catch_up == "all" and self._plan.has("steps") else CRONS),
            message=ScheduleMessage(payload=msgspec.Raw(b'"by schedule"')),
            timezone=rng.choice(("UTC", "Europe/Berlin", "America/New_York")),
            catch_up=catch_up,
        )
        await self._call("schedules.put", f"s{rng.randrange(SCHEDULES)}", asked)

    async def _touch_schedule(self) -> None:
        name = f"s{self._rng.randrange(SCHEDULES)}"
        if self._rng.random() < 0.2:
            await self._call("schedules.remove", name)
            return
        await self._call("schedules.pause", name, paused=True)
        # Some pauses are so long that fire times are missed.
        await asyncio.sleep(self._rng.choice((1, 5, 90)))
        await self._call("schedules.pause", name, paused=False)

    async def _keep_offsets(self) -> None:
        queue = self._queue()
        partition = self._rng.randrange(queue.config.get("partitions", 1))
        reader = self._rng.choice(("ada", "bob"))
        if self._rng.random() < 0.5:
            await self._call("readers.keep", queue.path, reader, {partition: self._rng.randrange(20)})
        elif self._rng.random() < 0.1:
            await self._call("readers.forget", queue.path, reader)
        await self._call("readers.get", queue.path, reader)
        await self._call("log.read", queue.path, partition=partition, offset="kept", max=10, client_id=reader)

    # -- dead letters -------------------------------------------------------------------------------------------------

    FILTERS = ("", "", 'reason = "rejected"', 'key = "ada" or key = "bob"', "age > 5s", 'not error ~ "never"')

    async def _redrive(self) -> None:
        rng = self._rng
        self._redrives += 1
        terms = {
            "filter": rng.choice(self.FILTERS),
            "group": rng.choice((None, None, "default")),
            "target": rng.choice((None, None, rng.choice(self._plan.queues).path, "sim/default/mended")),
            "delay_ms": rng.choice((0, 0, 3_000)),
            "rate_per_s": rng.choice((1, 20, 1_000)),
            "redrive_id": f"redrive-{self._redrives}",
        }
        self._known_redrives.append((self._queue().path, terms))
        path, terms = self._known_redrives[-1]
        if rng.random() < 0.3:
            await self._call("redrives.start", path, **terms, dry_run=True)
        await self._call("redrives.start", path, **terms, dry_run=False)

    async def _repeat_redrive(self) -> None:
        if self._known_redrives:
            path, terms = self._rng.choice(self._known_redrives[-5:])
            await self._call("redrives.start", path, **terms, dry_run=False)

    async def _stop_redrive(self) -> None:
        if self._known_redrives and self._rng.random() < 0.3:
            path, terms = self._rng.choice(self._known_redrives[-3:])
            await self._call("redrives.stop", path, terms["redrive_id"])

    async def _delete_letters(self) -> None:
        if self._rng.random() < 0.4:
            path, which = self._queue().path, {"filter": self._rng.choice(self.FILTERS)}
            first = await self._call("dead_letters.delete", path, **which)
            if isinstance(first, Conflict):
                await self._call("dead_letters.delete", path, **which, confirm=first.details["confirm"])
            await self._call("dead_letters.page", path, **which, limit=20)

    async def _late_group(self) -> None:
        """A reader that starts late, reads for a while and disconnects without notice."""
        if self._late_groups < LATE_GROUPS and self._rng.random() < 0.2:
            self._late_groups += 1
            name = f"late-{self._late_groups}"
            stay_s = self._workload.network.now_s() + self._rng.choice((1, 20, 60))
            self._workload.spawn(
                self._workload.consume(self._queue().path, name, name, min(stay_s, self._workload.until_s))
            )
