"""The map of this dialect. Four of its paths are ours as well: a lease token, or a topic, tells whose is meant."""

from __future__ import annotations

from functools import partial

from penstock.transports.dialects.disheap import heaps, messages
from penstock.transports.dialects.disheap.proto_json import refusal
from penstock.transports.dialects.router import Route

_route = partial(Route, refusal=refusal)
_LEASE = frozenset({"topic", "message_id", "lease_token"})

ROUTES: tuple[Route, ...] = (
    _route("disheap.make", "POST", "/v1/heaps", heaps.make),
    _route("disheap.list", "GET", "/v1/heaps", heaps.list_all),
    _route("disheap.update", "PATCH", "/v1/heaps/{topic}", heaps.update),
    _route("disheap.delete", "DELETE", "/v1/heaps/{topic}", heaps.delete),
    _route("disheap.stats", "GET", "/v1/stats", heaps.stats),
    _route("disheap.enqueue", "POST", "/v1/enqueue", messages.enqueue),
    _route("disheap.enqueue_batch", "POST", "/v1/enqueue:batch", messages.enqueue_batch),
    _route("disheap.ack", "POST", "/v1/ack", messages.ack, marks=_LEASE),
    _route("disheap.nack", "POST", "/v1/nack", messages.nack, marks=_LEASE),
    _route("disheap.extend", "POST", "/v1/extend", messages.extend, marks=_LEASE),
    _route("disheap.peek", "GET", "/v1/peek", messages.peek, marks=frozenset({"topic"})),
)
