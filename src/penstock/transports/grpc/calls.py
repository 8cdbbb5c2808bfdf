"""Around every call: what comes in is parsed, what goes wrong becomes a status, what happened is counted.

Whatever happens inside, the status is one that was promised: a refusal is the error that says so, a bug is INTERNAL
with nothing of ours in it. Requests and replies are bytes to gRPC, so that what cannot be parsed is refused here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import structlog
from google.protobuf.message import Message

from penstock import limits
from penstock.errors import Internal, PenstockError, TooLarge
from penstock.transports.grpc.edge import Edge
from penstock.transports.grpc.refusal import refuse, status_of
from penstock.transports.grpc.shapes import parse

_log = structlog.get_logger("penstock.grpc")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Unary: TypeAlias = Callable[[Edge, Any, Context], Awaitable[Message | bytes]]
"""One request, one reply; bytes if it is encoded already. Raises PenstockError for everything else."""
Stream: TypeAlias = Callable[[Edge, Context], Awaitable[None]]
"""Reads from the context and writes to it until one of both has ended."""
Replies: TypeAlias = Callable[[Edge, Any, Context], Awaitable[None]]
"""One request; writes to the context."""


class Calls:
    """Makes the handlers that gRPC calls, and knows how many calls are under way."""

    def __init__(self, edge: Edge):
        self._edge = edge
        self._open: set[asyncio.Task[Any]] = set()

    async def ended(self, within_s: float) -> None:
        """Returns when all calls that are under way now have ended, or when the time is over."""
        if self._open:
            await asyncio.wait(set(self._open), timeout=within_s)

    def unary(self, name: str, kind: type[Message], handle: Unary, size_max: int) -> Any:
        async def call(data: bytes, context: Context) -> bytes | None:
            async with self._around(name, context):
                reply = await handle(self._edge, parse(kind, data, size_max), context)
                return reply if isinstance(reply, bytes) else _encoded(reply)
            return None

        return grpc.unary_unary_rpc_method_handler(call)

    def replies(self, name: str, kind: type[Message], handle: Replies) -> Any:
        async def call(data: bytes, context: Context) -> None:
            async with self._around(name, context):
                await handle(self._edge, parse(kind, data), context)

        return grpc.unary_stream_rpc_method_handler(call)

    def stream(self, name: str, handle: Stream) -> Any:
        async def call(requests: object, context: Context) -> None:  # noqa: ARG001
            async with self._around(name, context):
                await handle(self._edge, context)

        return grpc.stream_stream_rpc_method_handler(call)

    @asynccontextmanager
    async def _around(self, name: str, context: Context) -> AsyncIterator[None]:
        task = asyncio.current_task()
        assert task is not None, "gRPC runs every call in a task"
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        status = grpc.StatusCode.OK
        error: PenstockError | None = None
        try:
            yield
        except PenstockError as refusal:
            error = refusal
        except asyncio.CancelledError:
            # By the client, by its deadline, or because it is gone: there is nobody to answer.
            self._edge.metrics.called(name, grpc.StatusCode.CANCELLED.name)
            raise
        except Exception:
            _log.exception("failed", operation=name)
            error = Internal("an unexpected error; the server's log has it")
        if error is not None:
            status = status_of(error)
        self._edge.metrics.called(name, status.name)
        if error is not None:
            await refuse(context, error)


def _encoded(reply: Message) -> bytes:
    data = reply.SerializeToString()
    if len(data) > limits.GRPC_REPLY_BYTES_MAX:
        raise TooLarge(
            f"the reply would have {len(data)} bytes, more than the {limits.GRPC_REPLY_BYTES_MAX} that every client "
            "takes; ask for less at once"
        )
    return data
