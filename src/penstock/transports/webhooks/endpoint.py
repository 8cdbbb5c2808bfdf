"""One webhook: an ordinary consumer that leases a few messages, sends them side by side and settles them.

A message is under a lease only while a request with it is under way, and the lease is renewed meanwhile. Between two
attempts it waits in the queue like any message that failed, with the delay of this attempt: nothing has to be
remembered here, a restart loses nothing, its key waits with it where keys are ordered, and no lease runs out over a
delay of hours. How often it was tried is the message's own attempt. When the delays are used up it is rejected, with
the last error.

Nothing that is leased is forgotten by stopping: what comes back after the end is given back unsent.
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
from penstock.transports.webhooks.breaker import Breaker
from penstock.transports.webhooks.envelope import Message, envelope_of, messages_of
from penstock.transports.webhooks.late_sender import Sends
from penstock.transports.webhooks.sent import Sent
from penstock.transports.webhooks.settling import Settling
from penstock.transports.webhooks.signing import signed_headers
from penstock.wire.webhooks import Attempt, DeliveryStatus, Outcome

if TYPE_CHECKING:
    from penstock.broker.service import Broker

LEASE_MS = 15_000
"""Also how long a message that was under way when the broker was killed waits for its next attempt."""
RENEW_S = LEASE_MS / 3_000
WAIT_MS = 20_000
"""One wait for messages. A webhook that was paused or removed meanwhile notices at the end of it at the latest."""
TROUBLE_S = 1.0
TROUBLE_S_MAX = 60.0
JITTER = 0.2
_SUCCESS: Outcome = "delivered"

_log = get_logger("penstock.webhooks")


class Endpoint:
    def __init__(
        self,
        registration: Registration,
        broker: Broker,
        sender: Sends,
        clock: Clock,
        counted: Callable[[Outcome], None],
    ):
        self.registration = registration
        self.attempts: deque[Attempt] = deque(maxlen=limits.WEBHOOK_ATTEMPTS_KEPT)
        self._broker = broker
        self._sender = sender
        self._clock = clock
        self._counted = counted
        self._settling = Settling(broker)
        self._breaker = Breaker()
        self._changed = asyncio.Event()
        self._in_flight: dict[asyncio.Task[None], Message] = {}
        self._stopping = False
        self._delivered = self._failed = 0
        self._trouble: str | None = None
        self._troubles = 0

    # -- told by the courier ------------------------------------------------------------------------------------------

    def update(self, registration: Registration) -> None:
        """Somebody has changed it, which is also a reason to be hopeful."""
        self.registration = registration
        self._breaker = Breaker()
        self._changed.set()

    def stop(self) -> None:
        """Take nothing more. What is under way is finished."""
        self._stopping = True
        self._changed.set()

    async def give_back(self) -> None:
        """After `stop`, and after `run` had its time to end: what is still under way takes too long."""
        left = dict(self._in_flight)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for task, message in left.items():
            if task.cancelled():
                self._settling.release(message)
        await self._settling.flushed()

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
            trouble=self._trouble,
        )

    # -- taking -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is stopped, and what was under way then has ended and is settled."""
        renewing = asyncio.create_task(self._renew())
        try:
            while room := await self._room():
                await self._take(room)
            if self._in_flight:
                await asyncio.wait(self._in_flight)
            await self._settling.flushed()
        finally:
            renewing.cancel()

    async def _room(self) -> int:
        """How many messages to take, as soon as there is room for one; 0 when it is to end."""
        while not self._stopping:
            self._changed.clear()
            now = self._clock.monotonic()
            if self.registration.active:
                room = self._breaker.room(now, len(self._in_flight), self.registration.concurrency)
                if room:
                    return room
            await self._pause(self._breaker.wait_s(now))
        return 0

    async def _take(self, room: int) -> None:
        hook = self.registration
        try:
            # Without its secrets nothing can be sent, so nothing is taken.
            self._broker.webhooks.secrets(hook.id)
            reply = await self._broker.lease(
                hook.queue,
                group=hook.group,
                max=room,
                wait_ms=WAIT_MS,
                lease_ms=LEASE_MS,
                consumer=f"webhook:{hook.id}",
            )
        except PenstockError as error:
            if self._trouble is None:
                _log.warning("no messages can be taken", webhook=hook.id, reason=error.message)
            self._trouble = error.message
            await self._pause(min(TROUBLE_S * 2**self._troubles, TROUBLE_S_MAX))
            self._troubles = min(self._troubles + 1, 16)
            return
        self._trouble, self._troubles = None, 0
        for message in (message for run in reply.runs for message in messages_of(run)):
            if self._stopping or not self.registration.active:
                self._settling.release(message)
            else:
                task = asyncio.create_task(self._attempt(message))
                self._in_flight[task] = message
                task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error(
                "an attempt failed in a way it should not", webhook=self.registration.id, exc_info=task.exception()
            )

    async def _pause(self, seconds: float | None) -> None:
        """Until something has changed, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            receipts = [message.receipt for message in self._in_flight.values() if message.receipt is not None]
            if receipts:
                with contextlib.suppress(PenstockError):
                    await self._broker.extend(receipts, lease_ms=LEASE_MS)

    # -- sending ------------------------------------------------------------------------------------------------------

    async def _attempt(self, message: Message) -> None:
        hook = self.registration
        at_ms, started = self._clock.now_ms(), self._clock.monotonic()
        try:
            secrets = self._broker.webhooks.secrets(hook.id)
        except PenstockError:
            # Removed meanwhile, or its key is lost. Not the message's fault.
            self._settling.release(message)
            return
        envelope = envelope_of(message, hook.format)
        headers = {**envelope.headers, **signed_headers(secrets, message.id, at_ms, envelope.body)}
        sent = await self._sender.send(hook.url, headers, envelope.body, hook.timeout_ms, at_ms)
        delay_ms = self._judge(hook, message, sent)
        took_ms = round((self._clock.monotonic() - started) * 1000)
        self._counted(sent.outcome)
        self.attempts.append(
            Attempt(
                at_ms, message.id, message.attempt, sent.outcome, sent.status, sent.error, took_ms,
                None if delay_ms is None else self._clock.now_ms() + delay_ms,
            )
        )  # fmt: skip
        if sent.outcome == "gone":
            _log.warning("an endpoint is gone, its webhook is disabled", webhook=hook.id)
            with contextlib.suppress(PenstockError):
                await self._broker.webhooks.disable(hook.id, sent.error or "")

    def _judge(self, hook: Registration, message: Message, sent: Sent) -> int | None:
        """Settle the message by what came of it. Returns the delay to its next attempt, if there is to be one."""
        now = self._clock.monotonic()
        if sent.outcome == _SUCCESS:
            self._delivered += 1
            self._breaker.succeeded()
            self._settling.ack(message)
            return None
        self._failed += 1
        if sent.outcome == "gone":
            # Not the message's fault: it waits, untouched, until the webhook is resumed or removed.
            self._settling.release(message)
            return None
        closed = self._breaker.state(now) == "closed"
        self._breaker.failed(now, (sent.retry_after_ms or 0) / 1000)
        if closed and self._breaker.state(now) != "closed":
            _log.warning("an endpoint is left alone for a while", webhook=hook.id, reason=sent.error)
        error = f"webhook: {sent.error}"
        if message.attempt > len(hook.retry_delays_ms):
            self._settling.reject(message, error)
            return None
        delay_ms = retry_delay_ms(hook.retry_delays_ms[message.attempt - 1], sent.retry_after_ms, random.random())  # noqa: S311
        self._settling.nack(message, delay_ms, error)
        return delay_ms


def retry_delay_ms(delay_ms: int, retry_after_ms: int | None, chance: float) -> int:
    """The delay, spread by a fifth to either side (`chance` is 0 to 1); never sooner than the endpoint asked for."""
    spread = round(delay_ms * (1 + JITTER * (2 * chance - 1)))
    return max(spread, retry_after_ms or 0)
