"""Recurring schedules: the calls, and the asyncio shell around them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from penstock import limits
from penstock.client.calls.api import Call
from penstock.client.publish.frames import json_of, milliseconds, moment
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.http1 import Response
from penstock.ids import check_schedule, parse_queue

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


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
        return await self._carrier.request(
            put(
                name, queue, cron, value, timezone=timezone, catch_up=catch_up, starts_at=starts_at, ends_at=ends_at,
                key=key, priority=priority, ttl=ttl, headers=headers, max_retries=max_retries, tenant=tenant,
            )
        )  # fmt: skip

    async def get(self, name: str) -> dict[str, Any]:
        """With its next five fire times. Raises NotFound."""
        return await self._carrier.request(get(name))

    async def list(self, prefix: str = "", *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page: `{"schedules": […], "total", "page", "limit"}`."""
        return await self._carrier.request(list_page(prefix, page, limit))

    async def pause(self, name: str) -> dict[str, Any]:
        """Stop firing until it is resumed."""
        return await self._carrier.request(act(name, "pause"))

    async def resume(self, name: str) -> dict[str, Any]:
        """Go on firing; what was missed meanwhile is made up for as its `catch_up` says."""
        return await self._carrier.request(act(name, "resume"))

    async def delete(self, name: str) -> dict[str, Any]:
        """What it has published stays."""
        return await self._carrier.request(delete(name))


def put(
    name: str,
    queue: str,
    cron: str,
    value: Any,
    *,
    timezone: str,
    catch_up: str,
    starts_at: datetime | float | None,
    ends_at: datetime | float | None,
    key: str | None,
    priority: int,
    ttl: float | None,
    headers: Mapping[str, str] | None,
    max_retries: int | None,
    tenant: str | None,
) -> Call[dict[str, Any]]:
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
    return Call("PUT", _path(name), _read, _encode(body))


def get(name: str) -> Call[dict[str, Any]]:
    return Call("GET", _path(name), _read)


def list_page(prefix: str, page: int, limit: int) -> Call[dict[str, Any]]:
    return Call("GET", f"/v1/schedules?{urlencode({'prefix': prefix, 'page': page, 'limit': limit})}", _read)


def act(name: str, verb: str) -> Call[dict[str, Any]]:
    return Call("POST", f"{_path(name)}/{verb}", _read)


def delete(name: str) -> Call[dict[str, Any]]:
    return Call("DELETE", _path(name), _read)


def _path(name: str) -> str:
    return f"/v1/schedules/{check_schedule(name)}"


def _read(response: Response) -> dict[str, Any]:
    return _decode(response.body)
