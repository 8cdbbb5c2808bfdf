"""The SDK without asyncio: `with Client(url) as client`, plain `for`. Guide: docs/sdk.md."""

from penstock.client.blocking.client import Client, Queue
from penstock.client.blocking.messages import Message, MessageBatch, Transaction
from penstock.client.blocking.schedules import Schedules
from penstock.client.blocking.scope import Scope
from penstock.client.blocking.session import BatchConsumer, Consumer
from penstock.client.blocking.webhooks import Webhooks
from penstock.client.consume.membership import Assigned
from penstock.client.messages.stored import LogBatch, StoredMessage
from penstock.client.publish.published import Published, PublishedMessage
from penstock.client.publish.transactions import Transacted
from penstock.client.workers.handler import Reject, Retry
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
