"""Requests of this dialect and its queue options. QueueOptions are in seconds, `retryDelay` is in milliseconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock import limits
from penstock.wire.messages import Request

TRANSACTION_ID_CHARS_MAX = 64
POP_BATCH_MAX = 100
TIMEOUT_MS = 30_000

TransactionId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=TRANSACTION_ID_CHARS_MAX)]
WorkerId: TypeAlias = Annotated[str, Meta(max_length=limits.CONSUMER_CHARS_MAX)]
Seconds: TypeAlias = Annotated[int, Meta(ge=0, le=limits.DELAY_MS_MAX // 1000)]


class QueueOptions(Request):
    """Zero means no limit for `maxSize`, `ttl` and `windowMaxWait`."""

    leaseTime: Annotated[int, Meta(ge=1, le=limits.LEASE_MS_MAX // 1000)] | UnsetType = UNSET
    maxSize: Annotated[int, Meta(ge=0, le=2**53)] | UnsetType = UNSET
    ttl: Seconds | UnsetType = UNSET
    retryLimit: Annotated[int, Meta(ge=0, le=limits.RETRIES_MAX)] | UnsetType = UNSET
    retryDelay: Annotated[int, Meta(ge=0, le=limits.DELAY_MS_MAX)] | UnsetType = UNSET
    deadLetterQueue: bool | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | UnsetType = UNSET
    delayedProcessing: Seconds | UnsetType = UNSET
    windowBuffer: Annotated[int, Meta(ge=0, le=limits.WINDOW_MS_MAX // 1000)] | UnsetType = UNSET
    windowMaxWait: Seconds | UnsetType = UNSET

    def settings(self) -> dict[str, Any]:
        """The queue settings for the options that are set."""
        found: dict[str, Any] = {}
        for name, value in msgspec.structs.asdict(self).items():
            if value is not UNSET:
                found |= _SETTING[name](value)
        return found


def _fixed(delay_ms: int) -> dict[str, Any]:
    return {"backoff": {"kind": "fixed", "base_ms": delay_ms, "cap_ms": delay_ms, "jitter": 0.0}}


_SETTING: dict[str, Any] = {
    "leaseTime": lambda value: {"lease_ms": value * 1000},
    "maxSize": lambda value: {"max_messages": value or None},
    "ttl": lambda value: {"ttl_ms": value * 1000 or None},
    "retryLimit": lambda value: {"max_retries": value},
    "retryDelay": _fixed,
    "deadLetterQueue": lambda value: {"dead_letter": value},
    "priority": lambda value: {"queue_priority": value},
    "delayedProcessing": lambda value: {"delay_ms": value * 1000},
    "windowBuffer": lambda value: {"window_ms": value * 1000},
    "windowMaxWait": lambda value: {"window_max_wait_ms": value * 1000},
}

DEFAULTS = QueueOptions(
    leaseTime=300,
    maxSize=10_000,
    ttl=3600,
    retryLimit=3,
    retryDelay=1000,
    deadLetterQueue=True,
    priority=0,
    delayedProcessing=0,
    windowBuffer=0,
).settings()
"""Settings of a queue that this dialect creates."""


def options_of(config: dict[str, Any]) -> dict[str, Any]:
    """The options of this dialect for the settings of a queue."""
    waits = config["window_max_wait_ms"]
    return {
        "leaseTime": _seconds(config["lease_ms"]),
        "maxSize": config["max_messages"] or 0,
        "ttl": _seconds(config["ttl_ms"] or 0),
        "retryLimit": config["max_retries"],
        "retryDelay": 0 if config["backoff"]["kind"] == "none" else config["backoff"]["base_ms"],
        "deadLetterQueue": config["dead_letter"],
        "priority": config["queue_priority"],
        "delayedProcessing": _seconds(config["delay_ms"]),
        "windowBuffer": _seconds(config["window_ms"]),
        **({} if waits is None else {"windowMaxWait": _seconds(waits)}),
    }


def _seconds(ms: int) -> int | float:
    return ms // 1000 if ms % 1000 == 0 else ms / 1000


class QueueAddress(Request):
    ns: str
    task: str
    queue: str

    @property
    def path(self) -> str:
        return f"{self.ns}/{self.task}/{self.queue}"


class ConfigureRequest(QueueAddress):
    options: QueueOptions = msgspec.field(default_factory=QueueOptions)


class PushItem(QueueAddress):
    payload: msgspec.Raw
    transactionId: TransactionId | None = None


class PushConfig(Request):
    batchMode: bool = True
    """True: all items in one commit, or none. False: each item on its own."""
    autoCreate: bool = True


class PushRequest(Request):
    items: Annotated[list[PushItem], Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]
    config: PushConfig = msgspec.field(default_factory=PushConfig)


class PopQuery(Request):
    timeout: Annotated[int, Meta(ge=0, le=limits.WAIT_MS_MAX)] = TIMEOUT_MS
    wait: bool = False
    batch: Annotated[int, Meta(ge=1, le=POP_BATCH_MAX)] = 1
    group: str = "default"
    workerId: WorkerId = ""


class Acknowledgment(Request):
    """`queue` (a path), `group` and `workerId` select one delivery if the id alone is ambiguous."""

    transactionId: TransactionId
    status: Literal["completed", "failed"]
    error: str | None = None
    queue: str | None = None
    group: str | None = None
    workerId: WorkerId = ""


class BatchRequest(Request):
    acknowledgments: Annotated[list[Acknowledgment], Meta(min_length=1, max_length=limits.RECEIPTS_MAX)]
