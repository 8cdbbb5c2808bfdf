"""Recurring schedules: messages that a calendar publishes.

A schedule has one next fire time, `next`. When that time has come, the next tick decides the message (or the few
messages) of the fire time, and the fire time after it. Both are records of one decision: after a power loss either the
message is published and the schedule has advanced, or neither. Replay reads the fire times from the records and
computes no calendar.

A message that cannot be published (the queue is full, or deleted) is not skipped: the schedule stays at its fire time,
reports the reason, and tries again. Fire times that passed meanwhile, or while no broker ran, or while the schedule was
paused, are handled as its `catch_up` says:

    latest   the latest of them has its message, the others have none
    all      each of them has its message, in steps of a hundred
    none     none of them has one

A fire time counts as missed when it is more than a minute ago.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice, takewhile
from typing import Any, NamedTuple

import msgspec

from penstock import cron, limits
from penstock.batch import Batch, build, layout
from penstock.batch.check import check_payload_sizes
from penstock.core import commands, records
from penstock.core.decide.publishing import decide_publish
from penstock.core.decision import Decision
from penstock.core.records import Record, ScheduleSpec
from penstock.core.state import Schedule, Shard
from penstock.errors import Conflict, DiskFull, InvalidRequest, NotFound, PenstockError, QueueFull, QueueNotFound

MISSED_MS = 60_000
"""A fire time longer ago than this is missed; a younger one is only late, and has its message in any case."""
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000
FIRE_BYTES = 512
"""About the size of a message without its payload and its own headers."""
_ABSENT = (0, -1, b"")
"""Values of a column that say nothing; a column of nothing else is left out."""
NAME_HEADER = "penstock-schedule"
TIME_HEADER = "penstock-fire-at-ms"


def set_schedule(shard: Shard, command: commands.SetSchedule, now_ms: int) -> Decision:
    """Create the schedule, or change it. It goes on from the fire time it is at, unless its times have changed."""
    existing = shard.schedules.get(command.name)
    if existing is not None and existing.spec == command.spec:
        return Decision([], None)
    due = check_schedule(shard, command, now_ms)
    return Decision([records.ScheduleSet(now_ms, command.name, command.spec, due)], None)


def check_schedule(shard: Shard, command: commands.SetSchedule, now_ms: int) -> int | None:
    """The fire time that the schedule would be at. Raises the refusal of `set_schedule`."""
    spec = command.spec
    existing = shard.schedules.get(command.name)
    if existing is None and len(shard.schedules) >= limits.SCHEDULES_MAX:
        raise Conflict(f"there are {limits.SCHEDULES_MAX} schedules already, which is the limit")
    cron.check(spec.cron, spec.timezone)
    if existing is not None and _times(existing.spec) == _times(spec):
        return existing.next
    due = _fire_after(spec, now_ms)
    if due is None:
        field = "cron" if cron.next_fire(spec.cron, spec.timezone, now_ms) is None else "ends_at_ms"
        raise InvalidRequest(f"{field}: the schedule would never fire", details={"field": field})
    return due


def pause(shard: Shard, command: commands.PauseSchedule, now_ms: int) -> Decision:
    if schedule_of(shard, command.name).paused == command.paused:
        return Decision([], None)
    return Decision([records.SchedulePaused(now_ms, command.name, command.paused)], None)


def remove(shard: Shard, command: commands.RemoveSchedule, now_ms: int) -> Decision:
    schedule_of(shard, command.name)
    return Decision([records.ScheduleRemoved(now_ms, command.name)], None)


def schedule_of(shard: Shard, name: str) -> Schedule:
    schedule = shard.schedules.get(name)
    if schedule is None:
        raise NotFound(f"there is no schedule {name}", details={"schedule": name})
    return schedule


def upcoming(schedule: Schedule, count: int) -> list[int]:
    """The fire times ahead, the one it is at first."""
    if schedule.next is None:
        return []
    spec = schedule.spec
    times = takewhile(lambda at: _before_end(spec, at), cron.fires(spec.cron, spec.timezone, schedule.next))
    return [schedule.next, *islice(times, count - 1)]


def fire(shard: Shard, command: commands.Tick, now_ms: int) -> list[Record]:
    """The facts of schedules that `advance` has listed: all that fit into one publish. If that is refused, of the first
    half of them, and so on: the refusal of one schedule says nothing about the others."""
    due = _take_due(shard, now_ms)
    if command.short_of_space:
        return [_refused(firing.schedule, DiskFull("the disk is full; publishing waits"), now_ms) for firing in due]
    count = len(due)
    made: list[Record] = []
    while count and not made:
        try:
            made = _fire(shard, due[:count], now_ms)
        except PenstockError as error:
            if count == 1:
                made = [_refused(due[0].schedule, error, now_ms)]
            else:
                count //= 2
    # The others have their turn at the next tick, which sees what was published by this one.
    shard.due_schedules = {**dict.fromkeys(firing.schedule.name for firing in due[count:]), **shard.due_schedules}
    return made


def _take_due(shard: Shard, now_ms: int) -> list[_Firing]:
    """The schedules to fire now, up to the size of a publish; at least one. Stale entries are dropped."""
    due: list[_Firing] = []
    size = 0
    for name in list(shard.due_schedules):
        schedule = shard.schedules.get(name)
        if schedule is not None and not schedule.paused and schedule.next is not None and schedule.wakes_at() <= now_ms:
            plan = _plan(schedule.spec, schedule.next, now_ms)
            message = schedule.spec.message
            size += len(plan.times) * (len(message.payload) + FIRE_BYTES + sum(map(len, message.headers.values())))
            if due and size > limits.BATCH_BYTES_MAX // 2:
                break
            due.append(_Firing(schedule, plan))
        del shard.due_schedules[name]
    return due


def _refused(schedule: Schedule, error: PenstockError, now_ms: int) -> Record:
    wait_ms = min(RETRY_MS_MIN << min(schedule.refusals, 16), RETRY_MS_MAX)
    text = error.message[: limits.ERROR_CHARS_MAX]
    return records.ScheduleRefused(now_ms, schedule.name, error.code, text, now_ms + wait_ms)


class _Plan(NamedTuple):
    """The decision on the fire times that have come."""

    times: list[int]
    skipped_from: int
    """The first of those that have no message; 0 if there is none."""
    next: int | None


class _Firing(NamedTuple):
    schedule: Schedule
    plan: _Plan


def _fire(shard: Shard, due: list[_Firing], now_ms: int) -> list[Record]:
    """The messages of these schedules, and that they fired. All or an error."""
    try:
        made = _publish(shard, due, now_ms)
    except QueueFull:
        # The fire times of one schedule may be too many for the queue; the first alone may not.
        schedule, plan = due[0]
        if len(due) > 1 or len(plan.times) < 2:
            raise
        due = [_Firing(schedule, _Plan(plan.times[:1], plan.skipped_from, plan.times[1]))]
        made = _publish(shard, due, now_ms)
    fired = [records.ScheduleFired(now_ms, each.name, plan.times, plan.next, plan.skipped_from) for each, plan in due]
    return [*made, *fired]


def _plan(spec: ScheduleSpec, due: int, now_ms: int) -> _Plan:
    if spec.catch_up == "all" or due >= now_ms - MISSED_MS:
        first: int | None = due
    else:
        first = _fire_after(spec, now_ms - MISSED_MS - 1)
        if spec.catch_up == "latest" and (first is None or first > now_ms):
            until_ms = now_ms if spec.ends_at is None else min(now_ms, spec.ends_at)
            first = cron.latest_fire(spec.cron, spec.timezone, due, until_ms) or due
    times: list[int] = []
    while first is not None and first <= now_ms and len(times) < limits.SCHEDULE_FIRES_MAX:
        times.append(first)
        first = _fire_after(spec, first)
    return _Plan(times, 0 if times and times[0] == due else due, first)


def _publish(shard: Shard, due: list[_Firing], now_ms: int) -> list[Record]:
    """All of them in one publish, with one part for each queue and kind of message."""
    parts: dict[tuple[int, bool, bool], list[tuple[Schedule, int]]] = {}
    for schedule, plan in due:
        number = shard.paths.get(schedule.spec.queue)
        if number is None and plan.times:
            raise QueueNotFound(f"there is no queue {schedule.spec.queue}")
        message = schedule.spec.message
        for time in plan.times:
            # Apart from those with keys: among them, a message without one goes to the first partition.
            parts.setdefault((number or 0, bool(message.key), message.is_json), []).append((schedule, time))
    if not parts:
        return []
    command = commands.Publish([commands.Part(number, _batch(fires)) for (number, _, _), fires in parts.items()], 0)
    for part in command.parts:
        check_payload_sizes(part.batch, shard.queues[part.queue].config.max_payload_bytes)
    # Ids are spread by what fires, not by chance: a tick has no dice.
    schedule, time = next(iter(parts.values()))[0]
    entropy = blake2b(f"{schedule.name}\0{time}".encode(), digest_size=10).digest()
    return decide_publish(shard, command._replace(entropy=int.from_bytes(entropy, "big")), now_ms)[0]


def _batch(fires: list[tuple[Schedule, int]]) -> Batch:
    """One message per fire time: the template, and in its headers which schedule and which time it is of."""
    messages = [schedule.spec.message for schedule, _ in fires]
    columns: dict[int, Any] = {
        layout.HEADERS: [
            msgspec.json.encode({**message.headers, NAME_HEADER: schedule.name, TIME_HEADER: str(time)})
            for message, (schedule, time) in zip(messages, fires, strict=True)
        ]
    }
    optional: dict[int, list[Any]] = {
        layout.PRIORITY: [message.priority for message in messages],
        layout.TTL_MS: [message.ttl_ms or 0 for message in messages],
        layout.MAX_RETRIES: [-1 if message.max_retries is None else message.max_retries for message in messages],
        layout.KEY: [message.key.encode() for message in messages],
        layout.TENANT: [message.tenant.encode() for message in messages],
    }
    columns |= {column: values for column, values in optional.items() if any(value not in _ABSENT for value in values)}
    kind = layout.KIND_JSON if messages[0].is_json else layout.KIND_BYTES
    payloads = [message.payload for message in messages]
    return Batch.open(build(payloads, kind=kind, columns=columns, checked=True), known=True)


def _fire_after(spec: ScheduleSpec, after_ms: int) -> int | None:
    if spec.starts_at is not None:
        after_ms = max(after_ms, spec.starts_at - 1)
    fire_ms = cron.next_fire(spec.cron, spec.timezone, after_ms)
    return fire_ms if fire_ms is not None and _before_end(spec, fire_ms) else None


def _before_end(spec: ScheduleSpec, fire_ms: int) -> bool:
    return spec.ends_at is None or fire_ms <= spec.ends_at


def _times(spec: ScheduleSpec) -> tuple[Any, ...]:
    """All that says when it fires."""
    return spec.cron, spec.timezone, spec.starts_at, spec.ends_at
