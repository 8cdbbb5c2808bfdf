"""Webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock import limits
from penstock.client.calls.call import operation
from penstock.client.transport.carrier import Carrier
from penstock.client.units import Duration, milliseconds
from penstock.ids import check_group, parse_queue
from penstock.wire.webhooks import AttemptsReply, TestReply, WebhookRemovedReply, WebhookReply, WebhooksReply


class Webhooks:
    """The webhooks of a server, as `Client.webhooks`."""

    def __init__(self, carrier: Carrier):
        self._carrier = carrier

    async def add(
        self, queue: str, url: str, *, group: str | None = None, format: str = "plain",
        retry_delays: Sequence[Duration] | None = None, attempt_timeout: Duration | None = None,
        concurrency: int | None = None, description: str = "", paused: bool = False,
    ) -> WebhookReply:  # fmt: skip
        """Send the messages of a group to `url`. The answer has the `secret` they are signed with: it is shown once.

        Without a `group` the webhook gets one of its own, and with it every message that the queue stores.
        `format` is "plain", "cloudevents-structured" or "cloudevents-binary"; `retry_delays` are the waits after the
        first, second, … failure, and when there is none left the message is a dead letter.
        """
        # Repeated after an answer that was lost, it is a Conflict that names the webhook; its secret can be rotated.
        return await self._carrier.ask(
            "create_webhook", WebhookReply, queue=parse_queue(queue), url=url, format=format, paused=paused,
            group=None if group is None else check_group(group), description=description, concurrency=concurrency,
            **_in_milliseconds({"retry_delays": retry_delays, "attempt_timeout": attempt_timeout}),
        )  # fmt: skip

    async def get(self, id: str) -> WebhookReply:
        """With its state and its latest results. Raises NotFound."""
        return await self._carrier.ask("get_webhook", WebhookReply, id=id)

    async def list(self, queue: str | None = None, *, page: int = 1, limit: int = 50) -> WebhooksReply:
        """One page of the webhooks, oldest first."""
        path = None if queue is None else parse_queue(queue)
        return await self._carrier.ask("list_webhooks", WebhooksReply, page=page, limit=limit, queue=path)

    async def change(self, /, id: str, **changes: Any) -> WebhookReply:
        """Any of `url`, `format`, `retry_delays`, `attempt_timeout`, `concurrency`, `description`."""
        return await self._carrier.ask("change_webhook", WebhookReply, id=id, body=_in_milliseconds(changes))

    async def pause(self, id: str) -> WebhookReply:
        """Send nothing until it is resumed."""
        return await self._carrier.ask("pause_webhook", WebhookReply, id=id)

    async def resume(self, id: str) -> WebhookReply:
        """Go on sending, also to an endpoint that answered that it is gone."""
        return await self._carrier.ask("resume_webhook", WebhookReply, id=id)

    async def rotate(self, id: str, *, overlap: Duration | None = None) -> WebhookReply:
        """A new `secret`, shown once; the earlier one signs as well for `overlap`, a day by default."""
        most = limits.WEBHOOK_OVERLAP_MS_MAX
        overlap_ms = None if overlap is None else milliseconds("overlap", overlap, most)
        return await self._carrier.ask("rotate_webhook", WebhookReply, id=id, overlap_ms=overlap_ms)

    async def test(self, id: str) -> TestReply:
        """Send a request that is not a message, and answer its result."""
        call = operation("test_webhook", TestReply, id=id)
        return await self._carrier.request(msgspec.structs.replace(call, wait_ms=limits.WEBHOOK_TIMEOUT_MS_MAX))

    async def attempts(self, id: str, *, limit: int = 20) -> AttemptsReply:
        """The latest ones, newest first."""
        return await self._carrier.ask("webhook_attempts", AttemptsReply, id=id, limit=limit)

    async def delete(self, id: str) -> WebhookRemovedReply:
        """Messages of its group stay."""
        return await self._carrier.ask("delete_webhook", WebhookRemovedReply, id=id)


def _in_milliseconds(options: dict[str, Any]) -> dict[str, Any]:
    """Durations as the milliseconds of the API; options that are None are left out."""
    given = {name: value for name, value in options.items() if value is not None}
    if "retry_delays" in given:
        given["retry_delays_ms"] = [
            milliseconds("retry_delays", delay, limits.WEBHOOK_DELAY_MS_MAX) for delay in given.pop("retry_delays")
        ]
    if "attempt_timeout" in given:
        timeout = given.pop("attempt_timeout")
        given["timeout_ms"] = milliseconds("attempt_timeout", timeout, limits.WEBHOOK_TIMEOUT_MS_MAX)
    return given
