"""Webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from penstock import limits
from penstock.client.calls.call import Call, delete, encode, get, patch, post, read_object
from penstock.client.transport.carrier import Carrier
from penstock.client.units import milliseconds
from penstock.ids import check_group, parse_queue


class Webhooks:
    """The webhooks of a server, as `Client.webhooks`. Each method answers with the webhook as the API shows it."""

    def __init__(self, carrier: Carrier):
        self._carrier = carrier

    async def add(
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
        """Send the messages of a group to `url`. The answer has the `secret` they are signed with: it is shown once.

        `format` is "plain", "cloudevents-structured" or "cloudevents-binary"; `retry_delays` are seconds after the
        first, second, … failure, and when there is none left the message is a dead letter.
        """
        body: dict[str, Any] = {
            "queue": parse_queue(queue), "url": url, "group": check_group(group), "format": format,
            "description": description, "paused": paused,
            **_in_milliseconds(
                {"retry_delays": retry_delays, "attempt_timeout": attempt_timeout, "concurrency": concurrency}
            ),
        }  # fmt: skip
        # Repeated after an answer that was lost, it is a Conflict that names the webhook; its secret can be rotated.
        return await self._carrier.request(post("/v1/webhooks", body))

    async def get(self, id: str) -> dict[str, Any]:
        """With its state and its latest results. Raises NotFound."""
        return await self._carrier.request(get(_path(id)))

    async def list(self, queue: str | None = None, *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page: `{"webhooks": […], "total", "page", "limit"}`."""
        path = None if queue is None else parse_queue(queue)
        return await self._carrier.request(get("/v1/webhooks", page=page, limit=limit, queue=path))

    async def change(self, /, id: str, **changes: Any) -> dict[str, Any]:
        """Any of `url`, `format`, `retry_delays`, `attempt_timeout`, `concurrency`, `description`."""
        return await self._carrier.request(patch(_path(id), _in_milliseconds(changes)))

    async def pause(self, id: str) -> dict[str, Any]:
        """Send nothing until it is resumed."""
        return await self._carrier.request(post("/v1/webhooks/pause", {"id": id}))

    async def resume(self, id: str) -> dict[str, Any]:
        """Go on sending, also to an endpoint that answered that it is gone."""
        return await self._carrier.request(post("/v1/webhooks/resume", {"id": id}))

    async def rotate(self, id: str, *, overlap: float | None = None) -> dict[str, Any]:
        """A new `secret`, shown once; the earlier one signs as well for `overlap` seconds, a day by default."""
        body: dict[str, Any] = {"id": id}
        if overlap is not None:
            body["overlap_ms"] = milliseconds("overlap", overlap, limits.WEBHOOK_OVERLAP_MS_MAX, 0)
        return await self._carrier.request(post("/v1/webhooks/rotate", body))

    async def test(self, id: str) -> dict[str, Any]:
        """Send a request that is not a message, and answer its result."""
        call = Call("POST", "/v1/webhooks/test", read_object, encode({"id": id}), wait_ms=limits.WEBHOOK_TIMEOUT_MS_MAX)
        return await self._carrier.request(call)

    async def attempts(self, id: str, *, limit: int = 20) -> dict[str, Any]:
        """The latest ones, newest first."""
        return await self._carrier.request(get("/v1/webhooks/attempts", id=id, limit=limit))

    async def delete(self, id: str) -> dict[str, Any]:
        """Messages of its group stay."""
        return await self._carrier.request(delete(_path(id)))


def _in_milliseconds(options: dict[str, Any]) -> dict[str, Any]:
    """Seconds as the milliseconds of the API; options that are None are left out."""
    given = {name: value for name, value in options.items() if value is not None}
    if "retry_delays" in given:
        given["retry_delays_ms"] = [
            milliseconds("retry_delays", delay, limits.WEBHOOK_DELAY_MS_MAX, 0) for delay in given.pop("retry_delays")
        ]
    if "attempt_timeout" in given:
        seconds = given.pop("attempt_timeout")
        given["timeout_ms"] = milliseconds("attempt_timeout", seconds, limits.WEBHOOK_TIMEOUT_MS_MAX, 0)
    return given


def _path(id: str) -> str:
    return f"/v1/webhooks/{quote(id, safe='')}"
