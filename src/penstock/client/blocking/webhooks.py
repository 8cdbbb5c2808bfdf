"""Webhooks without asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.client.admin import webhooks as calls
from penstock.client.blocking.carrier import Carrier


class Webhooks:
    """The blocking twin of `penstock.Webhooks`; see there for what the options mean."""

    def __init__(self, carrier: Carrier):
        self._carrier = carrier

    def add(
        self,
        queue: str,
        url: str,
        *,
        group: str = "default",
        format: str = "plain",
        retry_delays: Sequence[float] | None = None,
        attempt_timeout: float | None = None,
        concurrency: int | None = None,
        description: str = "",
        paused: bool = False,
    ) -> dict[str, Any]:
        """Send the messages of a group to `url`. The answer has the `secret` they are signed with: it is shown once."""
        return self._carrier.request(
            calls.add(
                queue, url, group=group, format=format, retry_delays=retry_delays, attempt_timeout=attempt_timeout,
                concurrency=concurrency, description=description, paused=paused,
            )
        )  # fmt: skip

    def get(self, id: str) -> dict[str, Any]:
        """With how it is doing. Raises NotFound."""
        return self._carrier.request(calls.get(id))

    def list(self, queue: str | None = None, *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page: `{"webhooks": […], "total", "page", "limit"}`."""
        return self._carrier.request(calls.list_page(queue, page, limit))

    def change(self, id: str, **changes: Any) -> dict[str, Any]:
        """Any of `url`, `format`, `retry_delays`, `attempt_timeout`, `concurrency`, `description`."""
        return self._carrier.request(calls.change(id, changes))

    def pause(self, id: str) -> dict[str, Any]:
        """Send nothing until it is resumed."""
        return self._carrier.request(calls.act(id, "pause"))

    def resume(self, id: str) -> dict[str, Any]:
        """Go on sending, also to an endpoint that said it was gone."""
        return self._carrier.request(calls.act(id, "resume"))

    def rotate(self, id: str, *, overlap: float | None = None) -> dict[str, Any]:
        """A new `secret`, shown once; the earlier one signs as well for `overlap` seconds, a day by default."""
        return self._carrier.request(calls.rotate(id, overlap))

    def test(self, id: str) -> dict[str, Any]:
        """Send something that is not a message, and hear what came of it."""
        return self._carrier.request(calls.act(id, "test"))

    def attempts(self, id: str, *, limit: int = 20) -> dict[str, Any]:
        """The latest ones, newest first."""
        return self._carrier.request(calls.attempts(id, limit))

    def delete(self, id: str) -> dict[str, Any]:
        """Messages of its group stay."""
        return self._carrier.request(calls.delete(id))
