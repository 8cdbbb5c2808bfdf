"""One webhook: a consumer that leases a few messages, sends them concurrently and settles them.

A message is leased only while its request is in flight, and the lease is extended meanwhile. Between two attempts the
message waits in the queue, nacked with the delay of this attempt. So the endpoint keeps no state of its own: a restart
loses nothing, ordered keys stay in order, and no lease expires during a delay of hours. The attempt number is the
delivery count of the message. When the delays are used up the message is rejected with the last error.

A lease that is granted after `stop` is released unsent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.webhooks import Registration
from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.logs import get_logger
from penstock.transports.webhooks.breaker import CircuitBreaker
from penstock.transports.webhooks.envelope import WebhookMessage, envelope_of, messages_of
from penstock.transports.webhooks.lazy_sender import SenderProtocol
from penstock.transports.webhooks.send_result import SendResult
from penstock.transports.webhooks.settle_batcher import SettleBatcher
from penstock.transports.webhooks.signing import signed_headers
from penstock.wire.webhooks import Attempt, DeliveryStatus, Outcome

if TYPE_CHECKING:
    from penstock.broker.service import Broker

LEASE_MS = 15_000
"""After a kill of the broker, a message in flight waits this long for its next attempt."""
RENEW_S = LEASE_MS / 3_000
WAIT_MS = 20_000
"""The longest wait of one lease call. A paused or removed webhook stops leasing after this time at the latest."""
LEASE_RETRY_S = 1.0
LEASE_RETRY_S_MAX = 60.0
JITTER = 0.2
_SUCCESS: Outcome = "delivered"

_log = get_logger("penstock.webhooks")


class Endpoint:
    def __init__(
        self,
        registration: Registration,
        broker: Broker,
        sender: SenderProtocol,
        clock: Clock,
        counted: Callable[[Outcome], None],
    ):
        self.registration = registration
        self.attempts: deque[Attempt] = deque(maxlen=limits.WEBHOOK_ATTEMPTS_KEPT)
        self._broker = broker
        self._sender = sender
        self._clock = clock
        self._counted = counted
        self._settling = SettleBatcher(broker)
        self._breaker = CircuitBreaker()
        self._changed = asyncio.Event()
        self._in_flight: dict[asyncio.Task[None], WebhookMessage] = {}
        self._stopping = False
        self._delivered = self._failed = 0
        self._lease_error: str | None = None
        self._lease_failures = 0

    # -- called by the deliverer --------------------------------------------------------------------------------------

    def update(self, registration: Registration) -> None:
        """Apply a changed registration and close the circuit, because the change may have repaired the endpoint."""
        self.registration = registration
        self._breaker = CircuitBreaker()
        self._changed.set()

    def stop(self) -> None:
        """Lease no more messages. Attempts in flight go on."""
        self._stopping = True
        self._changed.set()

    async def release_unfinished(self) -> None:
        """Cancel the attempts in flight and release their messages. Call it after `stop`."""
        left = dict(self._in_flight)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for task, message in left.items():
            if task.cancelled():
                self._settling.release(message)
        await self._settling.drain()

    def status(self) -> DeliveryStatus:
        now = self._clock.monotonic()
        wait_s = self._breaker.wait_s(now)
        return DeliveryStatus(
            in_flight=len(self._in_flight),
            delivered=self._delivered,
            failed=self._failed,
            circuit=self._breaker.state(now),
            next_at_ms=None if wait_s is None else self._clock.now_ms() + round(wait_s * 1000),
            last=self.attempts[-1] if self.attempts else None,
            trouble=self._lease_error,
        )

    # -- leasing ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Lease and send until `stop`, then wait until the attempts in flight have ended and are settled."""
        renewing = asyncio.create_task(self._renew())
        try:
            while count := await self._free_slots():
                await self._lease(count)
            if self._in_flight:
                await asyncio.wait(self._in_flight)
            await self._settling.drain()
        finally:
            renewing.cancel()

    async def _free_slots(self) -> int:
        """Wait until a request may start and return how many may; 0 after `stop`."""
        while not self._stopping:
            self._changed.clear()
            now = self._clock.monotonic()
            if self.registration.active:
                count = self._breaker.free_slots(now, len(self._in_flight), self.registration.concurrency)
                if count:
                    return count
            await self._pause(self._breaker.wait_s(now))
        return 0

    async def _lease(self, count: int) -> None:
        hook = self.registration
        try:
            # A webhook without readable secrets cannot sign requests, so it leases nothing.
            self._broker.webhooks.secrets(hook.id)
            reply = await self._broker.messages.lease(
                hook.queue,
                group=hook.group,
                max=count,
                wait_ms=WAIT_MS,
                lease_ms=LEASE_MS,
                consumer=f"webhook:{hook.id}",
            )
        except PenstockError as error:
            if self._lease_error is None:
                _log.warning("webhook_lease_failed", webhook=hook.id, reason=error.message)
            self._lease_error = error.message
            await self._pause(min(LEASE_RETRY_S * 2**self._lease_failures, LEASE_RETRY_S_MAX))
            self._lease_failures = min(self._lease_failures + 1, 16)
            return
        self._lease_error, self._lease_failures = None, 0
        for message in (message for run in reply.runs for message in messages_of(run)):
            if self._stopping or not self.registration.active:
                self._settling.release(message)
            else:
                task = asyncio.create_task(self._attempt(message))
                self._in_flight[task] = message
                task.add_done_callback(self._on_attempt_done)

    def _on_attempt_done(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("webhook_attempt_crashed", webhook=self.registration.id, exc_info=task.exception())

    async def _pause(self, seconds: float | None) -> None:
        """Wait until `_changed` is set, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            receipts = [message.receipt for message in self._in_flight.values() if message.receipt is not None]
            if receipts:
                with contextlib.suppress(PenstockError):
                    await self._broker.messages.extend(receipts, lease_ms=LEASE_MS)

    # -- sending ------------------------------------------------------------------------------------------------------

    async def _attempt(self, message: WebhookMessage) -> None:
        hook = self.registration
        at_ms, started = self._clock.now_ms(), self._clock.monotonic()
        try:
            secrets = self._broker.webhooks.secrets(hook.id)
        except PenstockError:
            # The webhook was removed, or its key is lost: the attempt does not count.
            self._settling.release(message)
            return
        envelope = envelope_of(message, hook.format)
        headers = {**envelope.headers, **signed_headers(secrets, message.id, at_ms, envelope.body)}
        sent = await self._sender.send(hook.url, headers, envelope.body, hook.timeout_ms, at_ms)
        delay_ms = self._settle(hook, message, sent)
        took_ms = round((self._clock.monotonic() - started) * 1000)
        self._counted(sent.outcome)
        self.attempts.append(
            Attempt(
                at_ms, message.id, message.attempt, sent.outcome, sent.status, sent.error, took_ms,
                None if delay_ms is None else self._clock.now_ms() + delay_ms,
            )
        )  # fmt: skip
        if sent.outcome == "gone":
            _log.warning("webhook_disabled_endpoint_gone", webhook=hook.id)
            with contextlib.suppress(PenstockError):
                await self._broker.webhooks.disable(hook.id, sent.error or "")

    def _settle(self, hook: Registration, message: WebhookMessage, sent: SendResult) -> int | None:
        """Settle the message by the result. Returns the delay to its next attempt, None if there is none."""
        now = self._clock.monotonic()
        if sent.outcome == _SUCCESS:
            self._delivered += 1
            self._breaker.succeeded()
            self._settling.ack(message)
            return None
        self._failed += 1
        if sent.outcome == "gone":
            # The attempt does not count: the message waits until the webhook is resumed or removed.
            self._settling.release(message)
            return None
        closed = self._breaker.state(now) == "closed"
        self._breaker.failed(now, (sent.retry_after_ms or 0) / 1000)
        if closed and self._breaker.state(now) != "closed":
            _log.warning("webhook_circuit_opened", webhook=hook.id, reason=sent.error)
        error = f"webhook: {sent.error}"
        if message.attempt > len(hook.retry_delays_ms):
            self._settling.reject(message, error)
            return None
        delay_ms = retry_delay_ms(hook.retry_delays_ms[message.attempt - 1], sent.retry_after_ms, random.random())  # noqa: S311
        self._settling.nack(message, delay_ms, error)
        return delay_ms


def retry_delay_ms(delay_ms: int, retry_after_ms: int | None, chance: float) -> int:
    """The delay with a jitter of 20 % to either side (`chance` is 0 to 1), and at least `retry_after_ms`."""
    spread = round(delay_ms * (1 + JITTER * (2 * chance - 1)))
    return max(spread, retry_after_ms or 0)
