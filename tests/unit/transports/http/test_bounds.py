"""The bounds of requests, each at one less than its number, at its number, and at one more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from boxed import boxed
from http_fake import Http

from penstock import limits
from penstock.transports.http import HttpApp

QUEUE = "orders"


class Bound(NamedTuple):
    most: int
    request: Callable[[int], tuple[str, str, Any]]
    """Method, target and body of a request of this size."""
    code: str = "invalid_request"


def published(**fields: Any) -> tuple[str, str, Any]:
    return "POST", "/v1/publish", {"queue": QUEUE, "messages": [{"payload": 1, **fields}]}


def leased(**fields: Any) -> tuple[str, str, Any]:
    return "POST", "/v1/lease", {"queue": QUEUE, **fields}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def configured(**fields: Any) -> tuple[str, str, Any]:
    return "PUT", "/v1/queues/new", fields


BOUNDS = {
    "segment of a path": Bound(64, lambda n: ("PUT", f"/v1/queues/{'x' * n}", {})),
    "group": Bound(128, lambda n: leased(group="x" * n)),
    "consumer": Bound(limits.CONSUMER_CHARS_MAX, lambda n: leased(consumer="x" * n)),
    "client id": Bound(limits.CLIENT_ID_BYTES_MAX, lambda n: published(id="x" * n)),
    "key": Bound(limits.KEY_BYTES_MAX, lambda n: published(key="x" * n)),
    "tenant": Bound(limits.TENANT_BYTES_MAX, lambda n: published(tenant="x" * n)),
    "headers": Bound(limits.HEADERS_COUNT_MAX, lambda n: published(headers={str(each): "" for each in range(n)})),
    "payload": Bound(limits.PAYLOAD_BYTES_MAX, lambda n: published(payload="x" * (n - 2)), "too_large"),
    "messages": Bound(
        limits.BATCH_MESSAGES_MAX,
        lambda n: ("POST", "/v1/publish", {"queue": QUEUE, "messages": [{"payload": 1}] * n}),
    ),
    "delay": Bound(limits.DELAY_MS_MAX, lambda n: published(delay_ms=n)),
    "ttl": Bound(limits.TTL_MS_MAX, lambda n: published(ttl_ms=n)),
    "retries": Bound(limits.RETRIES_MAX, lambda n: published(max_retries=n)),
    "producer": Bound(
        limits.PRODUCER_ID_CHARS_MAX,
        lambda n: (*published()[:2], {**published()[2], "producer": {"id": "x" * n, "epoch": 0, "seq": 0}}),
    ),
    "lease": Bound(limits.LEASE_MESSAGES_MAX, lambda n: leased(max=n)),
    "lease time": Bound(limits.LEASE_MS_MAX, lambda n: leased(lease_ms=n)),
    "receipts": Bound(limits.RECEIPTS_MAX, lambda n: ("POST", "/v1/ack", {"receipts": ["r1.0.1.0.0"] * n})),
    "read": Bound(limits.READ_MESSAGES_MAX, lambda n: ("GET", f"/v1/read?queue={QUEUE}&max={n}", None)),
    "peek": Bound(limits.PEEK_MESSAGES_MAX, lambda n: ("GET", f"/v1/peek?queue={QUEUE}&max={n}", None)),
    "page": Bound(limits.PAGE_LIMIT_MAX, lambda n: ("GET", f"/v1/queues?limit={n}", None)),
    "partitions": Bound(limits.PARTITIONS_MAX, lambda n: configured(partitions=n)),
    "window": Bound(limits.WINDOW_MS_MAX, lambda n: configured(window_ms=n)),
}
"""By what is bounded."""


@pytest.mark.parametrize("name", BOUNDS)
@boxed
async def test_bound_is_the_last_size_that_is_taken(box, name):
    http, bound = Http(), BOUNDS[name]
    http.app = HttpApp(box.broker, box.clock)
    await http.ask("PUT", f"/v1/queues/{QUEUE}", {})
    for size, code in ((bound.most - 1, ""), (bound.most, ""), (bound.most + 1, bound.code)):
        answer = await http.ask(*bound.request(size))
        assert answer is not None
        assert (answer.error["code"] if answer.status >= 400 else "") == code, (size, answer.body[:300])


@boxed
async def test_headers_are_bounded_together_and_json_in_depth(box):
    """The headers of a message, and the levels of a payload."""
    http = Http()
    http.app = HttpApp(box.broker, box.clock)
    room = limits.HEADERS_BYTES_MAX - len(json.dumps({"h": ""}, separators=(",", ":")))
    for size, status in ((room - 1, 201), (room, 201), (room + 1, 400)):
        answer = await http.ask(*published(headers={"h": "x" * size}))
        assert answer is not None and answer.status == status, (size, answer.body[:300])
    inside = limits.JSON_DEPTH_MAX
    for depth, status in ((inside - 1, 201), (inside, 201), (inside + 1, 400)):
        answer = await http.ask(*published(payload=nested(depth)))
        assert answer is not None and answer.status == status, (depth, answer.body[:300])
