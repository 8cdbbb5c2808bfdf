"""Recurring schedules."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from penstock import limits
from penstock.client.calls.call import delete, get, post, put
from penstock.client.publish.frames import json_of
from penstock.client.transport.carrier import Carrier
from penstock.client.units import milliseconds, moment
from penstock.ids import check_schedule, parse_queue


class Schedules:
    """The schedules of a server, as `Client.schedules`. Each method answers with the schedule as the API shows it."""

    def __init__(self, carrier: Carrier):
        self._carrier = carrier

    async def set(
        self,
        name: str,
        queue: str,
        cron: str,
        value: Any,
        *,
        timezone: str = "UTC",
        catch_up: str = "all",
        starts_at: datetime | float | None = None,
        ends_at: datetime | float | None = None,
        key: str | None = None,
        priority: int = 0,
        ttl: float | None = None,
        headers: Mapping[str, str] | None = None,
        max_retries: int | None = None,
        tenant: str | None = None,
    ) -> dict[str, Any]:
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
        body = {
            "queue": parse_queue(queue), "cron": cron, "timezone": timezone, "catch_up": catch_up, "message": message,
            "starts_at_ms": None if starts_at is None else moment(starts_at),
            "ends_at_ms": None if ends_at is None else moment(ends_at),
        }  # fmt: skip
        return await self._carrier.request(put(_path(name), body))

    async def get(self, name: str) -> dict[str, Any]:
        """With its next five fire times. Raises NotFound."""
        return await self._carrier.request(get(_path(name)))

    async def list(self, prefix: str = "", *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page: `{"schedules": […], "total", "page", "limit"}`."""
        return await self._carrier.request(get("/v1/schedules", prefix=prefix, page=page, limit=limit))

    async def pause(self, name: str) -> dict[str, Any]:
        """Stop firing until it is resumed."""
        return await self._carrier.request(post(f"{_path(name)}/pause"))

    async def resume(self, name: str) -> dict[str, Any]:
        """Go on firing; for fire times that were missed meanwhile its `catch_up` applies."""
        return await self._carrier.request(post(f"{_path(name)}/resume"))

    async def delete(self, name: str) -> dict[str, Any]:
        """The messages that it has published stay."""
        return await self._carrier.request(delete(_path(name)))


def _path(name: str) -> str:
    return f"/v1/schedules/{check_schedule(name)}"
