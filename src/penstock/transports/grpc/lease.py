"""Lease, Ack, Nack, Reject, Release, Extend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from google.protobuf.message import Message

from penstock.transports import translate
from penstock.transports.grpc.calls import Context, Unary
from penstock.transports.grpc.delivery import encoded, receipts_of, replies, settled
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.shapes import convert, in_frames, values_of
from penstock.v1 import broker_pb2 as pb
from penstock.wire.delivery import Settled
from penstock.wire.messages import LeaseRequest

if TYPE_CHECKING:
    from penstock.broker.service import Broker

S = TypeVar("S", bound=msgspec.Struct)

DEADLINE_MARGIN_MS = 100
"""A wait ends this long before the deadline of the call, so that the reply arrives in time."""


async def lease(edge: GrpcEdge, request: pb.LeaseRequest, context: Context) -> bytes:
    values = values_of(request)
    frames = in_frames(values.pop("form"))
    asked = convert(values, LeaseRequest)
    take = translate.lease_call(edge.broker, asked)
    reply = await take(ack=asked.ack or (), wait_ms=wait_within(context, asked.wait_ms))
    runs, *more = list(replies(reply.runs)) or [[]]
    if more:
        # Messages that do not fit into the reply are released; the next lease gets them.
        edge.run_detached(partial(edge.broker.messages.release, receipts_of(run for each in more for run in each)))
    edge.metrics.delivered(runs, edge.clock.now_ms())
    rest = pb.LeaseReply(results=settled(reply.results), generation=reply.generation)
    return encoded(runs, frames=frames) + rest.SerializeToString()


def wait_within(context: Context, wait_ms: int) -> int:
    """The requested wait, shortened to the deadline of the call."""
    remaining_s = context.time_remaining()
    if remaining_s is None:
        return wait_ms
    return max(0, min(wait_ms, int(remaining_s * 1000) - DEADLINE_MARGIN_MS))


def settling(settle: Callable[[Broker, S], Awaitable[Sequence[Settled]]], shape: type[S]) -> Unary:
    async def call(edge: GrpcEdge, request: Message, context: Context) -> pb.SettleReply:  # noqa: ARG001
        return pb.SettleReply(results=settled(await settle(edge.broker, settlement(request, shape))))

    return call


def settlement(request: Message, shape: type[S]) -> S:
    values: dict[str, Any] = {"receipts": [], **values_of(request)}
    return convert(values, shape)
