"""Spans of a running server, received by a collector of OTLP over HTTP."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from http_server import Server, running
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from receiver import LOOPBACK, receiving

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


class Collector:
    """Decodes the spans that are sent to it."""

    def __init__(self) -> None:
        self.spans: list = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Write nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def named(self, name: str) -> list:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str):
        (span,) = self.named(name)
        return span


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()


def publish(server: Server, queue: str, *messages: dict, **headers: str):
    answer = server.ask("POST", "/v1/publish", {"queue": queue, "messages": list(messages)}, **headers)
    assert answer.status == 201, answer.body
    return answer.json["messages"]


def attributes(span) -> dict:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_one_trace_from_the_request_to_the_consumer_and_the_webhook(tmp_path):
    with collecting() as collector, receiving() as receiver:
        flags = ("--trace", collector.url, "--trace-sample", "0", "--webhook-allow", LOOPBACK)
        with running(tmp_path / "data", *flags) as server:
            server.ask("POST", "/v1/webhooks", {"queue": "traced", "url": receiver.url})
            publish(server, "traced", {"payload": 1}, traceparent=SAMPLED)
            (leased,) = server.lease("traced")
            _, trace_id, span_id, flags = leased["headers"]["traceparent"].split("-")
            assert (trace_id, flags) == (TRACE, "01") and span_id != SPAN
            (delivery,) = receiver.wait_for(1)
            again = server.ask(
                "POST", "/v1/lease", {"queue": "traced", "group": "linked"}, traceparent=f"00-{'a' * 32}-{'b' * 16}-01"
            )
            assert len(again.json["messages"]) == 1
            text = server.ask("GET", "/metrics", accept="application/openmetrics-text").body.decode()
            assert f'# {{trace_id="{TRACE}"}}' in text
            server.terminate()
        published, commit = collector.one("publish traced"), collector.named("commit traced")[0]
        assert published.trace_id.hex() == TRACE and published.parent_span_id.hex() == SPAN
        assert published.span_id.hex() == span_id
        assert commit.trace_id == published.trace_id and commit.parent_span_id == published.span_id
        assert published.start_time_unix_nano <= commit.start_time_unix_nano
        assert commit.start_time_unix_nano <= commit.end_time_unix_nano <= published.end_time_unix_nano
        assert attributes(published)["messaging.destination.name"] == "traced"
        sent = collector.one("deliver default/default/traced")
        assert sent.trace_id.hex() == TRACE and sent.parent_span_id == published.span_id
        assert delivery.headers["traceparent"] == f"00-{TRACE}-{sent.span_id.hex()}-01"
        lease = collector.one("lease traced")
        (link,) = lease.links
        assert (link.trace_id.hex(), link.span_id) == (TRACE, published.span_id)
        for name in ("grant traced", "commit traced", "deliver traced"):
            assert [span for span in collector.named(name) if span.parent_span_id == lease.span_id], name


def test_requests_without_a_trace_are_sampled_by_share(tmp_path):
    for share, expected in (("0", 0), ("1", 5)):
        with collecting() as collector:
            with running(tmp_path / share, "--trace", collector.url, "--trace-sample", share) as server:
                for _ in range(5):
                    publish(server, "orders", {"payload": 1})
                publish(server, "orders", {"payload": 1}, traceparent=NOT_SAMPLED)
                server.terminate()
            assert len(collector.named("publish orders")) == expected


def test_trace_is_carried_by_a_server_without_tracing(tmp_path):
    with running(tmp_path / "data") as server:
        own = "00-" + "c" * 32 + "-" + "d" * 16 + "-01"
        publish(server, "carried", {"payload": 1}, {"payload": 2, "headers": {"traceparent": own}}, traceparent=SAMPLED)
        publish(server, "carried", {"payload": 3}, traceparent="no trace")
        publish(server, "carried", {"payload": 4, "headers": {"a": "b"}}, traceparent=NOT_SAMPLED)
        headers = [message["headers"] for message in server.lease("carried", max=10)]
        assert headers == [{"traceparent": SAMPLED}, {"traceparent": own}, {}, {"a": "b", "traceparent": NOT_SAMPLED}]


def test_collector_that_does_not_answer_changes_nothing(tmp_path):
    with running(tmp_path / "data", "--trace", "http://127.0.0.1:9", "--trace-sample", "1") as server:
        for _ in range(20):
            publish(server, "orders", {"payload": 1})
        assert server.ask("GET", "/v1/stats?queue=orders").json["depth"] == 20


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://collector", "http://"])
def test_invalid_collector_is_refused(tmp_path, url):
    with pytest.raises(AssertionError, match="is not a URL like"), running(tmp_path / "data", "--trace", url):
        pass


def test_spans_have_no_content_of_messages(tmp_path):
    secret = "do-not-export-771"
    with collecting() as collector:
        with running(tmp_path / "data", "--trace", collector.url, "--trace-sample", "1") as server:
            publish(server, "orders", {"payload": secret, "key": secret, "headers": {"h": secret}})
            receipts = [message["receipt"] for message in server.lease("orders")]
            server.ask("POST", "/v1/nack", {"receipts": receipts, "error": secret})
            server.terminate()
        assert collector.named("nack")
        assert secret not in json.dumps([str(span) for span in collector.spans])
