"""All dialects on an in-memory broker, one request per input: a request line and a body."""

from __future__ import annotations

import asyncio
import atexit
from functools import cache

from penstock.server.config import KEYS
from penstock.testing.inprocess import in_process
from penstock.transports.dialects import with_dialects
from penstock.transports.dialects.pulsar_proxy.subscription import Subscription
from penstock.transports.dialects.sockets import FrameBuffer
from penstock.transports.http import HttpApp
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request

NAMES = KEYS["dialect"].choices
SEEDS = [
    b'POST /api/v1/configure\n{"ns":"a","task":"b","queue":"c","options":{"leaseTime":300,"ttl":0,"retryDelay":5}}',
    b'POST /api/v1/push\n{"items":[{"ns":"a","task":"b","queue":"c","payload":{},"transactionId":"t"}],"config":{}}',
    b"GET /api/v1/pop/ns/a/task/b/queue/c?timeout=1&wait=true&batch=2&workerId=w&group=g\n",
    b"GET /api/v1/pop/ns/a\n",
    b'POST /api/v1/ack\n{"transactionId":"t","status":"failed","error":"x","workerId":"w","queue":"a/b/c"}',
    b'POST /api/v1/ack/batch\n{"acknowledgments":[{"transactionId":"t","status":"completed"}]}',
    b"GET /api/v1/analytics/ns/a/task/b\n",
    b'POST /api/v1/messages\n{"topic":"t","payload":{"a":[1]},"ttl":3600,"metadata":{"priority":"high"}}',
    b'POST /api/v1/messages/bulk\n{"messages":[{"topic":"t","payload":{}},{"topic":"T"},7]}',
    b'POST /api/v1/topics\n{"topic":"t","delivery_mode":"at_most_once"}',
    b"GET /api/v1/poll?topics=t,u&timeout=1&since=msg_01JPAAAAAAAAAAAAAAAAAAAAAA&limit=3&client_id=c\n",
    b'POST /api/v1/ack\n{"message_ids":["msg_01JPAAAAAAAAAAAAAAAAAAAAAA"],"client_id":"c","topic":"t"}',
    b'POST /v1/heaps\n{"topic":"h","mode":"MAX","partitions":2,"rf":3,"K":4,"retention_time":"1.5s"}',
    b'PATCH /v1/heaps/h\n{"visibility_timeout_default":"30s","dlq_policy":{"enabled":false}}',
    b"DELETE /v1/heaps/h?force=true&confirmation_token=x\n",
    b"GET /v1/stats?topic=h\n",
    b'POST /v1/enqueue\n{"topic":"h","payload":"aGk=","priority":"-5","producer_id":"p","epoch":1,"seq":2,"json":true}',
    b'POST /v1/enqueue:batch\n{"requests":[{"topic":"h","payload":"e30","not_before":"0.1s","json":true}]}',
    b'POST /v1/ack\n{"topic":"h","message_id":"x","lease_token":"r1.0.1.00000000000000ff.0"}',
    b'POST /v1/nack\n{"topic":"h","message_id":"x","lease_token":"r1.0.1.0.0","backoff_override":"1s"}',
    b'POST /v1/extend\n{"topic":"h","lease_token":"r1.0.1.0.0","extension":"1s"}',
    b"GET /v1/peek?topic=h&limit=2\n",
    b'POST /namespaces/a/queues/c/messages\n{"body":"aGk=","deliverAt":0}',
    b'POST /namespaces/a/queues\n{"name":"c"}',
    b"GET /api/stats?page=1&limit=2\n",
]

FRAMES = [
    b'{"type":"subscribe","topics":["t","u"],"client_id":"c","offset":"msg_01JPAAAAAAAAAAAAAAAAAAAAAA"}',
    b'{"type":"subscribe","topics":["t"],"client_id":"c","offset":"last"}',
    b'{"type":"unsubscribe","topics":["t"]}',
    b'{"type":"ack","message_id":"msg_01JPAAAAAAAAAAAAAAAAAAAAAA"}',
    b'{"type":"ping"}',
    b'{"type":"pong"}',
]


class Served:
    """A broker with the routes of all dialects."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._opened = in_process()
        box = self._runner.run(self._opened.__aenter__())
        self._app = HttpApp(box.broker, box.clock, with_dialects(NAMES))
        self._edge = Edge(box.broker, box.clock, self._app.metrics)
        atexit.register(self._close)

    def _close(self) -> None:
        self._runner.run(self._opened.__aexit__(None, None, None))
        self._runner.close()

    def say(self, text: str) -> list[bytes]:
        """The frames that answer one frame of a subscriber; then the connection closes."""

        async def steps() -> list[bytes]:
            output = FrameBuffer(lambda _: None)
            output.pause()
            subscription = Subscription(self._edge, output)
            await subscription.receive(text)
            frames = [output.take() for _ in range(len(output))]
            await subscription.ended(lost=False)
            return frames

        return self._runner.run(steps())

    def ask(self, method: str, path: str, query: bytes, body: bytes) -> Answer | None:
        """None if the request would have waited."""
        request = Request(method, path, query, Fields([(b"host", b"localhost")]), body)
        request.disconnected = True  # a long poll ends without waiting
        return self._runner.run(self._app.ask(request))


@cache
def served() -> Served:
    """One instance for all inputs; later inputs see the queues of earlier ones."""
    return Served()
