"""Penstock: a durable message broker you can query. This package's names are the SDK; the broker is `penstock serve`.

Each name imports its module on first use, so a program that only needs an error class, or the broker itself, does not
load the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock._version import __version__

if TYPE_CHECKING:
    from penstock.client import (
        AlarmSettings,
        Assigned,
        BackoffSettings,
        BatchConsumer,
        Client,
        Consumer,
        FairShareSettings,
        LogBatch,
        Message,
        MessageBatch,
        ProducerSeq,
        Published,
        PublishedMessage,
        Queue,
        QueueSettings,
        Reject,
        RetentionSettings,
        Retry,
        Schedules,
        Scope,
        StoredMessage,
        Transacted,
        Transaction,
        Webhooks,
        WorkerFunction,
    )
    from penstock.embedded import open as open
    from penstock.errors import (
        Conflict,
        CrossShard,
        DiskFull,
        FencedProducer,
        Forbidden,
        HeadersTooLarge,
        Internal,
        InvalidRequest,
        MethodNotAllowed,
        NotFound,
        PenstockError,
        QueueFull,
        QueueNotFound,
        RateLimited,
        StaleGeneration,
        StaleReceipt,
        TooLarge,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        UnknownMember,
        UnsupportedMediaType,
        UpgradeRequired,
    )

_CLIENT = (
    "AlarmSettings", "Assigned", "BackoffSettings", "BatchConsumer", "Client", "Consumer", "FairShareSettings",
    "LogBatch", "Message", "MessageBatch", "ProducerSeq", "Published", "PublishedMessage", "Queue", "QueueSettings",
    "Reject", "RetentionSettings", "Retry", "Schedules", "Scope", "StoredMessage", "Transacted", "Transaction",
    "Webhooks", "WorkerFunction",
)  # fmt: skip
_ERRORS = (
    "Conflict", "CrossShard", "DiskFull", "FencedProducer", "Forbidden", "HeadersTooLarge", "Internal",
    "InvalidRequest", "MethodNotAllowed", "NotFound", "PenstockError", "QueueFull", "QueueNotFound", "RateLimited",
    "StaleGeneration", "StaleReceipt", "TooLarge", "Unauthenticated", "Unavailable", "Unimplemented", "UnknownMember",
    "UnsupportedMediaType", "UpgradeRequired",
)  # fmt: skip
_HOME = dict.fromkeys(_CLIENT, "penstock.client") | dict.fromkeys(_ERRORS, "penstock.errors")
# Not in __all__: `from penstock import *` must not shadow the builtin of this name.
_HOME["open"] = "penstock.embedded"

__all__ = [
    "AlarmSettings",
    "Assigned",
    "BackoffSettings",
    "BatchConsumer",
    "Client",
    "Conflict",
    "Consumer",
    "CrossShard",
    "DiskFull",
    "FairShareSettings",
    "FencedProducer",
    "Forbidden",
    "HeadersTooLarge",
    "Internal",
    "InvalidRequest",
    "LogBatch",
    "Message",
    "MessageBatch",
    "MethodNotAllowed",
    "NotFound",
    "PenstockError",
    "ProducerSeq",
    "Published",
    "PublishedMessage",
    "Queue",
    "QueueFull",
    "QueueNotFound",
    "QueueSettings",
    "RateLimited",
    "Reject",
    "RetentionSettings",
    "Retry",
    "Schedules",
    "Scope",
    "StaleGeneration",
    "StaleReceipt",
    "StoredMessage",
    "TooLarge",
    "Transacted",
    "Transaction",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "UnknownMember",
    "UnsupportedMediaType",
    "UpgradeRequired",
    "Webhooks",
    "WorkerFunction",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "open"})
