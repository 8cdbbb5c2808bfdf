"""The SDK without asyncio: `with Client(url) as client`, plain `for`. Guide: docs/sdk.md."""

from penstock.client import (
    AlarmSettings,
    Assigned,
    BackoffSettings,
    FairShareSettings,
    LogBatch,
    Published,
    PublishedMessage,
    QueueSettings,
    Reject,
    RetentionSettings,
    Retry,
    StoredMessage,
    Transacted,
    WorkerFunction,
)
from penstock.client.blocking.client import BlockingBatchConsumer as BatchConsumer
from penstock.client.blocking.client import BlockingClient as Client
from penstock.client.blocking.client import BlockingConsumer as Consumer
from penstock.client.blocking.client import BlockingQueue as Queue
from penstock.client.blocking.client import BlockingSchedules as Schedules
from penstock.client.blocking.client import BlockingScope as Scope
from penstock.client.blocking.client import BlockingWebhooks as Webhooks
from penstock.client.blocking.messages import BlockingBatch as MessageBatch
from penstock.client.blocking.messages import BlockingMessage as Message
from penstock.client.blocking.messages import BlockingTransaction as Transaction
from penstock.embedded import open_sync

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

# Not in __all__: `from penstock.sync import *` must not shadow the builtin of this name.
open = open_sync
