"""The SDK: asyncio first (`Client`), with a blocking twin (`penstock.sync`). Guide: docs/sdk.md.

Without I/O:
    _calls      every call of the API: what to send, how to read the answer
    _frames     outgoing: values and options to batch frames     _published  where they went
    _delivery   incoming: messages as views of frames            _leased     … under a lease
    _leases     what a consumer holds: spans, pending acks, renewal
    _outbox     what a transaction publishes
    _terms      what a consumer asks for                         _numbers    sequence numbers
    _members    what a member of a group knows of its partitions
    _retry      when to try again                                _http1      requests and responses
Ways to a server, one per URL scheme:
    _transport  the protocol and the choice                      _pool, _sync_pool  http and https
    _direct     a broker in this process                         _background        an event loop in a thread
    _websocket  ws and wss                                       _grpc, _grpc_calls, _grpc_shapes  grpc, grpcs
Functions instead of loops:
    _handler    what a function wants to be called with          _worker, _workers  who calls it, and until when
    _thread_desk  settling from a thread
With asyncio:
    _carrier, _producer, _consumer, _acks, _renewal, _attendance, _message, _scope, _schedules, _webhooks, _client
Blocking:
    _sync_carrier, _sync_consumer, _sync_attendance, _sync_message, _sync_scope, _sync_schedules, _sync_webhooks, _sync
"""

from penstock.client.admin.schedules import Schedules
from penstock.client.admin.webhooks import Webhooks
from penstock.client.calls.api import ProducerSeq
from penstock.client.client import Client, Queue
from penstock.client.consume.membership import Assigned
from penstock.client.consume.messages import Message, MessageBatch, Transaction
from penstock.client.consume.scope import Scope
from penstock.client.consume.session import BatchConsumer, Consumer
from penstock.client.messages.stored import LogBatch, StoredMessage
from penstock.client.publish.published import Published, PublishedMessage
from penstock.client.publish.transactions import Transacted
from penstock.client.workers.handler import Reject, Retry

__all__ = [
    "Assigned",
    "BatchConsumer",
    "Client",
    "Consumer",
    "LogBatch",
    "Message",
    "MessageBatch",
    "ProducerSeq",
    "Published",
    "PublishedMessage",
    "Queue",
    "Reject",
    "Retry",
    "Schedules",
    "Scope",
    "StoredMessage",
    "Transacted",
    "Transaction",
    "Webhooks",
]
