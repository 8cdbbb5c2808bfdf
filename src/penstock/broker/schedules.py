"""Recurring schedules, as people ask for them and see them."""

from __future__ import annotations

from base64 import b64encode

import msgspec

from penstock import cron, limits
from penstock.broker.intake import Intake
from penstock.broker.types import Submit
from penstock.core import commands
from penstock.core.decide.schedules import NAME_HEADER, TIME_HEADER, upcoming
from penstock.core.records import ScheduleSpec, Template
from penstock.core.state import Schedule
from penstock.errors import InvalidRequest, TooLarge
from penstock.ids import QueuePath, parse_queue
from penstock.runtime.view import ShardView
from penstock.wire.publishing import batch_of
from penstock.wire.schedules import (
    ScheduleError,
    ScheduleMessage,
    ScheduleReply,
    ScheduleRequest,
    SchedulesReply,
    ShownMessage,
    SkippedFires,
)


class Schedules:
    def __init__(self, view: ShardView, submit: Submit, intake: Intake):
        self._view = view
        self._submit = submit
        self._intake = intake

    async def put(self, name: str, asked: ScheduleRequest) -> tuple[ScheduleReply, bool]:
        """Create or change; also whether it is new. Setting what is set already changes nothing."""
        cron.check(asked.cron, asked.timezone)
        path, template = parse_queue(asked.queue), _template(name, asked.message)
        priority = self._intake.check_message(path, asked.message.priority, len(template.payload))
        spec = ScheduleSpec(
            path,
            asked.cron,
            msgspec.structs.replace(template, priority=priority),
            asked.timezone,
            asked.catch_up,
            asked.starts_at_ms,
            asked.ends_at_ms,
        )
        created = name not in self._view.schedules()
        command = commands.SetSchedule(name, spec)
        # Everything is checked before the queue is created: a refused schedule leaves no queue behind.
        self._view.check(command)
        self._intake.make_queue(QueuePath(spec.queue))
        await self._submit(command)
        return self.get(name), created

    def has(self, name: str) -> bool:
        return name in self._view.schedules()

    def get(self, name: str) -> ScheduleReply:
        return _shown(self._view.schedule(name), limits.SCHEDULE_NEXT_SHOWN)

    def list(self, *, prefix: str, page: int, limit: int) -> SchedulesReply:
        schedules = self._view.schedules()
        names = sorted(name for name in schedules if name.startswith(prefix))
        # The first fire time is known; the ones after it would have to be computed, for each of them.
        shown = [_shown(schedules[name], 1) for name in names[(page - 1) * limit : page * limit]]
        return SchedulesReply(shown, len(names), page, limit)

    async def pause(self, name: str, *, paused: bool) -> ScheduleReply:
        await self._submit(commands.PauseSchedule(name, paused))
        return self.get(name)

    async def remove(self, name: str) -> None:
        await self._submit(commands.RemoveSchedule(name))


def _template(name: str, asked: ScheduleMessage) -> Template:
    """Raises InvalidRequest or TooLarge for what a publish would refuse."""
    batch = batch_of([asked.as_published()])
    headers = asked.headers or {}
    for header in (NAME_HEADER, TIME_HEADER):
        if header in headers:
            raise InvalidRequest(f"headers: {header} is put in when the schedule fires", details={"field": "headers"})
    marked = {**headers, NAME_HEADER: name, TIME_HEADER: str(limits.TIME_MS_MAX)}
    if len(msgspec.json.encode(marked)) > limits.HEADERS_BYTES_MAX:
        raise TooLarge(f"headers: over the limit of {limits.HEADERS_BYTES_MAX} bytes", details={"field": "headers"})
    tenant = asked.tenant or ""
    if len(tenant.encode()) > limits.TENANT_BYTES_MAX:
        raise InvalidRequest(f"tenant: over {limits.TENANT_BYTES_MAX} bytes", details={"field": "tenant"})
    return Template(
        batch.payload(0), batch.is_json(0), asked.key or "", asked.priority or 0, headers, asked.ttl_ms,
        asked.max_retries, tenant,
    )  # fmt: skip


def _shown(schedule: Schedule, times: int) -> ScheduleReply:
    spec = schedule.spec
    state = "active"
    if schedule.next is None:
        state = "ended"
    elif schedule.paused:
        state = "paused"
    elif schedule.error_code:
        state = "failing"
    return ScheduleReply(
        name=schedule.name,
        queue=spec.queue,
        cron=spec.cron,
        timezone=spec.timezone,
        catch_up=spec.catch_up,
        starts_at_ms=spec.starts_at,
        ends_at_ms=spec.ends_at,
        message=_shown_message(spec.message),
        state=state,  # type: ignore[arg-type]
        next=upcoming(schedule, times),
        last_fire_at_ms=schedule.last_fire,
        fired=schedule.fired,
        skipped=SkippedFires(schedule.skipped_from, schedule.skipped_until) if schedule.skipped_from else None,
        error=ScheduleError(schedule.error_code, schedule.error, schedule.refused_at, schedule.not_before)
        if schedule.error_code
        else None,
        created_at_ms=schedule.created_at,
        changed_at_ms=schedule.changed_at,
    )


def _shown_message(template: Template) -> ShownMessage:
    shown = ShownMessage(
        template.key or None, template.priority, template.ttl_ms, template.headers, template.max_retries,
        template.tenant or None,
    )  # fmt: skip
    if template.is_json:
        shown.payload = msgspec.Raw(template.payload)
    else:
        shown.payload_b64 = b64encode(template.payload).decode()
    return shown
