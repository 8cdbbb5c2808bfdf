"""Recurring schedules."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock import limits
from penstock.client.publish.frames import json_of
from penstock.client.transport.carrier import Carrier
from penstock.client.units import Duration, Moment, milliseconds, moment
from penstock.ids import check_schedule, parse_queue
from penstock.wire.schedules import ScheduleRemovedReply, ScheduleReply, SchedulesReply


class Schedules:
    """The schedules of a server, as `Client.schedules`."""

    def __init__(self, carrier: Carrier):
        self._carrier = carrier

    async def set(
        self, name: str, queue: str, cron: str, value: Any, *, timezone: str = "UTC", catch_up: str = "all",
        starts_at: Moment | None = None, ends_at: Moment | None = None, key: str | None = None,
        priority: int | None = None, ttl: Duration | None = None, headers: Mapping[str, str] | None = None,
        max_retries: int | None = None, tenant: str | None = None,
    ) -> ScheduleReply:  # fmt: skip
        """Publish `value` (JSON or bytes) into `queue` whenever `cron` fires; also changes a schedule that exists.

        `cron` has five fields, or six with seconds in front, and is read in `timezone`. Each fire time has exactly one
        message; for those that were missed (more than a minute ago: the broker was down, the schedule paused, the queue
        full) `catch_up` says whether "all", the "latest" or "none" of them has one. The message carries the headers
        `penstock-schedule` and `penstock-fire-at-ms`. Setting the same again changes nothing.
        """
        message: dict[str, Any] = {"key": key, "priority": priority, "max_retries": max_retries, "tenant": tenant}
        if isinstance(value, bytes | bytearray | memoryview):
            message["payload_b64"] = b64encode(value).decode()
        else:
            message["payload"] = msgspec.Raw(json_of(value))
        if headers is not None:
            message["headers"] = dict(headers)
        if ttl is not None:
            message["ttl_ms"] = milliseconds("ttl", ttl, limits.TTL_MS_MAX, 1)
        return await self._carrier.ask(
            "put_schedule", ScheduleReply, name=check_schedule(name), queue=parse_queue(queue), cron=cron,
            timezone=timezone, catch_up=catch_up, message=message,
            starts_at_ms=None if starts_at is None else moment("starts_at", starts_at),
            ends_at_ms=None if ends_at is None else moment("ends_at", ends_at),
        )  # fmt: skip

    async def get(self, name: str) -> ScheduleReply:
        """With its next five fire times. Raises NotFound."""
        return await self._carrier.ask("get_schedule", ScheduleReply, name=check_schedule(name))

    async def list(self, prefix: str = "", *, page: int = 1, limit: int = 50) -> SchedulesReply:
        """One page of the schedules whose name starts with `prefix`."""
        return await self._carrier.ask("list_schedules", SchedulesReply, prefix=prefix, page=page, limit=limit)

    async def pause(self, name: str) -> ScheduleReply:
        """Stop firing until it is resumed."""
        return await self._carrier.ask("pause_schedule", ScheduleReply, name=check_schedule(name))

    async def resume(self, name: str) -> ScheduleReply:
        """Go on firing; for fire times that were missed meanwhile its `catch_up` applies."""
        return await self._carrier.ask("resume_schedule", ScheduleReply, name=check_schedule(name))

    async def delete(self, name: str) -> ScheduleRemovedReply:
        """The messages that it has published stay."""
        return await self._carrier.ask("delete_schedule", ScheduleRemovedReply, name=check_schedule(name))
