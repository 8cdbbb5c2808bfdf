"""Hooks for tracing. `penstock.otel` implements them; without a tracer each is a comparison with None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from penstock.client.messages.leased import ReceiptSpan
from penstock.client.messages.stored import MessageRun

if TYPE_CHECKING:
    from penstock.client.blocking.client import BlockingClient
    from penstock.client.client import Client
    from penstock.client.consume.messages import LeasedBatch, LeasedMessage


class Sending(Protocol):
    """One publish that is under way."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers to send: those of the caller, and those that carry the trace to the consumer."""

    def sent(self, id: str, partition: int) -> None:
        """Of a single message: where it is stored."""


class Tracing(Protocol):
    """Called as things happen. No method may raise."""

    def publishing(
        self, queue: str, headers: Mapping[str, str] | None, *, count: int | None, size: int | None
    ) -> AbstractContextManager[Sending]:
        """Around a publish; `count` is that of a batch."""

    def received(self, source: str, group: str, began_ns: int, runs: Sequence[MessageRun]) -> None:
        """A lease call that began at this wall-clock time has brought these."""

    def settling(
        self, verb: str, source: str, group: str, count: int, *, alone: bool
    ) -> AbstractContextManager[object]:
        """Around a call that settles so many messages. `alone`: no caller waits for it."""

    def begin(self, group: str, what: LeasedMessage | LeasedBatch[Any]) -> object:
        """The work on this begins, in this context. The answer is for `end` and `fail`."""

    def fail(self, work: object, error: BaseException) -> None:
        """The work has failed, though nothing may be raised."""

    def end(self, work: object, error: BaseException | None) -> None:
        """The work ends, in the context in which it began."""


def trace(client: Client | BlockingClient, tracing: Tracing) -> None:
    """Report all that this client does from now on."""
    client._carrier.tracing = tracing


def settling(
    tracing: Tracing | None, verb: str, source: str, group: str, spans: Sequence[ReceiptSpan], *, alone: bool = False
) -> AbstractContextManager[object]:
    """`Tracing.settling`, if there is a tracer and there is anything to settle."""
    if tracing is None or not spans:
        return nullcontext()
    return tracing.settling(verb, source, group, sum(span.size for span in spans), alone=alone)
