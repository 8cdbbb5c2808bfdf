"""Encryption at rest in requests and replies."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.wire.messages import Request


class EraseRequest(Request):
    """Exactly one of `queue` and `namespace`; with `keys`, only the messages that have one of these keys."""

    queue: str | None = None
    namespace: str | None = None
    keys: Annotated[list[str], Meta(min_length=1, max_length=limits.ERASED_KEYS_MAX)] | None = None


class ErasedReply(msgspec.Struct):
    target: str
    """The queue, or the namespace followed by `/*`."""
    queues: int
    messages: int
    """Messages that had not been finished."""
    dead_letters: int
    generation: int
    """Of the keyring: each erasure begins one."""


class EncryptionReply(msgspec.Struct):
    enabled: bool
    """The server has an encryption key."""
    master_key: str | None
    """The id of the key that wraps the data keys; not the key."""
    generation: int
    """Erasures so far."""
    queues: int
    """Queues that are encrypted."""
    all_new_queues: bool
    """A queue that is created without settings is encrypted."""
