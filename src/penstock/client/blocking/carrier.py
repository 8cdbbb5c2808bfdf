"""The blocking shell's way from a call to its result: send, read, and try again as long as that makes sense."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar

from penstock.client.calls import api as calls
from penstock.client.calls.api import Call
from penstock.client.publish.frames import Frame
from penstock.client.publish.transactions import Transacted, judged, transacted
from penstock.client.tracing import Tracing
from penstock.client.transport.open import SyncTransport
from penstock.client.transport.retry import Policy, Retry
from penstock.errors import PenstockError, StaleReceipt

T = TypeVar("T")


class Carrier:
    """What queues and sessions of a client share. Thread-safe."""

    def __init__(self, transport: SyncTransport, policy: Policy):
        self._transport = transport
        self._policy = policy
        self.tracing: Tracing | None = None
        """Whoever watches."""
        self.kept: Frame | None = None
        """The last frame that was sent (`KEPT_BYTES_MAX`)."""

    def request(self, call: Call[T], retry: Retry | None = None) -> T:
        """The call's result, or the error that remains. Pass a `retry` to learn afterwards what its attempts met."""
        while True:
            try:
                return call.result(self._transport.exchange(call))
            except PenstockError as error:
                retry = retry or self.new_retry()
                delay = retry.delay_after(error, time.monotonic(), reached_before=self._transport.reached)
                if delay is None:
                    raise
            time.sleep(delay)

    def transact(self, receipts: Sequence[str], items: Sequence[dict[str, Any]]) -> Transacted:
        """Raises StaleReceipt only if it surely did not happen."""
        retry, begun = self.new_retry(), time.monotonic()
        try:
            return transacted(self.request(calls.transact(receipts, items), retry))
        except StaleReceipt as error:
            raise judged(error, retry, time.monotonic() - begun) from None

    def new_retry(self, *, within_s: float | None = None) -> Retry:
        """For one call; `within_s` is for one that is not worth the client's whole patience."""
        return Retry(self._policy if within_s is None else self._policy.within(within_s))

    def close(self) -> None:
        self._transport.close()
