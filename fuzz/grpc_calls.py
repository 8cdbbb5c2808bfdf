"""gRPC calls without sockets: the bytes of a request are passed to the handlers of gRPC.

The first byte chooses the call, the rest is the request; for streams, it is several requests, each with its length
before it. A broker in memory answers, and is replaced after a number of inputs.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Iterator
from functools import cache
from typing import Any

import grpc

from penstock.batch import build
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.error_status import status_of, trailing_metadata
from penstock.transports.grpc.methods import HTTP_CALL, REPLIES, SERVICE, STREAMS, UNARY
from penstock.transports.grpc.peers import Peers
from penstock.transports.grpc.shapes import parse
from penstock.transports.metrics import Metrics
from penstock.v1 import broker_pb2 as pb

METHODS = sorted(
    set(SERVICE.methods_by_name) - {HTTP_CALL}
)  # that one carries HTTP requests, which have inputs of their own
CALLS_PER_BROKER = 2_000
_WITHIN_S = 10
_REPLIES_MAX = 3
_NEVER = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


class Client:
    """The context of a call: requests, an elapsed deadline, and a list of writes."""

    def __init__(self, requests: list[bytes]):
        self._requests = requests
        self.replies: list[bytes] = []

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float:
        return 0.0

    async def read(self) -> Any:
        await asyncio.sleep(0)
        return self._requests.pop(0) if self._requests else grpc.aio.EOF

    async def write(self, data: bytes) -> None:
        self.replies.append(data)
        if len(self.replies) == _REPLIES_MAX and not self._requests:
            raise asyncio.CancelledError  # the broker has handled enough inputs


class Bench:
    """A broker for a number of inputs."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._calls = 0
        self._opened: Any = None
        self._edge: GrpcEdge | None = None
        atexit.register(self._close)

    def _close(self) -> None:
        if self._opened is not None:
            self._runner.run(self._opened.__aexit__(None, None, None))
        self._runner.close()

    def run(self, name: str, data: bytes) -> None:
        if self._calls % CALLS_PER_BROKER == 0:
            self._runner.run(self._replace())
        self._calls += 1
        self._runner.run(self._one(name, data))

    async def _replace(self) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(None, None, None)
        self._opened = in_process(clock=SystemClock())
        box: InProcess = await self._opened.__aenter__()
        self._edge = GrpcEdge(box.broker, box.clock, Metrics(), Peers(0))
        await box.publish("q", b"1", b"2", key=[b"k", b""])

    async def _one(self, name: str, data: bytes) -> None:
        assert self._edge is not None
        method = SERVICE.methods_by_name[name]
        reply_kind = getattr(pb, method.output_type.name)
        client = Client(list(_requests(data)) if name in STREAMS else [])
        replies: list[Any] = client.replies
        try:
            async with asyncio.timeout(_WITHIN_S):
                if name in UNARY:
                    request = parse(getattr(pb, method.input_type.name), data, UNARY[name].size_max)
                    replies = [await UNARY[name].handle(self._edge, request, client)]  # type: ignore[arg-type]
                elif name in REPLIES:
                    request = parse(getattr(pb, method.input_type.name), data)
                    following = asyncio.ensure_future(REPLIES[name](self._edge, request, client))  # type: ignore[arg-type]
                    await asyncio.wait([following], timeout=0)
                    following.cancel()
                    (outcome,) = await asyncio.gather(following, return_exceptions=True)
                    if isinstance(outcome, Exception):
                        raise outcome
                else:
                    await STREAMS[name](self._edge, client, None)  # type: ignore[arg-type]
        except PenstockError as error:
            assert status_of(error) not in _NEVER, error
            assert sum(len(value) for _, value in trailing_metadata(error)) < 8_000
        except asyncio.CancelledError:
            pass
        await self._edge.wait_detached()
        for reply in replies:
            if isinstance(reply, bytes):
                reply_kind.FromString(reply)
            else:
                assert isinstance(reply, reply_kind)


def _requests(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = data[at]
        yield data[at + 1 : at + 1 + size]
        at += 1 + size


@cache
def _bench() -> Bench:
    return Bench()


def grpc_call(data: bytes) -> None:
    """Invariant: a reply of the contract, or an error of the status table that is neither UNKNOWN nor INTERNAL."""
    name = METHODS[data[0] % len(METHODS)] if data else METHODS[0]
    _bench().run(name, data[1:])


# -- seeds --------------------------------------------------------------------------------------------------------


def _seed(name: str, *requests: Any) -> bytes:
    encoded = [request.SerializeToString() for request in requests]
    body = b"".join(bytes([len(each)]) + each for each in encoded) if name in STREAMS else encoded[0]
    return bytes([METHODS.index(name)]) + body


_RECEIPT = "r1.0.1.00000000000000ff.0"
_MESSAGE = pb.NewMessage(json='{"a":1}', key="k", priority=1, delay_ms=0, ttl_ms=9, headers={"h": "v"}, max_retries=1)
_CONFIG = pb.QueueConfig(
    partitions=2, order="lanes", lane_weights=[5, 4, 3, 2, 1], backoff=pb.Backoff(kind="fixed", jitter=0.5),
    fair_share=pb.FairShare(weights={"t": 2}), retention=pb.Retention(mode="keep", ms=5), ttl_ms=9,
    dead_letter_alarm=pb.DeadLetterAlarm(count=1),
)  # fmt: skip
_OPEN = pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="q", form=pb.FRAMES, max=5), credits=9)
_REQUESTS: dict[str, list[Any]] = {
    "Publish": [
        pb.PublishRequest(queue="q", messages=[_MESSAGE, pb.NewMessage(payload=b"x", queue="other")]),
        pb.PublishRequest(queue="q", batch=build([b"1", b"2"]), producer=pb.Producer(id="p", epoch=1, seq=2)),
        pb.PublishRequest(queue="q", messages=[_MESSAGE, pb.NewMessage()], atomic=False),
    ],
    "Lease": [pb.LeaseRequest(queue="q", max=2, wait_ms=5, lease_ms=1_000, consumer="c", ack=[_RECEIPT])],
    "Ack": [pb.AckRequest(receipts=[_RECEIPT, "r1.0.1.00000000000000ff.0-9"])],
    "Nack": [pb.NackRequest(receipts=[_RECEIPT], delay_ms=5, error="e")],
    "Reject": [pb.RejectRequest(receipts=[_RECEIPT], error="e")],
    "Release": [pb.ReleaseRequest(receipts=[_RECEIPT])],
    "Extend": [pb.ExtendRequest(receipts=[_RECEIPT], lease_ms=500)],
    "Transact": [pb.TransactRequest(publish=[pb.NewMessage(json="1", queue="q")]), pb.TransactRequest(ack=[_RECEIPT])],
    "Cancel": [pb.CancelRequest(queue="q", key="k"), pb.CancelRequest(queue="q", ids=["0" * 26])],
    "Reschedule": [pb.RescheduleRequest(queue="q", key="k", delay_ms=5)],
    "JoinGroup": [pb.JoinGroupRequest(queue="q", group="g", member="m", session_ms=1_000)],
    "Heartbeat": [pb.HeartbeatRequest(queue="q", group="g", member="m", generation=1, released=[0])],
    "LeaveGroup": [pb.LeaveGroupRequest(queue="q", group="g", member="m")],
    "Read": [pb.ReadRequest(queue="q", offset="earliest", max=2, form=pb.FRAMES, client_id="c")],
    "ReadStream": [pb.ReadStreamRequest(queue="q", offset="0", max=1)],
    "KeepOffsets": [pb.KeepOffsetsRequest(queue="q", client_id="c", offsets={"0": 1})],
    "GetOffsets": [pb.OffsetsRequest(queue="q", client_id="c")],
    "Peek": [pb.PeekRequest(queue="q", max=2)],
    "Explain": [pb.ExplainRequest(queue="q", id="0" * 26)],
    "History": [pb.HistoryRequest(queue="q", id="0" * 26)],
    "Autoscale": [pb.AutoscaleRequest(queue="q", target_drain_s=1.5, min_workers=1)],
    "Stats": [pb.StatsRequest(queue="q")],
    "ListQueues": [pb.ListQueuesRequest(prefix="d", page=1, limit=5)],
    "PutQueue": [pb.PutQueueRequest(queue="new", config=_CONFIG)],
    "PatchQueue": [pb.PatchQueueRequest(queue="q", config=_CONFIG, reset=["ttl_ms"])],
    "DeleteQueue": [pb.DestroyRequest(queue="q", confirm="00")],
    "DeadLetters": [pb.DeadLettersRequest(queue="q", filter='reason = "x"', limit=5)],
    "Redrive": [pb.RedriveRequest(queue="q", filter="", rate_per_s=5)],
    "StopRedrive": [pb.StopRedriveRequest(queue="q", redrive_id="r")],
    "DeleteDeadLetters": [pb.DeleteDeadLettersRequest(queue="q", ids=["0" * 26], confirm="00")],
    "PutSchedule": [
        pb.PutScheduleRequest(
            name="s", queue="q", cron="0 3 * * *", message=pb.ScheduleMessage(json="1"), timezone="UTC"
        )
    ],
    "GetSchedule": [pb.ScheduleNameRequest(name="s")],
}
SEEDS = [
    *(_seed(name, request) for name, requests in _REQUESTS.items() for request in requests),
    _seed("PublishStream", *(pb.PublishStreamRequest(publish=request) for request in _REQUESTS["Publish"])),
    _seed(
        "LeaseStream",
        _OPEN,
        pb.LeaseStreamRequest(number=1, credits=2, ack=pb.AckRequest(receipts=[_RECEIPT])),
        pb.LeaseStreamRequest(number=2, nack=[pb.NackRequest(receipts=[_RECEIPT])], extend=_REQUESTS["Extend"]),
    ),
]
