"""Webhooks: the calls, and the asyncio shell around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from penstock import limits
from penstock.client.calls.api import Call
from penstock.client.publish.frames import milliseconds
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.http1 import Response
from penstock.ids import check_group, parse_queue

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


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
        return await self._carrier.request(
            add(
                queue, url, group=group, format=format, retry_delays=retry_delays, attempt_timeout=attempt_timeout,
                concurrency=concurrency, description=description, paused=paused,
            )
        )  # fmt: skip

    async def get(self, id: str) -> dict[str, Any]:
        """With how it is doing. Raises NotFound."""
        return await self._carrier.request(get(id))

    async def list(self, queue: str | None = None, *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page: `{"webhooks": […], "total", "page", "limit"}`."""
        return await self._carrier.request(list_page(queue, page, limit))

    async def change(self, id: str, **changes: Any) -> dict[str, Any]:
        """Any of `url`, `format`, `retry_delays`, `attempt_timeout`, `concurrency`, `description`."""
        return await self._carrier.request(change(id, changes))

    async def pause(self, id: str) -> dict[str, Any]:
        """Send nothing until it is resumed."""
        return await self._carrier.request(act(id, "pause"))

    async def resume(self, id: str) -> dict[str, Any]:
        """Go on sending, also to an endpoint that said it was gone."""
        return await self._carrier.request(act(id, "resume"))

    async def rotate(self, id: str, *, overlap: float | None = None) -> dict[str, Any]:
        """A new `secret`, shown once; the earlier one signs as well for `overlap` seconds, a day by default."""
        return await self._carrier.request(rotate(id, overlap))

    async def test(self, id: str) -> dict[str, Any]:
        """Send something that is not a message, and hear what came of it."""
        return await self._carrier.request(act(id, "test"))

    async def attempts(self, id: str, *, limit: int = 20) -> dict[str, Any]:
        """The latest ones, newest first."""
        return await self._carrier.request(attempts(id, limit))

    async def delete(self, id: str) -> dict[str, Any]:
        """Messages of its group stay."""
        return await self._carrier.request(delete(id))


def add(
    queue: str,
    url: str,
    *,
    group: str,
    format: str,
    retry_delays: Sequence[float] | None,
    attempt_timeout: float | None,
    concurrency: int | None,
    description: str,
    paused: bool,
) -> Call[dict[str, Any]]:
    body: dict[str, Any] = {
        "queue": parse_queue(queue), "url": url, "group": check_group(group), "format": format,
        "description": description, "paused": paused,
        **_times({"retry_delays": retry_delays, "attempt_timeout": attempt_timeout, "concurrency": concurrency}),
    }  # fmt: skip
    # Repeated after an answer that was lost, it is a Conflict that names the webhook; its secret can be rotated.
    return Call("POST", "/v1/webhooks", _read, _encode(body))


def get(id: str) -> Call[dict[str, Any]]:
    return Call("GET", _path(id), _read)


def list_page(queue: str | None, page: int, limit: int) -> Call[dict[str, Any]]:
    query: dict[str, Any] = {"page": page, "limit": limit}
    if queue is not None:
        query["queue"] = parse_queue(queue)
    return Call("GET", f"/v1/webhooks?{urlencode(query)}", _read)


def change(id: str, changes: dict[str, Any]) -> Call[dict[str, Any]]:
    return Call("PATCH", _path(id), _read, _encode(_times(changes)))


def act(id: str, verb: str) -> Call[dict[str, Any]]:
    wait_ms = limits.WEBHOOK_TIMEOUT_MS_MAX if verb == "test" else 0
    return Call("POST", f"/v1/webhooks/{verb}", _read, _encode({"id": id}), wait_ms=wait_ms)


def rotate(id: str, overlap: float | None) -> Call[dict[str, Any]]:
    body: dict[str, Any] = {"id": id}
    if overlap is not None:
        body["overlap_ms"] = milliseconds("overlap", overlap, limits.WEBHOOK_OVERLAP_MS_MAX, 0)
    return Call("POST", "/v1/webhooks/rotate", _read, _encode(body))


def attempts(id: str, limit: int) -> Call[dict[str, Any]]:
    return Call("GET", f"/v1/webhooks/attempts?{urlencode({'id': id, 'limit': limit})}", _read)


def delete(id: str) -> Call[dict[str, Any]]:
    return Call("DELETE", _path(id), _read)


def _times(options: dict[str, Any]) -> dict[str, Any]:
    """Seconds as the milliseconds of the API; what is None was not given."""
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


def _read(response: Response) -> dict[str, Any]:
    return _decode(response.body)
