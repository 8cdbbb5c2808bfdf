"""The dialect `pulsar-proxy`: topics that many clients follow, by long polls and over WebSocket."""

from __future__ import annotations

from penstock.transports.dialects.pulsar_proxy import poll, publish
from penstock.transports.dialects.router import Route

ROUTES: tuple[Route, ...] = (
    Route("pulsar_proxy.publish", "POST", "/api/v1/messages", publish.publish),
    Route("pulsar_proxy.bulk", "POST", "/api/v1/messages/bulk", publish.bulk),
    Route("pulsar_proxy.topic", "POST", "/api/v1/topics", publish.configure),
    Route("pulsar_proxy.poll", "GET", "/api/v1/poll", poll.poll, consumes=True),
    Route("pulsar_proxy.ack", "POST", "/api/v1/ack", poll.ack, fields=frozenset({"message_ids"})),
)
