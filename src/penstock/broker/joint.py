"""Replies that take several calls: what one caller waits for is completed by a coroutine.

A facade call answers with a `PendingReply`. Where a request concerns several shards, or has to wait for one shard
before it can ask the next, a coroutine makes the calls and its result completes the reply.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from penstock.broker.types import LeaseReply
from penstock.errors import PenstockError
from penstock.pending import PendingReply, value_of
from penstock.wire.delivery import Settled

T = TypeVar("T")


class Joint:
    """The parts of one request. `inner` are replies whose messages belong to the caller of the whole."""

    def __init__(self) -> None:
        self.inner: list[PendingReply[Any]] = []
        self.withdrawn = False

    def hold(self, reply: PendingReply[T]) -> PendingReply[T]:
        """Wait for this part on behalf of the caller: it is withdrawn and cancelled together with the whole."""
        self.inner.append(reply)
        if self.withdrawn:
            reply.withdraw()
        return reply

    def withdraw(self) -> None:
        self.withdrawn = True
        for reply in list(self.inner):
            reply.withdraw()

    def cancel(self) -> None:
        """Cancel the parts. Messages that they have leased are returned."""
        for reply in self.inner:
            reply.cancel()


def joint_reply(work: Callable[[Joint], Coroutine[Any, Any, T]]) -> PendingReply[T]:
    """A reply that is completed with the result of `work`."""
    joint, reply = Joint(), PendingReply[T]()
    task = asyncio.ensure_future(work(joint))

    def cancel() -> None:
        task.cancel()
        joint.cancel()

    def done(task: asyncio.Task[T]) -> None:
        reply.on_withdraw = None
        if task.cancelled():
            reply.cancel()
            return
        error = task.exception()
        if error is None:
            reply.on_cancel = joint.cancel
            reply.complete(task.result())
        else:
            assert isinstance(error, Exception)
            joint.cancel()  # parts that succeeded have leased messages that the caller does not get
            reply.fail(error)

    reply.on_cancel, reply.on_withdraw = cancel, joint.withdraw
    task.add_done_callback(done)
    return reply


def lease_after(
    ack: Callable[[], PendingReply[Sequence[Settled]]], lease: Callable[[], PendingReply[LeaseReply]]
) -> PendingReply[LeaseReply]:
    """The lease with the results of the acks before it. A refused lease still replies with them: repeated acks would
    be stale."""

    async def run(joint: Joint) -> LeaseReply:
        results = await ack()
        try:
            return (await joint.hold(lease()))._replace(results=results)
        except PenstockError:
            return LeaseReply([], results)

    return joint_reply(run)


def merged(parts: Iterable[Any], merge: Callable[[list[Any]], T]) -> T | Coroutine[Any, Any, T]:
    """`merge` of all parts: now if all of them are values, otherwise as a coroutine."""
    found = list(parts)
    if not any(inspect.isawaitable(each) for each in found):
        return merge(found)

    async def wait() -> T:
        return merge(await gathered(found))

    return wait()


async def gathered(parts: Iterable[Any]) -> list[Any]:
    """The values of all parts, which may be awaitables. Raises the first error, after all of them have ended."""
    found = list(parts)  # a call that is refused at once raises here
    results = await asyncio.gather(*map(value_of, found), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
