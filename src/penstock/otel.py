"""OpenTelemetry for the SDK: spans for publish, receive, process and settle, and one trace from producer to consumer.

    from penstock.otel import instrument

    client = instrument(Client("http://127.0.0.1:7400"))

Needs `opentelemetry-api` (`pip install 'penstock[otel]'`); the OpenTelemetry SDK exports the spans. Names
follow the semantic conventions for messaging. The context travels in the headers of a message, as W3C `traceparent`
unless you set another propagator. Guide: docs/sdk.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from penstock._version import __version__
from penstock.client import Client
from penstock.client.lowlevel import LeasedBatch, LeasedMessage, MessageRun, StoredMessage
from penstock.client.lowlevel import trace as trace_client
from penstock.errors import PenstockError
from penstock.sync import Client as SyncClient

SYSTEM = "penstock"
LINKS_MAX = 128
"""Links of one span; the default limit of OpenTelemetry SDKs. A batch may have more messages."""

C = TypeVar("C", Client, SyncClient)


def instrument(client: C, tracer_provider: TracerProvider | None = None) -> C:
    """Trace all further calls of this client, with the global provider unless another one is given."""
    tracer = trace.get_tracer("penstock", __version__, tracer_provider)
    trace_client(client, OtelTracing(tracer, client.address))
    return client


class _Sending:
    __slots__ = ("_span", "headers")

    def __init__(self, span: Span, headers: dict[str, str]):
        self._span = span
        self.headers = headers

    def sent(self, id: str, partition: int) -> None:
        self._span.set_attribute("messaging.message.id", id)
        self._span.set_attribute("messaging.destination.partition.id", str(partition))


class _Work(NamedTuple):
    span: Span
    token: Any


class OtelTracing:
    """A `Tracing` that creates spans."""

    def __init__(self, tracer: Tracer, address: tuple[str, int] | None):
        self._tracer = tracer
        self._constant: dict[str, AttributeValue] = {"messaging.system": SYSTEM}
        if address is not None:
            self._constant |= {"server.address": address[0], "server.port": address[1]}

    # -- publish ----------------------------------------------------------------------------------------------

    @contextmanager
    def publishing(
        self, queue: str, headers: Mapping[str, str] | None, *, count: int | None, size: int | None
    ) -> Iterator[_Sending]:
        attributes = self._attributes("publish", "send", queue)
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        if size is not None:
            attributes["messaging.message.body.size"] = size
        with self._span(f"publish {queue}", SpanKind.PRODUCER, attributes) as span:
            carried: dict[str, str] = {}
            propagate.inject(carried, trace.set_span_in_context(span))
            # A context that the caller set explicitly wins.
            yield _Sending(span, carried | dict(headers or {}))

    # -- receive and settle -----------------------------------------------------------------------------------

    def received(self, source: str, group: str, began_ns: int, runs: Sequence[MessageRun]) -> None:
        attributes = self._attributes("receive", "receive", source, group)
        attributes["messaging.batch.message_count"] = sum(run.batch.count for run in runs)
        # A receive span has no parent: the client prefetches, independent of the code that consumes.
        self._tracer.start_span(
            f"receive {source}", contexts.Context(), SpanKind.CLIENT, attributes, _links(runs), start_time=began_ns
        ).end()

    @contextmanager
    def settling(self, verb: str, source: str, group: str, count: int, *, alone: bool) -> Iterator[Span]:
        attributes = self._attributes(verb, "settle", source, group)
        attributes["messaging.batch.message_count"] = count
        context = contexts.Context() if alone else None
        with self._span(f"{verb} {source}", SpanKind.CLIENT, attributes, context) as span:
            yield span

    # -- process ----------------------------------------------------------------------------------------------

    def begin(self, group: str, what: LeasedMessage | LeasedBatch[Any]) -> _Work:
        """A single message continues the trace of its producer; a batch links to the traces of its messages."""
        links: list[Link] = []
        if isinstance(what, LeasedMessage):
            queue = what.queue
            context = propagate.extract(what.headers)
            attributes = self._attributes("process", "process", queue, group)
            attributes["messaging.message.id"] = what.id
            attributes["messaging.destination.partition.id"] = str(what.partition)
            attributes["messaging.message.body.size"] = len(what.payload)
        else:
            queue = what[0].queue if len(what) else ""
            context, links = contexts.get_current(), _links(what._runs)
            attributes = self._attributes("process", "process", queue, group)
            attributes["messaging.batch.message_count"] = len(what)
        span = self._tracer.start_span(f"process {queue}", context, SpanKind.CONSUMER, attributes, links)
        return _Work(span, contexts.attach(trace.set_span_in_context(span, context)))

    def fail(self, work: object, error: BaseException) -> None:
        assert isinstance(work, _Work)
        _failed(work.span, error)

    def end(self, work: object, error: BaseException | None) -> None:
        assert isinstance(work, _Work)
        if error is not None:
            _failed(work.span, error)
        work.span.end()
        contexts.detach(work.token)

    # -- common to all spans ----------------------------------------------------------------------------------

    def _attributes(self, operation: str, kind: str, queue: str, group: str | None = None) -> dict[str, AttributeValue]:
        attributes = {
            **self._constant,
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            "messaging.destination.name": queue,
        }
        if group is not None:
            attributes["messaging.consumer.group.name"] = group
        return attributes

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: dict[str, AttributeValue], context: contexts.Context | None = None
    ) -> Iterator[Span]:
        span = self._tracer.start_span(name, context, kind, attributes)
        try:
            yield span
        except BaseException as error:
            _failed(span, error)
            raise
        finally:
            span.end()


def _failed(span: Span, error: BaseException) -> None:
    kind = type(error)
    span.set_attribute("error.type", error.code if isinstance(error, PenstockError) else kind.__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.record_exception(error)


def _links(runs: Sequence[MessageRun]) -> list[Link]:
    """Links to the producers' spans, up to the limit of a span."""
    links: list[Link] = []
    for run in runs:
        for row in range(run.batch.count):
            if len(links) == LINKS_MAX:
                return links
            message = StoredMessage(run, row)
            headers = message.headers
            if not headers:
                continue
            origin = trace.get_current_span(propagate.extract(headers, contexts.Context())).get_span_context()
            if origin.is_valid:
                links.append(Link(origin, {"messaging.message.id": message.id}))
    return links
