"""The parts of the client that other packages of this project use: pipeline, CLI, `penstock.open`, tracing, tests.

No other package imports an inner module of `penstock.client`; tests/test_tidy.py checks that. These names keep their
meaning, or change together with their users:

- **Calls without the client's objects.** `BlockingCalls` makes a `Call` and repeats it as the SDK does; `operation`,
  `call` and `publish` give the calls. For programs that read and write by the
  million and number their frames themselves.
- **A broker in this process.** `InProcessTransport` asks a function instead of a server, `OtherLoopTransport` from
  another event loop, `LoopThread` is that event loop; `client_over` and `blocking_client_in_process` make the clients.
- **Tracing.** `trace` sets the object that a client reports to. The classes of messages are those that it is given.
- **Conversions and defaults** of the CLI, which must be those of the SDK.
"""

from penstock.client.blocking.client import BlockingCalls
from penstock.client.blocking.client import client_in_process as blocking_client_in_process
from penstock.client.calls.call import Call, Response, call, operation
from penstock.client.calls.delivery import ProducerSeq, publish
from penstock.client.client import client_over
from penstock.client.consume.messages import LeasedBatch, LeasedMessage
from penstock.client.messages.stored import MessageRun, StoredMessage
from penstock.client.publish.lane import EPOCH, new_producer
from penstock.client.tracing import Tracing, trace
from penstock.client.transport.direct import InProcessTransport, LoopThread, OtherLoopTransport
from penstock.client.transport.retry import Unreachable, is_transport_failure
from penstock.client.units import Duration, milliseconds
from penstock.client.workers.worker import GRACE_S

__all__ = [
    "EPOCH",
    "GRACE_S",
    "BlockingCalls",
    "Call",
    "Duration",
    "InProcessTransport",
    "LeasedBatch",
    "LeasedMessage",
    "LoopThread",
    "MessageRun",
    "OtherLoopTransport",
    "ProducerSeq",
    "Response",
    "StoredMessage",
    "Tracing",
    "Unreachable",
    "blocking_client_in_process",
    "call",
    "client_over",
    "is_transport_failure",
    "milliseconds",
    "new_producer",
    "operation",
    "publish",
    "trace",
]
