"""`Call`: a request of the HTTP interface, carried by gRPC as it is. The Python SDK makes all its calls so."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.transports.http.in_process import InProcessHttp
from penstock.transports.http.request import Peer
from penstock.v1 import broker_pb2 as pb
from penstock.wire.protobuf import bytes_field

CARRIED = frozenset((b"authorization", b"x-api-key", b"x-request-id"))
"""Metadata that becomes headers of the request."""
_BODY = pb.CallReply.BODY_FIELD_NUMBER


async def http_call(
    http: InProcessHttp, request: pb.CallRequest, metadata: Sequence[tuple[bytes, bytes]], peer: Peer
) -> bytes:
    """The encoded reply: the answer of HTTP, also for a refusal."""
    headers = (
        (b"content-type", request.content_type.encode("latin-1", "replace")),
        (b"accept", request.accept.encode("latin-1", "replace")),
        *(each for each in metadata if each[0] in CARRIED),
    )
    answer = await http.ask(request.method, request.target, headers, request.body, peer)
    reply = pb.CallReply(status=answer.status)
    for name, value in answer.headers:
        if name == b"retry-after":
            reply.retry_after_s = int(value)
    return b"".join((reply.SerializeToString(), *bytes_field(_BODY, answer.body)))
