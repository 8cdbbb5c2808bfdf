"""All webhooks of a server: one running `Endpoint` for each registration."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from penstock import limits
from penstock.broker.types import DeliveredRun
from penstock.broker.webhooks import Registration
from penstock.clock import Clock
from penstock.errors import Unavailable
from penstock.ids import ulid_text
from penstock.transports.webhooks.endpoint import Endpoint
from penstock.transports.webhooks.envelope import WebhookMessage, envelope_of, messages_of
from penstock.transports.webhooks.guard import Guard
from penstock.transports.webhooks.lazy_sender import SenderProtocol
from penstock.transports.webhooks.signing import signed_headers
from penstock.wire.webhooks import Attempt, DeliveryStatus, TestReply

if TYPE_CHECKING:
    from penstock.broker.service import Broker

TEST_PREFIX = "test_"
BY_HAND = 0
"""The number of an attempt that is not one of the deliveries of the queue."""


class WebhookDeliverer:
    """Delivers webhooks from `start` to `close`. Implements the broker's `Courier` protocol."""

    def __init__(self, broker: Broker, guard: Guard, sender: SenderProtocol, clock: Clock):
        self._broker = broker
        self._guard = guard
        self._sender = sender
        self._clock = clock
        self._endpoints: dict[str, Endpoint] = {}
        self._running: dict[asyncio.Task[None], Endpoint] = {}
        """Includes endpoints that were removed and whose task has not ended."""
        self._tests = 0
        self._stopping = False
        self.outcomes: Counter[str] = Counter()
        """Attempts since the start of the server, by outcome."""

    def start(self) -> None:
        self._broker.webhooks.attach(self)
        for registration in self._broker.webhooks.registrations():
            self.changed(registration.id)

    def stop(self) -> None:
        """Lease no more messages. Attempts in flight go on until `close`."""
        self._stopping = True
        for endpoint in self._running.values():
            endpoint.stop()

    async def close(self, grace_s: float = 0.0) -> None:
        """Wait up to `grace_s` for attempts in flight, release the other messages and close all connections.

        Call the broker's `stop_waiting` first: it ends the leases that still wait for messages.
        """
        self.stop()
        left = dict(self._running)
        if left:
            await asyncio.wait(left, timeout=grace_s)
        await asyncio.gather(*(endpoint.release_unfinished() for endpoint in left.values()))
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._sender.close()

    def deny_own(self, host: str, port: int) -> None:
        """Refuse requests to this address, because the server itself listens on it."""
        self._guard.deny_own(host, port)

    # -- called by the broker -----------------------------------------------------------------------------------------

    def check_url(self, url: str) -> None:
        self._guard.check_url(url)

    def changed(self, id: str) -> None:
        registration = self._broker.webhooks.registration(id)
        endpoint = self._endpoints.get(id)
        if registration is None:
            if endpoint is not None:
                self._endpoints.pop(id).stop()
        elif endpoint is not None:
            endpoint.update(registration)
        elif not self._stopping:
            endpoint = self._endpoints[id] = Endpoint(
                registration, self._broker, self._sender, self._clock, self._count
            )
            task = asyncio.create_task(endpoint.run())
            self._running[task] = endpoint
            task.add_done_callback(lambda done: self._running.pop(done, None))

    async def test(self, registration: Registration) -> TestReply:
        return await self._send_extra(registration, _test_message(registration, self._clock.now_ms()))

    async def resend(self, registration: Registration, run: DeliveredRun) -> TestReply:
        (message,) = messages_of(run)
        reply = await self._send_extra(registration, message)
        self._count(reply.outcome)
        endpoint = self._endpoints.get(registration.id)
        if endpoint is not None:
            at_ms = self._clock.now_ms() - reply.duration_ms
            endpoint.attempts.append(
                Attempt(at_ms, message.id, BY_HAND, reply.outcome, reply.status, reply.error, reply.duration_ms)
            )
        return reply

    async def _send_extra(self, registration: Registration, message: WebhookMessage) -> TestReply:
        """Send what no lease asks for, a bounded number at a time."""
        if self._tests >= limits.WEBHOOK_TESTS_MAX:
            raise Unavailable(
                f"{self._tests} tests and repeated deliveries are running, which is the limit", retry_after_ms=1_000
            )
        self._tests += 1
        try:
            # asyncio.timeout needs a task, and the caller may run without one.
            return await asyncio.create_task(self._send(registration, message))
        finally:
            self._tests -= 1

    def status(self, id: str) -> DeliveryStatus | None:
        endpoint = self._endpoints.get(id)
        return None if endpoint is None else endpoint.status()

    def attempts(self, id: str, limit: int) -> list[Attempt]:
        endpoint = self._endpoints.get(id)
        return [] if endpoint is None else list(endpoint.attempts)[: -limit - 1 : -1]

    async def _send(self, hook: Registration, message: WebhookMessage) -> TestReply:
        at_ms, started = self._clock.now_ms(), self._clock.monotonic()
        envelope = envelope_of(message, hook.format)
        signed = signed_headers(self._broker.webhooks.secrets(hook.id), message.id, at_ms, envelope.body)
        headers = {**envelope.headers, **signed}
        sent = await self._sender.send(hook.url, headers, envelope.body, hook.timeout_ms, at_ms)
        took_ms = round((self._clock.monotonic() - started) * 1000)
        return TestReply(hook.id, message.id, sent.outcome, sent.status, sent.error, took_ms)

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] += 1


def _test_message(hook: Registration, at_ms: int) -> WebhookMessage:
    """A test delivery. Receivers recognize it by the prefix of its id and by its type."""
    id = TEST_PREFIX + ulid_text(at_ms << 80 | secrets.randbits(80))
    content: Mapping[str, object] = {
        "type": "penstock.test",
        "webhook": hook.id,
        "queue": hook.queue,
        "group": hook.group,
        "at_ms": at_ms,
    }
    return WebhookMessage(id, hook.queue, msgspec.json.encode(content), True, {}, None, 1, at_ms, None)
