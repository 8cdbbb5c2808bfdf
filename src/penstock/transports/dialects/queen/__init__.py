"""The dialect `queen`: queues of a task of a namespace, long polls by scope, acks by transaction id."""

from __future__ import annotations

from penstock.transports.dialects.queen import analytics, pop, push
from penstock.transports.dialects.router import Route

ROUTES: tuple[Route, ...] = (
    Route("queen.configure", "POST", "/api/v1/configure", push.configure),
    Route("queen.push", "POST", "/api/v1/push", push.push),
    Route("queen.pop", "GET", "/api/v1/pop/ns/{ns}", pop.pop, consumes=True),
    Route("queen.pop", "GET", "/api/v1/pop/ns/{ns}/task/{task}", pop.pop, consumes=True),
    Route("queen.pop", "GET", "/api/v1/pop/ns/{ns}/task/{task}/queue/{queue}", pop.pop, consumes=True),
    Route("queen.ack", "POST", "/api/v1/ack", pop.ack, fields=frozenset({"transactionId"})),
    Route("queen.ack_batch", "POST", "/api/v1/ack/batch", pop.ack_batch),
    Route("queen.analytics", "GET", "/api/v1/analytics/queues", analytics.queues),
    Route("queen.analytics", "GET", "/api/v1/analytics/queue-depths", analytics.depths),
    Route("queen.analytics", "GET", "/api/v1/analytics/throughput", analytics.throughput),
    Route("queen.analytics", "GET", "/api/v1/analytics/ns/{ns}", analytics.scope_stats),
    Route("queen.analytics", "GET", "/api/v1/analytics/ns/{ns}/task/{task}", analytics.scope_stats),
)
