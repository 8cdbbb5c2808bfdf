"""Types of the routes, and the number of the meta shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from penstock.broker.router import Router

Arguments: TypeAlias = tuple[Any, ...]
Options: TypeAlias = dict[str, Any]
Route: TypeAlias = Callable[["Router", str, Arguments, Options], Any]
"""Answers a call as the method of one shard would: with a value, a coroutine or a `PendingReply`."""


class ShardCalls(Protocol):
    """The facade of one shard, which this process or another one serves."""

    @property
    def number(self) -> int: ...

    @property
    def is_here(self) -> bool:
        """True if this process serves the shard."""

    def call(self, method: str, arguments: Arguments, options: Options) -> Any:
        """Call `<room>.<method>`. The reply of another process is always awaitable."""

    def route(self, method: str, arguments: Arguments, options: Options) -> Any:
        """Make the call by its route, where the shard is served."""


META = 0
"""The shard that has what belongs to no queue: API keys and users."""
