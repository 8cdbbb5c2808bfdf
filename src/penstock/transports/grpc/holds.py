"""Methods for holds. Offsets by partition are a message of their own in the contract."""

from __future__ import annotations

import msgspec

from penstock.transports import translate
from penstock.transports.grpc.calls import Context
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.shapes import convert, fill_message, values_of
from penstock.v1 import broker_pb2 as pb
from penstock.wire.holds import HoldReply, HoldRequest


async def list_holds(edge: GrpcEdge, request: pb.ListHoldsRequest, context: Context) -> pb.ListHoldsReply:  # noqa: ARG001
    found = await translate.list_holds(edge.broker)
    return pb.ListHoldsReply(holds=[_shown(hold) for hold in found.holds])


async def get_hold(edge: GrpcEdge, request: pb.HoldNameRequest, context: Context) -> pb.HoldReply:  # noqa: ARG001
    return _shown(await translate.get_hold(edge.broker, request.name))


async def put_hold(edge: GrpcEdge, request: pb.PutHoldRequest, context: Context) -> pb.HoldReply:  # noqa: ARG001
    values = values_of(request)
    name = values.pop("name")
    values["queues"] = {queue: dict(held.offsets) for queue, held in request.queues.items()}
    return _shown(await translate.put_hold(edge.broker, name, convert(values, HoldRequest)))


async def delete_hold(edge: GrpcEdge, request: pb.HoldNameRequest, context: Context) -> pb.DeleteHoldReply:  # noqa: ARG001
    return fill_message(pb.DeleteHoldReply(), await translate.delete_hold(edge.broker, request.name))


def _shown(hold: HoldReply) -> pb.HoldReply:
    reply = fill_message(pb.HoldReply(), {**msgspec.structs.asdict(hold), "queues": None})
    for queue, offsets in hold.queues.items():
        reply.queues[queue].offsets.update(offsets)
    return reply
