"""The SDK without asyncio: `with Client(url) as client`, plain `for`. Guide: docs/sdk.md."""

from penstock.client._delivery import LogBatch, StoredMessage
from penstock.client._outbox import Transacted
from penstock.client._published import Published, PublishedMessage
from penstock.client._sync import Client, Queue
from penstock.client._sync_consumer import BatchConsumer, Consumer
from penstock.client._sync_message import Message, MessageBatch, Transaction

__all__ = [
    "BatchConsumer",
    "Client",
    "Consumer",
    "LogBatch",
    "Message",
    "MessageBatch",
    "Published",
    "PublishedMessage",
    "Queue",
    "StoredMessage",
    "Transacted",
    "Transaction",
]
