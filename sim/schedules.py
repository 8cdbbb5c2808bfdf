"""The ledger's model of recurring schedules: every fire time has one message, or was allowed to have none (I13).

Fire times come from `cronsim` itself, from the start each time, and not from the broker's own code.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

from penstock.batch import layout
from penstock.core import records
from penstock.core.records import ScheduleSpec
from sim.violation import Violation

MISSED_MS = 60_000
"""An older fire time may be skipped."""


class ScheduleModel:
    """One schedule."""

    def __init__(self, name: str):
        self.name = name
        self.spec: ScheduleSpec
        self.next: int | None = None
        self.paused = False
        self.fresh: list[int] = []
        """Fire times with a published message that the schedule has not confirmed yet."""


class Schedules:
    def __init__(self) -> None:
        self.by_name: dict[str, ScheduleModel] = {}
        self.fired: set[tuple[str, int]] = set()

    def set(self, record: records.ScheduleSet) -> None:
        calendar = self.by_name.setdefault(record.name, ScheduleModel(record.name))
        spec = record.spec
        if calendar.next is None or _times(calendar.spec) != _times(spec):
            if record.next != _after(spec, record.at):
                raise Violation("I14", f"schedule {record.name} begins with {record.next}, not the first fire time")
        elif record.next != calendar.next:
            raise Violation("I14", f"schedule {record.name} was at {calendar.next}, and is set to {record.next}")
        calendar.spec, calendar.next = spec, record.next

    def paused(self, record: records.SchedulePaused) -> None:
        self.by_name[record.name].paused = record.paused

    def removed(self, record: records.ScheduleRemoved) -> None:
        del self.by_name[record.name]

    def published(self, record: records.Published, path: str) -> bool:
        """True if a schedule has published the message."""
        if not record.batch.has(layout.HEADERS):
            return False
        every = [msgspec.json.decode(text) for text in record.batch.strings(layout.HEADERS)]
        if "penstock-dead-id" in every[0]:
            return False  # copies of dead letters, which keep their headers
        for headers in every:
            name, time = headers["penstock-schedule"], int(headers["penstock-fire-at-ms"])
            calendar = self.by_name.get(name)
            if calendar is None or calendar.paused or calendar.spec.queue != path:
                raise Violation("I14", f"schedule {name} fired at {record.at} into {path}, and should not have")
            if (name, time) in self.fired:
                raise Violation("I14", f"schedule {name} has a second message for {time}")
            if time > record.at:
                raise Violation("I14", f"schedule {name} fired {time - record.at} ms before its time")
            self.fired.add((name, time))
            calendar.fresh.append(time)
        return True

    def has_fired(self, record: records.ScheduleFired) -> None:
        calendar = self.by_name[record.name]
        spec, due = calendar.spec, calendar.next
        if record.times != calendar.fresh:
            raise Violation("I14", f"schedule {record.name} claims {record.times}, published was {calendar.fresh}")
        calendar.fresh = []
        first = record.times[0] if record.times else record.next
        if due is None or due not in (first, record.skipped_from):
            raise Violation("I14", f"schedule {record.name} was at {due}, and went on with {record.times}")
        if record.skipped_from and first != due:
            self._check_skip(record, spec, due, first)
        for before, after in pairwise([*record.times, record.next]):
            if before is None or after != _after(spec, before):
                raise Violation("I14", f"schedule {record.name} went from {before} to {after}, over a fire time")
        calendar.next = record.next

    def _check_skip(self, record: records.ScheduleFired, spec: ScheduleSpec, due: int, first: int | None) -> None:
        if spec.catch_up == "all" or (spec.catch_up == "latest" and not record.times):
            raise Violation("I14", f"schedule {record.name} skipped {due} under {spec.catch_up}")
        young = _after(spec, max(due, record.at - MISSED_MS) - 1)
        if young is not None and first is not None and young < first:
            raise Violation("I14", f"schedule {record.name} skipped {young}, {record.at - young} ms late")
        if first is not None and (first <= due or first != _after(spec, first - 1)):
            raise Violation("I14", f"schedule {record.name} went from {due} to {first}, which is no fire time")

    def end_of_frame(self) -> None:
        for calendar in self.by_name.values():
            if calendar.fresh:
                raise Violation(
                    "I14", f"schedule {calendar.name} has a message for {calendar.fresh}, but is still at it"
                )


def _after(spec: ScheduleSpec, after_ms: int) -> int | None:
    start = datetime.fromtimestamp(after_ms // 1000, UTC).astimezone(ZoneInfo(spec.timezone))
    for moment in CronSim(spec.cron, start):
        time = round(moment.timestamp() * 1000)
        if time > after_ms:
            return time
    return None


def _times(spec: ScheduleSpec) -> tuple[str, str]:
    return spec.cron, spec.timezone
