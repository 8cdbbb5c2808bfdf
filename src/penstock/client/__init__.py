"""The SDK: coroutines for asyncio (`Client`), and the same without asyncio (`penstock.sync`). Guide: docs/sdk.md.

    client, queue  the classes that a program begins with
    calls          the calls of the API without I/O: the request, and the reading of the answer
    messages       messages as views of the frames in which they came, and spans of their receipts
    publish        values to frames, frames to the server in order, transactions
    consume        sessions: lease ahead, ack along the way, renew, be a member of a group
    workers        functions instead of loops
    admin          settings, numbers, dead letters, schedules, webhooks
    transport      one per URL scheme; the carrier repeats what failed
    runtime        waiting, timers and background work: by asyncio, or (`blocking`) in the calling thread
    blocking       the client without asyncio
    lowlevel       the parts that other packages of this project use

Other packages import `penstock`, `penstock.sync`, `penstock.client` and `penstock.client.lowlevel`, and nothing else of
this package.
"""

from penstock.client.admin.schedules import Schedules
from penstock.client.admin.webhooks import Webhooks
from penstock.client.calls.delivery import ProducerSeq
from penstock.client.client import Client
from penstock.client.consume.consumers import BatchConsumer, Consumer, Scope
from penstock.client.consume.messages import Message, MessageBatch, Transaction
from penstock.client.consume.options import Assigned
from penstock.client.messages.stored import LogBatch, StoredMessage
from penstock.client.publish.published import Published, PublishedMessage
from penstock.client.publish.transactions import Transacted
from penstock.client.queue import Queue
from penstock.client.workers.handler import Reject, Retry, WorkerFunction
from penstock.wire.settings import AlarmSettings, BackoffSettings, FairShareSettings, QueueSettings, RetentionSettings

__all__ = [
    "AlarmSettings",
    "Assigned",
    "BackoffSettings",
    "BatchConsumer",
    "Client",
    "Consumer",
    "FairShareSettings",
    "LogBatch",
    "Message",
    "MessageBatch",
    "ProducerSeq",
    "Published",
    "PublishedMessage",
    "Queue",
    "QueueSettings",
    "Reject",
    "RetentionSettings",
    "Retry",
    "Schedules",
    "Scope",
    "StoredMessage",
    "Transacted",
    "Transaction",
    "Webhooks",
    "WorkerFunction",
]
