"""The SDK without asyncio: `with Client(url) as client`, plain `for`. Guide: docs/sdk.md."""

from penstock.client._delivery import LogBatch, StoredMessage
from penstock.client._handler import Reject, Retry
from penstock.client._members import Assigned
from penstock.client._outbox import Transacted
from penstock.client._published import Published, PublishedMessage
from penstock.client._sync import Client, Queue
from penstock.client._sync_consumer import BatchConsumer, Consumer
from penstock.client._sync_message import Message, MessageBatch, Transaction
from penstock.client._sync_schedules import Schedules
from penstock.client._sync_scope import Scope
from penstock.client._sync_webhooks import Webhooks
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

# Not in __all__: `from penstock.sync import *` must not take the builtin of this name away.
open = open_sync
