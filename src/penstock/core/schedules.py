"""Recurring schedules: messages that a calendar publishes.

A schedule is at one fire time, `next`. When it has come, the next tick decides one thing: the message (or the few
messages) of that time, and what the fire time after it is. Both are facts of one decision, so a fire time has its
message or the schedule is still at it: there is nothing in between for a power loss to find. Replay reads the fire
times that were decided, and never asks a calendar.

What cannot be published (the queue is full, or gone) is not passed over: the schedule stays where it is, says why, and
tries again. Fire times that were missed meanwhile, or while nobody was there, or while it was paused, are made up for
by its `catch_up`:

    latest   the latest of them has its message, the others have none
    all      each of them has its message, in steps of a hundred
    none     none of them has one

A fire time counts as missed when it is more than a minute ago.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heappush
from itertools import islice, takewhile
from typing import Any, NamedTuple

import msgspec

from penstock import cron, limits
from penstock.batch import Batch, build, layout
from penstock.batch.check import check_payload_sizes
from penstock.core import commands, records
from penstock.core.decision import Decision
from penstock.core.publishing import decide_publish
from penstock.core.records import Record, ScheduleSpec
from penstock.core.state import Schedule, Shard
from penstock.errors import Conflict, DiskFull, InvalidRequest, NotFound, PenstockError, QueueFull, QueueNotFound

MISSED_MS = 60_000
"""A fire time longer ago than this is missed; a younger one is only late, and has its message in any case."""
CATCH_UP_PACE_MS = 100
"""Between two steps of a schedule that has much to make up for."""
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000
NAME_HEADER = "penstock-schedule"
TIME_HEADER = "penstock-fire-at-ms"


# -- deciding -----------------------------------------------------------------------------------------------------


def set_schedule(shard: Shard, command: commands.SetSchedule, now_ms: int) -> Decision:
    """Create the schedule, or change it. It goes on from the fire time it is at, unless its times have changed."""
    spec = command.spec
    existing = shard.schedules.get(command.name)
    if existing is not None and existing.spec == spec:
        return Decision([], None)
    if existing is None and len(shard.schedules) >= limits.SCHEDULES_MAX:
        raise Conflict(f"there are {limits.SCHEDULES_MAX} schedules already, which is the limit")
    cron.check(spec.cron, spec.timezone)
    if existing is not None and _times(existing.spec) == _times(spec):
        due = existing.next
    else:
        due = _fire_after(spec, now_ms)
        if due is None:
            field = "cron" if cron.next_fire(spec.cron, spec.timezone, now_ms) is None else "ends_at_ms"
            raise InvalidRequest(f"{field}: the schedule would never fire", details={"field": field})
    return Decision([records.ScheduleSet(now_ms, command.name, spec, due)], None)


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


def fire_one(shard: Shard, command: commands.Tick, now_ms: int) -> list[Record]:
    """The facts of one schedule that `advance` has listed. One at a time: each publish must see the one before."""
    while shard.due_schedules:
        name = next(iter(shard.due_schedules))
        del shard.due_schedules[name]
        schedule = shard.schedules.get(name)
        if schedule is None or schedule.paused or schedule.next is None or schedule.wakes_at() > now_ms:
            continue
        try:
            if command.short_of_space:
                raise DiskFull("the disk is full; publishing waits")
            return _fire(shard, schedule, schedule.next, now_ms)
        except PenstockError as error:
            wait_ms = min(RETRY_MS_MIN << min(schedule.refusals, 16), RETRY_MS_MAX)
            text = error.message[: limits.ERROR_CHARS_MAX]
            return [records.ScheduleRefused(now_ms, name, error.code, text, now_ms + wait_ms)]
    return []


class _Plan(NamedTuple):
    """What to do about the fire times that have come."""

    times: list[int]
    skipped_from: int
    """The first of those that have no message; 0 if there is none."""
    next: int | None


def _fire(shard: Shard, schedule: Schedule, due: int, now_ms: int) -> list[Record]:
    plan = _plan(schedule.spec, due, now_ms)
    try:
        made = _publish(shard, schedule, plan.times, now_ms)
    except QueueFull:
        # Together they may be too many for the queue; the first alone may not.
        if len(plan.times) < 2:
            raise
        plan = _Plan(plan.times[:1], plan.skipped_from, plan.times[1])
        made = _publish(shard, schedule, plan.times, now_ms)
    return [*made, records.ScheduleFired(now_ms, schedule.name, plan.times, plan.next, plan.skipped_from)]


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


def _publish(shard: Shard, schedule: Schedule, times: list[int], now_ms: int) -> list[Record]:
    if not times:
        return []
    number = shard.paths.get(schedule.spec.queue)
    if number is None:
        raise QueueNotFound(f"there is no queue {schedule.spec.queue}")
    batch = _batch(schedule, times)
    check_payload_sizes(batch, shard.queues[number].config.max_payload_bytes)
    # Ids are spread by what fires, not by chance: a tick has no dice.
    entropy = blake2b(f"{schedule.name}\0{times[0]}".encode(), digest_size=10).digest()
    command = commands.Publish([commands.Part(number, batch)], int.from_bytes(entropy, "big"))
    return decide_publish(shard, command, now_ms)[0]


def _batch(schedule: Schedule, times: list[int]) -> Batch:
    """One message per fire time: the template, and in its headers which schedule and which time it is of."""
    template, count = schedule.spec.message, len(times)
    columns: dict[int, Any] = {
        layout.HEADERS: [
            msgspec.json.encode({**template.headers, NAME_HEADER: schedule.name, TIME_HEADER: str(time)})
            for time in times
        ]
    }
    if template.priority:
        columns[layout.PRIORITY] = [template.priority] * count
    if template.ttl_ms:
        columns[layout.TTL_MS] = [template.ttl_ms] * count
    if template.max_retries is not None:
        columns[layout.MAX_RETRIES] = [template.max_retries] * count
    if template.key:
        columns[layout.KEY] = [template.key.encode()] * count
    if template.tenant:
        columns[layout.TENANT] = [template.tenant.encode()] * count
    kind = layout.KIND_JSON if template.is_json else layout.KIND_BYTES
    return Batch.open(build([template.payload] * count, kind=kind, columns=columns, checked=True))


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


# -- applying -----------------------------------------------------------------------------------------------------


def apply_set(shard: Shard, record: records.ScheduleSet) -> None:
    schedule = shard.schedules.get(record.name)
    if schedule is None:
        schedule = shard.schedules[record.name] = Schedule(record.name, record.spec, record.at)
    schedule.spec = record.spec
    schedule.changed_at = record.at
    schedule.next = record.next
    schedule.hopeful()
    arm(shard, schedule)


def apply_paused(shard: Shard, record: records.SchedulePaused) -> None:
    schedule = shard.schedules[record.name]
    schedule.paused = record.paused
    schedule.hopeful()
    arm(shard, schedule)


def apply_removed(shard: Shard, record: records.ScheduleRemoved) -> None:
    del shard.schedules[record.name]


def apply_fired(shard: Shard, record: records.ScheduleFired) -> None:
    schedule = shard.schedules[record.name]
    schedule.next = record.next
    schedule.hopeful()
    if record.next is not None and record.next <= record.at:
        schedule.not_before = record.at + CATCH_UP_PACE_MS
    if record.times:
        schedule.fired += len(record.times)
        schedule.last_fire = record.times[-1]
    if record.skipped_from:
        schedule.skipped_from = record.skipped_from
        schedule.skipped_until = record.times[0] if record.times else record.next or record.at
    arm(shard, schedule)


def apply_refused(shard: Shard, record: records.ScheduleRefused) -> None:
    schedule = shard.schedules[record.name]
    schedule.not_before = record.retry_at
    schedule.refused_at = schedule.refused_at or record.at
    schedule.refusals += 1
    schedule.error_code, schedule.error = record.code, record.error
    arm(shard, schedule)


def arm(shard: Shard, schedule: Schedule) -> None:
    """See to it that this schedule is looked at when it has something to do; soft."""
    if schedule.next is not None and not schedule.paused:
        heappush(shard.alarms, (schedule.wakes_at(), schedule.name))
