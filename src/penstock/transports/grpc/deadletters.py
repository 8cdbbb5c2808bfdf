"""DeadLetters and Redrive."""

from __future__ import annotations

from penstock.transports import translate
from penstock.transports.grpc.calls import Context
from penstock.transports.grpc.delivery import letter_of
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.shapes import convert, fill_message, values_of
from penstock.v1 import broker_pb2 as pb
from penstock.wire.messages import DeadLettersQuery, RedriveRequest


async def dead_letters(
    edge: GrpcEdge,
    request: pb.DeadLettersRequest,
    context: Context,  # noqa: ARG001
) -> pb.DeadLettersReply:
    found = await translate.find_letters(edge.broker, convert(values_of(request), DeadLettersQuery))
    letters = [letter_of(letter) for letter in found.pop("dead_letters")]
    return fill_message(pb.DeadLettersReply(messages=letters), found)


async def redrive(edge: GrpcEdge, request: pb.RedriveRequest, context: Context) -> pb.RedriveReply:  # noqa: ARG001
    reply = await translate.redrive_letters(edge.broker, convert(values_of(request), RedriveRequest))
    about = pb.RedriveReply(redrive_id=reply["redrive_id"], queue=reply["queue"], dry_run=reply["dry_run"])
    if about.dry_run:
        about.count = reply["count"]
        about.sample.extend(letter_of(letter) for letter in reply["sample"])
    else:
        fill_message(about.status, reply)
    return about
