"""Routes of publish, lease and settle. An atomic call is refused if it concerns several shards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock import limits
from penstock.broker.joint import Joint, gathered, joint_reply, lease_after, merged
from penstock.broker.routing import META, Arguments, Options
from penstock.broker.types import LeaseReply, PublishPart
from penstock.errors import CrossShard, PenstockError
from penstock.ids import QueuePath
from penstock.pending import PendingReply
from penstock.wire.delivery import Settled

if TYPE_CHECKING:
    from penstock.broker.router import Router


T = TypeVar("T")

# -- messages -----------------------------------------------------------------------------------------------------


def publish(router: Router, method: str, arguments: Arguments, options: Options) -> PendingReply[Any]:
    parts: Sequence[PublishPart] = arguments[0]
    return _together(router, {part.queue for part in parts}, set(), method, arguments, options)


def transact(router: Router, method: str, arguments: Arguments, options: Options) -> PendingReply[Any]:
    receipts, parts = arguments
    others = set(_by_shard(router, receipts))
    return _together(router, {part.queue for part in parts}, others, method, arguments, options)


def _together(
    router: Router, queues: set[QueuePath], others: set[int], method: str, arguments: Arguments, options: Options
) -> PendingReply[Any]:
    """A call that changes these queues, and leases on the shards `others`, as a whole."""
    here = {queue: router.here(queue) for queue in queues}
    places = {queue: shard for queue, shard in here.items() if shard is not None}
    if len(places) == len(queues):
        return router.call(_one_shard(places, others), method, arguments, options)  # type: ignore[no-any-return]
    homes = {router.home_of(queue) for queue in queues}
    if len(homes) == 1 and not router.is_here(home := homes.pop()):
        return router.route(home, method, arguments, options)  # type: ignore[no-any-return]

    async def locate_first(joint: Joint) -> Any:
        _one_shard(await _places(router, queues), others)
        for queue in queues:
            await router.finish(queue)
        # A queue that was deleted meanwhile may live elsewhere now.
        shard = _one_shard(await _places(router, queues), others)
        return await joint.hold(router.call(shard, method, arguments, options))

    return joint_reply(locate_first)


async def _places(router: Router, queues: set[QueuePath]) -> dict[QueuePath, int]:
    return {queue: await router.locate(queue) for queue in sorted(queues)}


def _one_shard(places: dict[QueuePath, int], others: set[int]) -> int:
    """The one shard of these queues and of receipts on `others`. Raises CrossShard if they are several."""
    shards = {*places.values(), *others}
    if len(shards) > 1:
        receipts = " and the receipts" if others else ""
        shown = dict(sorted(places.items())[:_SHOWN])
        raise CrossShard(
            f"the queues{receipts} are on {len(shards)} different shards, and what happens together happens on one; "
            "create the queues with `placement: namespace`, which keeps the queues of a namespace on one shard, or "
            "send one request for each",
            details={"queues": shown, "shards": sorted(shards)},
        )
    return shards.pop() if shards else META


_SHOWN = 100


# -- receipts -----------------------------------------------------------------------------------------------------


def _by_shard(router: Router, receipts: Sequence[str]) -> dict[int, list[int]]:
    """Shard -> the positions of its receipts. The meta shard answers for texts that are no receipts."""
    places: dict[int, list[int]] = {}
    known, shard = "", META
    for position, text in enumerate(receipts):
        prefix = text[: text.find(".", 3) + 1]
        if prefix != known:
            known, shard = prefix, _shard_in(prefix, router.count)
        places.setdefault(shard, []).append(position)
    return places


def _shard_in(prefix: str, count: int) -> int:
    """The shard in `r1.<shard>.`; the meta shard if this is no such text."""
    number = prefix[3:-1]
    if prefix[:3] != "r1." or not (number.isascii() and number.isdigit()) or len(number) > 4:
        return META
    return int(number) if int(number) < count else META


def settle(router: Router, method: str, arguments: Arguments, options: Options) -> PendingReply[Any]:
    receipts: Sequence[str] = arguments[0]
    places = _by_shard(router, receipts)
    if len(places) < 2:
        return router.call(next(iter(places), META), method, arguments, options)  # type: ignore[no-any-return]
    calls = _settling_calls(router, method, receipts, places, options)

    async def settle(_: Joint) -> list[Settled]:
        results = await asyncio.gather(*map(_reply_of, (reply for reply, _ in calls)), return_exceptions=True)
        placed = [positions for _, positions in calls]
        errors = [each for each in results if isinstance(each, BaseException)]
        if not errors:
            return _in_order(results, placed)  # type: ignore[arg-type]
        raise _settled_in_part(receipts, results, placed, errors[0])

    return joint_reply(settle)


def _settled_in_part(
    receipts: Sequence[str],
    results: Sequence[list[Settled] | BaseException],
    positions: Sequence[list[int]],
    error: BaseException,
) -> BaseException:
    """The error of a shard, with the receipts that others settled, and with those whose outcome is unknown."""
    failed: dict[bool, list[int]] = {True: [], False: []}
    settled: list[Settled] = []
    for result, at in zip(results, positions, strict=True):
        if isinstance(result, BaseException):
            refused = isinstance(result, PenstockError) and result.details.get("outcome") != "unknown"
            failed[refused] += at
        else:
            settled += result
    if isinstance(error, PenstockError):
        error.details = {
            **error.details,
            "settled": msgspec.to_builtins(settled),
            "unsettled": [receipts[at] for at in sorted(failed[True])],
            "unknown": [receipts[at] for at in sorted(failed[False])],
        }
    return error


def _settling_calls(
    router: Router, method: str, receipts: Sequence[str], places: dict[int, list[int]], options: Options
) -> list[tuple[PendingReply[Any], list[int]]]:
    """The calls, with the positions of their receipts. A range, which may have several results, has its own call."""
    calls = []
    for shard, positions in places.items():
        ranges = [at for at in positions if "-" in receipts[at]]
        singles = [at for at in positions if "-" not in receipts[at]] if ranges else positions
        for group in [singles] * bool(singles) + [[at] for at in ranges]:
            named = [receipts[at] for at in group]
            calls.append((router.call(shard, method, (named,), options), group))
    return calls


def _in_order(results: Sequence[Sequence[Settled]], positions: Sequence[list[int]]) -> list[Settled]:
    """The results in the order of the receipts."""
    placed: list[tuple[int, Settled]] = []
    for found, at in zip(results, positions, strict=True):
        placed += zip(at if len(at) == len(found) else at * len(found), found, strict=True)
    return [result for _, result in sorted(placed, key=lambda entry: entry[0])]


def queues_of(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    receipts = arguments[0]
    parts = [
        router.call(shard, method, ([receipts[at] for at in positions],), options)
        for shard, positions in _by_shard(router, receipts).items()
    ]
    return merged(parts, lambda found: set().union(*found))


# -- leases -------------------------------------------------------------------------------------------------------


def lease(router: Router, method: str, arguments: Arguments, options: Options) -> PendingReply[LeaseReply]:
    if not router.has_home(arguments[0]):
        return router.route(router.home_of(arguments[0]), method, arguments, options)  # type: ignore[no-any-return]
    shard = router.shard_of(arguments[0])
    ack = options.get("ack", ())
    if not ack or set(_by_shard(router, ack)) == {shard}:
        return router.call(shard, method, arguments, options)  # type: ignore[no-any-return]

    without = {name: value for name, value in options.items() if name != "ack"}
    return lease_after(
        lambda: settle(router, "messages.ack", (ack,), {}), lambda: router.call(shard, method, arguments, without)
    )


def lease_scope(
    router: Router,
    method: str,
    arguments: Arguments,
    options: Options,
) -> PendingReply[LeaseReply]:
    """Messages of the queues of a scope on all shards. A shard delivers its own in their order; among the shards the
    one whose first message has the highest priority, and then is the oldest, is asked first."""
    scope, ack = arguments[0], options.get("ack", ())
    most, wait_ms = options.get("max", 1), options.get("wait_ms", 0)
    plain = {name: value for name, value in options.items() if name not in ("ack", "wait_ms", "max")}

    async def lease(joint: Joint) -> LeaseReply:
        results = await settle(router, "messages.ack", (ack,), {}) if ack else ()
        try:
            reply = await _lease_ready(router, joint, method, scope, most, plain)
            if not reply.runs and wait_ms and not joint.withdrawn:
                reply = await _lease_waiting(router, joint, method, scope, {**plain, "max": most, "wait_ms": wait_ms})
        except PenstockError:
            if not results:
                raise
            joint.cancel()
            reply = LeaseReply([], ())
        return reply._replace(results=results)

    return joint_reply(lease)


async def _lease_ready(
    router: Router, joint: Joint, method: str, scope: str, most: int, options: Options
) -> LeaseReply:
    """Lease the messages that are ready now from one shard after the other, until the reply is half full."""
    group = options.get("group", "default")
    heads = await gathered(router.call(shard, "messages.scope_head", (scope, group), {}) for shard in router.numbers)
    ready = sorted((head, shard) for shard, head in zip(router.numbers, heads, strict=True) if head is not None)
    runs: list[Any] = []
    left, room = most, options.get("bytes_max", limits.LEASE_REPLY_BYTES_MAX)
    for _, shard in ready:
        lease = {**options, "max": left, "bytes_max": room, "wait_ms": 0}
        try:
            found = await joint.hold(router.call(shard, method, (scope,), lease))
        except PenstockError:
            if not runs:
                raise
            break  # the caller has messages of another shard already
        runs += found.runs
        left -= sum(run.count for run in found.runs)
        room -= sum(len(run.batch.frame) for run in found.runs)
        # A lease delivers at least one message, whatever its size.
        if left * 2 <= most or room <= 0:
            break
    return LeaseReply(runs, ())


async def _lease_waiting(router: Router, joint: Joint, method: str, scope: str, options: Options) -> LeaseReply:
    """Wait on all shards. When the first one has messages, the others stop waiting; what they have granted meanwhile is
    delivered too if there is room for it, and otherwise returned. Messages that a grant settles (at most once) are
    always delivered, so the reply may have more than `max` messages."""
    waiting: dict[asyncio.Future[LeaseReply], PendingReply[LeaseReply]] = {}
    for shard in router.numbers:
        reply = joint.hold(router.call(shard, method, (scope,), options))
        waiting[asyncio.ensure_future(_reply_of(reply))] = reply
    pending = set(waiting)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if any(task.exception() is not None or task.result().runs for task in done):
            break
    for reply in waiting.values():
        reply.withdraw()
    await asyncio.wait(waiting)
    runs: list[Any] = []
    joint.inner = []
    for task, reply in waiting.items():
        found = [] if task.exception() is not None else task.result().runs
        count = sum(run.count for run in (*runs, *found))
        if not runs or count <= options["max"] or any(run.receipt is None for run in found):
            runs += found
            joint.inner.append(reply)
        else:
            reply.cancel()
    if not runs:
        for task in waiting:
            task.result()  # raises the error of a shard
    return LeaseReply(runs, ())


async def _reply_of(reply: PendingReply[T]) -> T:
    return await reply
