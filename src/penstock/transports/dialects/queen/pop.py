"""`pop` and `ack`: leases without receipts. An ack names the transaction id, and the broker finds the lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.broker.types import LeaseReply
from penstock.errors import StaleReceipt
from penstock.ids import check_group, parse_scope
from penstock.pending import PendingReply
from penstock.transports.dialects.delivered import DeliveredMessage, iso_timestamp, messages_of_runs
from penstock.transports.dialects.queen.shapes import Acknowledgment, BatchRequest, PopQuery
from penstock.transports.dialects.router import Names
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.consume import unless_gone
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_json, parse_query, parse_queue

_ack_decoder = msgspec.json.Decoder(Acknowledgment)
_batch_decoder = msgspec.json.Decoder(BatchRequest)


async def pop(edge: Edge, request: Request, names: Names) -> Answer:
    query = parse_query(PopQuery, request.query)
    take: Callable[..., PendingReply[LeaseReply]]
    if "queue" in names:
        take = partial(edge.broker.messages.lease, parse_queue(f"{names['ns']}/{names['task']}/{names['queue']}"))
    else:
        take = partial(edge.broker.messages.lease_scope, parse_scope("/".join(names.values())))
    take = partial(take, group=check_group(query.group), max=query.batch, consumer=query.workerId)
    reply = await take()
    if not reply.runs and query.wait and query.timeout:
        reply = await unless_gone(request, take(wait_ms=query.timeout))
    if not reply.runs:
        return Answer(204, b"")
    edge.metrics.delivered(reply.runs, edge.clock.now_ms())
    return json_answer({"messages": [_shown(message) for message in messages_of_runs(reply.runs)]})


def _shown(message: DeliveredMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        # A message from another interface may have no client id; an ack accepts the message id too.
        "transactionId": message.client_id or message.id,
        **message.payload_field(),
        "queue": message.queue,
        "createdAt": iso_timestamp(message.published_at_ms),
    }


async def ack(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Settle one message. Raises StaleReceipt if no lease holds it, or the lease of another worker."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_ack_decoder, request.json_body())
    (result,) = await _settle(edge, [asked])
    if result["status"] == "stale":
        raise StaleReceipt(
            f"no lease holds {asked.transactionId!r}: it was acknowledged, its lease expired, or another worker has it",
            details={"transactionId": asked.transactionId},
        )
    moments = {"completed": "completedAt", "failed": "failedAt"}
    return json_answer({**result, moments[asked.status]: iso_timestamp(edge.clock.now_ms())})


async def ack_batch(edge: Edge, request: Request, names: Names) -> Answer:  # noqa: ARG001
    """Settle each message on its own; the result of a message that no lease holds is `stale`."""
    parse_query(NoQuery, request.query)
    asked = parse_json(_batch_decoder, request.json_body())
    results = await _settle(edge, asked.acknowledgments)
    processed = sum(result["status"] != "stale" for result in results)
    return json_answer({"processed": processed, "results": results})


async def _settle(edge: Edge, asked: Sequence[Acknowledgment]) -> list[dict[str, Any]]:
    receipts = await _receipts(edge, asked)
    results: list[dict[str, Any]] = [{"transactionId": each.transactionId, "status": "stale"} for each in asked]
    completed = [row for row, each in enumerate(asked) if receipts[row] and each.status == "completed"]
    if completed:
        settled = await edge.broker.messages.ack([receipts[row] or "" for row in completed])
        for row, outcome in zip(completed, settled, strict=True):
            if outcome.status == "acked":
                results[row]["status"] = "completed"
    # Failures with the same error text are settled in one call.
    failed: dict[str, list[int]] = {}
    for row, each in enumerate(asked):
        if receipts[row] and each.status == "failed":
            failed.setdefault(each.error or "", []).append(row)
    for error, rows in failed.items():
        settled = await edge.broker.messages.nack([receipts[row] or "" for row in rows], error=error)
        for row, outcome in zip(rows, settled, strict=True):
            if outcome.status in ("retrying", "dead_lettered", "dropped"):
                results[row] |= {"status": "failed", "retryScheduled": outcome.status == "retrying"}
    return results


async def _receipts(edge: Edge, asked: Sequence[Acknowledgment]) -> list[str | None]:
    """The receipts of acknowledgments, with one lookup for each queue, group and worker."""
    alike: dict[tuple[str | None, str | None, str], list[int]] = {}
    for row, each in enumerate(asked):
        alike.setdefault((each.queue, each.group, each.workerId), []).append(row)
    receipts: list[str | None] = [None] * len(asked)
    for (queue, group, worker), rows in alike.items():
        found = await edge.broker.in_flight.receipts(
            [asked[row].transactionId for row in rows],
            queue=None if queue is None else parse_queue(queue),
            group=None if group is None else check_group(group),
            consumer=worker,
        )
        for row, receipt in zip(rows, found, strict=True):
            receipts[row] = receipt
    return receipts
