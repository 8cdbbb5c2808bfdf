"""Types of the routes, and the number of the meta shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from penstock.broker.router import Router

Arguments: TypeAlias = tuple[Any, ...]
Options: TypeAlias = dict[str, Any]
Route: TypeAlias = Callable[["Router", str, Arguments, Options], Any]
"""Answers a call as the method of one shard would: with a value, a coroutine or a `PendingReply`."""

META = 0
"""The shard that has what belongs to no queue: API keys and users."""
