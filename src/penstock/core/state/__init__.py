"""The state of a shard. Both halves of the machine read it; only the applying half changes what is durable."""

from penstock.core.state.progress import NEVER_MS, Progress
from penstock.core.state.shard import (
    FormerQueue,
    Hold,
    KeptOffsets,
    Partition,
    Queue,
    Schedule,
    SealedSecret,
    Shard,
    Webhook,
    Window,
)

__all__ = [
    "NEVER_MS",
    "FormerQueue",
    "Hold",
    "KeptOffsets",
    "Partition",
    "Progress",
    "Queue",
    "Schedule",
    "SealedSecret",
    "Shard",
    "Webhook",
    "Window",
]
