"""Bringing dead letters back, in the background, at a rate that a live queue can take.

A redrive is a fact before anything moves, and what it has moved is counted in the same decision that moves it. So a
restart goes on where it ended, and a redrive that is asked for again answers what it did: its id makes it happen once.

Without a target the messages become ready again at their own offsets, only for the group that gave them up. With a
target they are published there as copies; the copy and the end of the letter are one decision.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Literal

import msgspec

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.broker.deadletters import Candidate, DeadLetterOperations, Scan, Which, parse_which
from penstock.broker.intake import Intake, default_priority
from penstock.broker.types import Entropy, RedriveReply, Submit
from penstock.core import commands
from penstock.core.state import Queue
from penstock.core.state.dead_letters import Redrive
from penstock.errors import (
    Conflict,
    DiskFull,
    InvalidRequest,
    NotFound,
    QueueFull,
    QueueNotFound,
    RateLimited,
    Unavailable,
)
from penstock.ids import QueuePath, ulid_text
from penstock.runtime.stored import when_at_hand
from penstock.runtime.view import ShardView
from penstock.wire.filters import parse_filter

STEPS_PER_S = 10
"""A redrive moves a tenth of its rate at a time."""
SAMPLE = 10
"""Letters that a dry run shows."""
PAUSE_S = 1.0
"""After something passing: a full target, a full disk, a commit that does not keep up."""

_encode = msgspec.json.Encoder().encode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_KEPT_INTEGERS = ((layout.TTL_MS, 0), (layout.MAX_RETRIES, -1))
_KEPT_TEXTS = (layout.KEY, layout.TENANT)


class Redrives:
    def __init__(
        self, view: ShardView, submit: Submit, letters: DeadLetterOperations, intake: Intake, entropy: Entropy
    ):
        self._view = view
        self._submit = submit
        self._letters = letters
        self._intake = intake
        self._entropy = entropy
        self._tasks: dict[tuple[int, str], asyncio.Task[None]] = {}
        """The redrives that are under way, by queue and id."""

    async def start(
        self,
        path: QueuePath,
        *,
        group: str | None = None,
        filter: str | None = None,
        ids: Sequence[str] | None = None,
        target: QueuePath | None = None,
        delay_ms: int = 0,
        priority: int | None = None,
        rate_per_s: int = 100,
        dry_run: bool = True,
        redrive_id: str | None = None,
    ) -> RedriveReply:
        """Bring dead letters back, in the background; or only say which. An id that is known starts nothing new."""
        queue, which = self._view.queue(path), parse_which(group, filter, ids)
        if group and group not in queue.groups:
            raise NotFound(f"queue {path} has no group {group!r}", details={"field": "group"})
        elsewhere = None if target == path else target
        self._check_target(queue, elsewhere, priority)
        name = redrive_id or ulid_text(self._view.now_ms() << 80 | self._entropy(80))
        if dry_run:
            count, sample = await self._letters.count(queue, which, SAMPLE)
            found = {"redrive_id": name, "queue": path, "dry_run": True, "count": count, "sample": sample}
            return RedriveReply(found)
        if elsewhere is not None:
            self._intake.make_queue(elsewhere)
        started = self._submit(
            commands.StartRedrive(
                queue.number, name, group or "", filter, [message.to_bytes(16, "big") for message in which.ids or ()],
                elsewhere or "", delay_ms, priority, rate_per_s,
            )
        )  # fmt: skip
        # Started before the record is durable, because the caller may be cancelled by then. Moves are written after it.
        self.go_on(queue.number, name)
        await started
        return RedriveReply({"dry_run": False, **described(queue, find(self._view.queue(path), name))})

    def _check_target(self, queue: Queue, elsewhere: QueuePath | None, priority: int | None) -> None:
        if elsewhere is not None:
            self._intake.check_message(elsewhere, priority)
            target = self._view.find_queue(elsewhere)
            config = self._view.new_queue if target is None else target.config
            if queue.config.encryption and not config.encryption:
                raise Conflict(
                    f"the dead letters of {queue.path} are encrypted, and {elsewhere} is not: copies there would be "
                    "readable on the disk, and stay when the originals are erased; choose an encrypted queue",
                    details={"field": "target"},
                )
        elif priority is not None:
            raise InvalidRequest(
                "a message that becomes ready again in its own place keeps its priority; name another queue as target",
                details={"field": "priority"},
            )

    def list(self, path: QueuePath, redrive_id: str | None = None) -> dict[str, Any]:
        """Those under way and the latest that ended, newest first; or the one of this id."""
        queue = self._view.queue(path)
        chosen = [find(queue, redrive_id)] if redrive_id is not None else [*reversed(queue.redrives.values())]
        return {"redrives": [described(queue, redrive) for redrive in chosen]}

    async def stop(self, path: QueuePath, redrive_id: str) -> dict[str, Any]:
        """Messages that were already moved are not moved back; the others stay dead letters."""
        queue = self._view.queue(path)
        find(queue, redrive_id)
        await self._submit(commands.EndRedrive(queue.number, redrive_id, "stopped"))
        return described(queue, find(self._view.queue(path), redrive_id))

    def resume(self) -> None:
        """Continue redrives that are under way and have no task in this process, such as those of the last process, or
        those whose end was decided and not written because the disk was full."""
        for queue in self._view.queues():
            for redrive in queue.redrives.values():
                if redrive.running:
                    self.go_on(queue.number, redrive.id)

    def go_on(self, queue: int, redrive_id: str) -> None:
        task = self._tasks.get((queue, redrive_id))
        if task is None or task.done():
            self._tasks[queue, redrive_id] = asyncio.ensure_future(self._run(queue, redrive_id))

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, queue: int, redrive_id: str) -> None:
        mover: _Mover | None = None
        try:
            while (redrive := self._running(queue, redrive_id)) is not None:
                if mover is None or mover.redrive is not redrive:
                    # The first time; or the shard has read itself again, and what was decided last may not have been.
                    mover = _Mover(self._view, self._submit, self._entropy, queue, redrive)
                try:
                    await (self._submit(mover.ending()) if mover.ended else mover.step())
                except (Unavailable, DiskFull, RateLimited):
                    await asyncio.sleep(PAUSE_S)
                except QueueNotFound:
                    mover.give_up(f"there is no queue {redrive.target} any more")
        finally:
            self._tasks.pop((queue, redrive_id), None)

    def _running(self, queue: int, redrive_id: str) -> Redrive | None:
        found = self._view.queue_numbered(queue)
        redrive = found.redrives.get(redrive_id) if found is not None else None
        return redrive if redrive is not None and redrive.running else None


class _Mover:
    """Moves the letters of one redrive, a few at a time."""

    def __init__(self, view: ShardView, submit: Submit, entropy: Entropy, queue: int, redrive: Redrive):
        self.redrive = redrive
        self.skipped = 0
        self.error = ""
        self._view = view
        self._submit = submit
        self._entropy = entropy
        self._queue = queue
        ids = [int.from_bytes(message_id, "big") for message_id in redrive.ids]
        by_filter = parse_filter(redrive.filter) if redrive.filter is not None else None
        which = Which(redrive.group, by_filter, ids if by_filter is None else None)
        self._scan = Scan(view, queue, which, until_ms=redrive.at)
        self._pending: deque[Candidate] = deque()
        """Found, and not moved yet."""
        self._most = max(1, min(limits.REDRIVE_STEP_MESSAGES, redrive.rate_per_s // STEPS_PER_S))
        self._step = self._most
        self._next_at = _now()

    @property
    def ended(self) -> bool:
        return bool(self.error) or (self._scan.ended and not self._pending)

    def give_up(self, error: str) -> None:
        self.error = error

    def ending(self) -> commands.EndRedrive:
        outcome: Literal["finished", "failed"] = "failed" if self.error else "finished"
        return commands.EndRedrive(self._queue, self.redrive.id, outcome, self.skipped, self.error)

    async def step(self) -> None:
        """Raises what the machine refuses with; then nothing has moved, and the next step begins with the same."""
        if not self._pending:
            self._pending.extend(self._scan.step(self._most))
        if not self._pending:
            await asyncio.sleep(0)
            return
        command, taken, skipped = self._in_place() if not self.redrive.target else await when_at_hand(self._copies)
        try:
            moved = await self._submit(command) if command.letters else 0
        except QueueFull:
            if taken == 1:
                raise
            # There may be room for a few, and always waiting for room for many would mean never.
            self._step = taken // 2
            return
        self.skipped += skipped
        for _ in range(taken):
            self._pending.popleft()
        self._step = min(self._most, self._step * 2)
        self._next_at = max(self._next_at, _now()) + moved / self.redrive.rate_per_s
        await asyncio.sleep(max(0.0, self._next_at - _now()))

    def _in_place(self) -> tuple[commands.RedriveLetters, int, int]:
        letters = [candidate.name for candidate in islice(self._pending, self._step)]
        return commands.RedriveLetters(self._queue, self.redrive.id, letters), len(letters), 0

    def _copies(self) -> tuple[commands.RedriveLetters, int, int]:
        """The step's command, with how many of the pending letters it deals, and how many of those it leaves alone."""
        target = self._view.queue(self.redrive.target)
        size_max = target.config.max_payload_bytes
        chosen: list[Candidate] = []
        taken = size = skipped = 0
        for candidate in islice(self._pending, self._step):
            run = candidate.run
            if run is None:
                raise Unavailable("a dead letter is not durable yet")
            if candidate.damaged or run.batch.payload_bytes_max() > size_max:
                skipped += 1
            else:
                chosen.append(candidate)
                size += len(run.batch.frame)
            taken += 1
            if size >= limits.REDRIVE_STEP_BYTES:
                break
        letters = [candidate.name for candidate in chosen]
        part = (
            commands.Part(target.number, copies(chosen, self.redrive, default_priority(target.config)))
            if chosen
            else None
        )
        return commands.RedriveLetters(self._queue, self.redrive.id, letters, part, self._entropy(80)), taken, skipped


def copies(candidates: Sequence[Candidate], redrive: Redrive, priority: int) -> Batch:
    """The messages as they are to be published again: the same bytes, and headers that say where they come from.

    A client's id stays behind, or the copy might be taken for a duplicate; so does the moment at which the original
    was due. A time to live starts over. `priority` is for messages that have none.
    """
    runs = [candidate.run for candidate in candidates]
    batches = [run.batch for run in runs if run is not None]
    columns: dict[int, Sequence[int] | Sequence[bytes]] = {}
    if priority or any(batch.has(layout.PRIORITY) for batch in batches):
        columns[layout.PRIORITY] = [
            batch.integers(layout.PRIORITY)[0] if batch.has(layout.PRIORITY) else priority for batch in batches
        ]
    for column, nothing in _KEPT_INTEGERS:
        if any(batch.has(column) for batch in batches):
            columns[column] = [batch.integers(column)[0] if batch.has(column) else nothing for batch in batches]
    for column in _KEPT_TEXTS:
        if any(batch.has(column) for batch in batches):
            columns[column] = [batch.string(column, 0) for batch in batches]
    columns[layout.HEADERS] = [_headers(candidate, redrive.id) for candidate in candidates]
    if redrive.priority is not None:
        columns[layout.PRIORITY] = [redrive.priority] * len(batches)
    if redrive.delay_ms:
        columns[layout.DELAY_MS] = [redrive.delay_ms] * len(batches)
    payloads = [batch.payload(0) for batch in batches]
    kinds = [int(batch.is_json(0)) for batch in batches]
    return Batch.open(build(payloads, kinds=kinds, columns=columns, checked=all(batch.checked for batch in batches)))


def _headers(candidate: Candidate, redrive_id: str) -> bytes:
    """The message's own, and where it comes from as long as there is room for that."""
    run = candidate.run
    assert run is not None
    own = run.batch.string(layout.HEADERS, 0)
    headers = {
        **(_decode_headers(own) if own else {}),
        "penstock-dead-queue": run.queue,
        "penstock-dead-id": ulid_text(run.id),
        "penstock-dead-group": candidate.queue.group_names[candidate.position.group],
        "penstock-dead-reason": candidate.letter.reason,
        "penstock-redrive": redrive_id,
    }
    text = _encode(headers)
    return text if len(headers) <= limits.HEADERS_COUNT_MAX and len(text) <= limits.HEADERS_BYTES_MAX else own


def find(queue: Queue, redrive_id: str) -> Redrive:
    """Raises NotFound."""
    redrive = queue.redrives.get(redrive_id)
    if redrive is None:
        raise NotFound(f"queue {queue.path} remembers no redrive {redrive_id[:128]!r}", details={"field": "redrive_id"})
    return redrive


def described(queue: Queue, redrive: Redrive) -> dict[str, Any]:
    return {
        "redrive_id": redrive.id,
        "queue": queue.path,
        "status": redrive.outcome or "running",
        "redriven": redrive.redriven,
        "skipped": redrive.skipped,
        "error": redrive.error,
        "group": redrive.group or None,
        "filter": redrive.filter,
        "target": redrive.target or None,
        "delay_ms": redrive.delay_ms,
        "priority": redrive.priority,
        "rate_per_s": redrive.rate_per_s,
        "started_at_ms": redrive.at,
        "ended_at_ms": redrive.ended_at or None,
    }


def _now() -> float:
    return asyncio.get_running_loop().time()
