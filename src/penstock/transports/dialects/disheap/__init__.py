"""The HTTP part of the dialect `disheap`: heaps, enqueue with producer sequence numbers, leases by token.

Five of its routes share method and path with native operations: a lease token or a topic selects the route.
"""

from __future__ import annotations

from functools import partial

from penstock.transports.dialects.disheap import heaps, messages
from penstock.transports.dialects.disheap.proto_json import error_reply
from penstock.transports.dialects.router import Route

_route = partial(Route, render_error=error_reply)
_LEASE = frozenset({"topic", "message_id", "lease_token"})

ROUTES: tuple[Route, ...] = (
    _route("disheap.make", "POST", "/v1/heaps", heaps.make),
    _route("disheap.list", "GET", "/v1/heaps", heaps.list_all),
    _route("disheap.update", "PATCH", "/v1/heaps/{topic}", heaps.update),
    _route("disheap.delete", "DELETE", "/v1/heaps/{topic}", heaps.delete),
    _route("disheap.stats", "GET", "/v1/stats", heaps.stats),
    _route("disheap.enqueue", "POST", "/v1/enqueue", messages.enqueue),
    _route("disheap.enqueue_batch", "POST", "/v1/enqueue:batch", messages.enqueue_batch),
    _route("disheap.ack", "POST", "/v1/ack", messages.ack, fields=_LEASE),
    _route("disheap.nack", "POST", "/v1/nack", messages.nack, fields=_LEASE),
    _route("disheap.extend", "POST", "/v1/extend", messages.extend, fields=_LEASE),
    _route("disheap.peek", "GET", "/v1/peek", messages.peek, fields=frozenset({"topic"})),
)
