"""Spans of the server by OpenTelemetry: receive, grant, commit and deliver; exported by OTLP (extra `otel`).

A request is traced if its `traceparent` says so, or else with the probability `trace_sample`. Spans are made when the
answer is sent, from times that were noted: a request that is not sampled costs one comparison, and a server without
tracing nothing, because no observer is put around its application. Guide: docs/operating/tracing.md.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from penstock._version import __version__
from penstock.batch import layout
from penstock.broker.types import DeliveredRun
from penstock.ids import ulid_text
from penstock.transports.request_log import queue_of

if TYPE_CHECKING:
    from penstock.transports.http.answer import Answer
    from penstock.transports.http.app import Respond, Send
    from penstock.transports.http.request import Request
    from penstock.transports.metrics import Metrics
    from penstock.transports.webhooks.lazy_sender import SenderProtocol

OPERATIONS = {
    "/v1/publish": ("publish", "send"), "/v1/transact": ("transact", "send"), "/v1/lease": ("lease", "receive"),
    "/v1/ack": ("ack", "settle"), "/v1/nack": ("nack", "settle"), "/v1/reject": ("reject", "settle"),
}  # fmt: skip
"""Path -> name and kind of the operations that are traced."""
LINKS_MAX = 128
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


def parse_traceparent(text: str) -> SpanContext | None:
    """The context of a W3C `traceparent`; None if it is not valid."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    context = SpanContext(
        int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=TraceFlags(int(found[3], 16))
    )
    return context if context.is_valid else None


def traceparent_of(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


class RequestTrace:
    """The span of one request, and what its handler has noted."""

    __slots__ = ("began_ns", "runs", "span")

    def __init__(self, span: Span, began_ns: int):
        self.span = span
        self.began_ns = began_ns
        self.runs: Sequence[DeliveredRun] = ()

    def leased(self, runs: Sequence[DeliveredRun]) -> None:
        self.runs = runs


class ServerTracing:
    def __init__(
        self, processor: SpanProcessor, sample: float, metrics: Metrics, now_ns: Callable[[], int] = time.time_ns
    ):
        resource = Resource.create({"service.name": "penstock", "service.version": __version__})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("penstock.server", __version__)
        self._sample = sample
        self._metrics = metrics
        self._now_ns = now_ns
        self._committed_ns = 0
        """When the last commit became durable."""
        self._commit_began_ns = 0

    async def close(self) -> None:
        """Export the spans that wait."""
        await asyncio.to_thread(self._provider.shutdown)

    def committed(self, seconds: float) -> None:
        """A commit became durable; its replies are sent next."""
        self._metrics.commit_seconds.observe(seconds)
        self._committed_ns = self._now_ns()
        self._commit_began_ns = self._committed_ns - int(seconds * 1e9)

    # -- requests -----------------------------------------------------------------------------------------------------

    def observe(self, respond: Respond) -> Respond:
        """`respond` with spans for the requests that are sampled."""

        def observed(request: Request, send: Send) -> None:
            operation = OPERATIONS.get(request.path)
            parent = None if request.fields.traceparent is None else parse_traceparent(request.fields.traceparent)
            sampled = bool(parent.trace_flags & _SAMPLED) if parent is not None else random.random() < self._sample  # noqa: S311
            if operation is None or not sampled:
                respond(request, send)
                return
            began_ns = self._now_ns()
            span = self._start(operation[0], _context(parent), SpanKind.SERVER, began_ns)
            request.trace = traced = RequestTrace(span, began_ns)
            # Messages of this request carry the span of the server, so that consumers continue from it.
            request.fields.traceparent = traceparent_of(span)

            def sent(request: Request, answer: Answer | None) -> None:
                self._finish(traced, request, operation, answer)
                send(request, answer)

            respond(request, sent)

        return observed

    def _finish(
        self, traced: RequestTrace, request: Request, operation: tuple[str, str], answer: Answer | None
    ) -> None:
        span, now_ns = traced.span, self._now_ns()
        queue = queue_of(request) or next((run.queue for run in traced.runs), "")
        span.update_name(f"{operation[0]} {queue}".rstrip())
        span.set_attributes(_attributes(*operation, queue))
        if answer is not None:
            span.set_attribute("http.response.status_code", answer.status)
            if answer.status >= 400:
                span.set_attribute("error.type", str(answer.status))
                span.set_status(Status(StatusCode.ERROR))
        self._children(traced, queue, now_ns)
        span.end(now_ns)
        if operation[0] == "publish":
            trace_id = f"{span.get_span_context().trace_id:032x}"
            self._metrics.publish_seconds.exemplify((now_ns - traced.began_ns) / 1e9, trace_id, now_ns / 1e9)

    def _children(self, traced: RequestTrace, queue: str, now_ns: int) -> None:
        began_ns, context = traced.began_ns, trace.set_span_in_context(traced.span, Context())
        decided_ns = began_ns
        if traced.runs:
            first = traced.runs[0]
            count = sum(run.count for run in traced.runs)
            traced.span.set_attribute("messaging.batch.message_count", count)
            for link, message_id in _origins(traced.runs):
                traced.span.add_link(link, {"messaging.message.id": message_id})
            if first.deadline_at_ms is not None and first.lease_ms is not None:
                decided_ns = max(began_ns, (first.deadline_at_ms - first.lease_ms) * 1_000_000)
                self._child(f"grant {queue}", context, began_ns, decided_ns)
        if self._committed_ns >= began_ns:
            committed_ns = min(self._committed_ns, now_ns)
            # The wait begins with the decision: with that of a lease, or before the commit that has the records.
            waited_ns = decided_ns if traced.runs else max(began_ns, self._commit_began_ns)
            self._child(f"commit {queue}", context, min(waited_ns, committed_ns), committed_ns)
            self._child(f"deliver {queue}" if traced.runs else f"reply {queue}", context, committed_ns, now_ns)

    def _child(self, name: str, context: Context, began_ns: int, ended_ns: int) -> None:
        self._start(name.rstrip(), context, SpanKind.INTERNAL, began_ns).end(max(began_ns, ended_ns))

    def _start(self, name: str, context: Context, kind: SpanKind, began_ns: int) -> Span:
        return self._tracer.start_span(name, context, kind, start_time=began_ns)

    # -- webhooks -----------------------------------------------------------------------------------------------------

    def sending(self, sender: SenderProtocol) -> SenderProtocol:
        """The sender, with a span for each request of a message that is traced."""
        return _TracedSender(sender, self)

    def start_delivery(self, headers: Mapping[str, str]) -> Span | None:
        """The span of a request to an endpoint; None if its message is not traced."""
        parent = parse_traceparent(headers.get("traceparent", ""))
        if parent is None or not parent.trace_flags & _SAMPLED:
            return None
        queue = headers.get("penstock-queue", "")
        span = self._start(f"deliver {queue}", _context(parent), SpanKind.CLIENT, self._now_ns())
        span.set_attributes({**_attributes("deliver", "process", queue), "messaging.message.id": headers["webhook-id"]})
        return span


class _TracedSender:
    def __init__(self, sender: SenderProtocol, tracing: ServerTracing):
        self._sender = sender
        self._tracing = tracing

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int, now_ms: int) -> Any:
        span = self._tracing.start_delivery(headers)
        if span is None:
            return await self._sender.send(url, headers, body, timeout_ms, now_ms)
        try:
            carried = {**headers, "traceparent": traceparent_of(span)}
            sent = await self._sender.send(url, carried, body, timeout_ms, now_ms)
            if sent.status is not None:
                span.set_attribute("http.response.status_code", sent.status)
            if sent.outcome != "delivered":
                span.set_attribute("error.type", sent.outcome)
                span.set_status(Status(StatusCode.ERROR))
            return sent
        finally:
            span.end()

    async def close(self) -> None:
        await self._sender.close()


def _context(parent: SpanContext | None) -> Context:
    return Context() if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def _attributes(name: str, kind: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "penstock", "messaging.operation.name": name, "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }  # fmt: skip


def _origins(runs: Sequence[DeliveredRun]) -> list[tuple[SpanContext, str]]:
    """The spans that published these messages, and the ids of the messages; at most `LINKS_MAX`."""
    found: list[tuple[SpanContext, str]] = []
    for run in runs:
        if not run.batch.has(layout.HEADERS):
            continue
        for row, headers in enumerate(run.batch.strings(layout.HEADERS)):
            if len(found) == LINKS_MAX:
                return found
            origin = parse_traceparent(_decode_headers(headers).get("traceparent", "")) if headers else None
            if origin is not None:
                found.append((origin, ulid_text(run.id + row)))
    return found


def open_tracing(endpoint: str, sample: float, metrics: Metrics) -> ServerTracing:
    """Spans go to `<endpoint>/v1/traces`, in batches, from a thread of their own."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=10)
    return ServerTracing(BatchSpanProcessor(exporter), sample, metrics)
