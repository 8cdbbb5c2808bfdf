"""The SDK: asyncio first (`Client`), with a blocking twin (`penstock.sync`). Guide: docs/sdk.md.

_calls      every call of the API without I/O: what to send, how to read the answer
_frames     outgoing: values and options to batch frames      _published  where they went
_delivery   incoming: messages as views of frames             _leased     … under a lease
_leases     what a consumer holds: spans, pending acks, renewal
_retry      when to try again                                 _http1      HTTP/1.1 without I/O
_pool, _client, _producer, _message, _consumer                the asyncio shell
_sync, _sync_consumer                                         the blocking shell
"""

from penstock.client._calls import ProducerSeq
from penstock.client._client import Client, Queue
from penstock.client._consumer import BatchConsumer, Consumer
from penstock.client._delivery import LogBatch, StoredMessage
from penstock.client._message import Message, MessageBatch
from penstock.client._published import Published, PublishedMessage

__all__ = [
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
    "StoredMessage",
]
