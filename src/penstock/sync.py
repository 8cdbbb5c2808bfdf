"""The SDK without asyncio: `with Client(url) as client`, plain `for`. Guide: docs/sdk.md."""

from penstock.client import Assigned, LogBatch, Published, PublishedMessage, Reject, Retry, StoredMessage, Transacted
from penstock.client.blocking.client import BatchConsumer, Client, Consumer, Queue, Schedules, Scope, Webhooks
from penstock.client.blocking.messages import Message, MessageBatch, Transaction
from penstock.embedded import open_sync

__all__ = [
    "Assigned",
    "BatchConsumer",
    "Client",
    "Consumer",
    "LogBatch",
    "Message",
    "MessageBatch",
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

# Not in __all__: `from penstock.sync import *` must not shadow the builtin of this name.
open = open_sync
