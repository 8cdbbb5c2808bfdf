"""Applying changes of schedules, and the times at which they fired."""

from __future__ import annotations

from penstock.core import records
from penstock.core.state import Schedule, Shard

CATCH_UP_PACE_MS = 100
"""Between two steps of a schedule that has much to make up for."""


def apply_set(shard: Shard, record: records.ScheduleSet) -> None:
    schedule = shard.schedules.get(record.name)
    if schedule is None:
        schedule = shard.schedules[record.name] = Schedule(record.name, record.spec, record.at)
    schedule.spec = record.spec
    schedule.changed_at = record.at
    schedule.next = record.next
    schedule.hopeful()
    shard.arm_schedule(schedule)


def apply_paused(shard: Shard, record: records.SchedulePaused) -> None:
    schedule = shard.schedules[record.name]
    schedule.paused = record.paused
    schedule.hopeful()
    shard.arm_schedule(schedule)


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
    shard.arm_schedule(schedule)


def apply_refused(shard: Shard, record: records.ScheduleRefused) -> None:
    schedule = shard.schedules[record.name]
    schedule.not_before = record.retry_at
    schedule.refused_at = schedule.refused_at or record.at
    schedule.refusals += 1
    schedule.error_code, schedule.error = record.code, record.error
    shard.arm_schedule(schedule)
