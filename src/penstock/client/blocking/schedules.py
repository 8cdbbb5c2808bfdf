"""Recurring schedules without asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.client.admin import schedules as calls
from penstock.client.blocking.carrier import Carrier


class Schedules:
    """The blocking twin of `penstock.Schedules`; see there for what the options mean."""

    def __init__(self, carrier: Carrier):
        self._carrier = carrier

    def set(
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
        """Publish `value` (JSON or bytes) into `queue` whenever `cron` fires; also changes a schedule that exists."""
        return self._carrier.request(
            calls.put(
                name, queue, cron, value, timezone=timezone, catch_up=catch_up, starts_at=starts_at, ends_at=ends_at,
                key=key, priority=priority, ttl=ttl, headers=headers, max_retries=max_retries, tenant=tenant,
            )
        )  # fmt: skip

    def get(self, name: str) -> dict[str, Any]:
        """With its next five fire times. Raises NotFound."""
        return self._carrier.request(calls.get(name))

    def list(self, prefix: str = "", *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page: `{"schedules": […], "total", "page", "limit"}`."""
        return self._carrier.request(calls.list_page(prefix, page, limit))

    def pause(self, name: str) -> dict[str, Any]:
        """Stop firing until it is resumed."""
        return self._carrier.request(calls.act(name, "pause"))

    def resume(self, name: str) -> dict[str, Any]:
        """Go on firing; what was missed meanwhile is made up for as its `catch_up` says."""
        return self._carrier.request(calls.act(name, "resume"))

    def delete(self, name: str) -> dict[str, Any]:
        """What it has published stays."""
        return self._carrier.request(calls.delete(name))
