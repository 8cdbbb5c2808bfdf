"""Routes of what has a name or an id of its own: queues, schedules, webhooks, holds; and of events and sums."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from penstock.broker import merging
from penstock.broker.joint import gathered, merged
from penstock.broker.routing import META, Arguments, Options
from penstock.errors import Conflict, CrossShard, DiskFull, InvalidRequest, NotFound, PenstockError, Unavailable
from penstock.ids import parse_queue, shard_of_id, ulid_value
from penstock.pending import value_of
from penstock.placement import BY_QUEUE, is_placement, shard_of
from penstock.wire.encryption import ErasedReply
from penstock.wire.holds import HoldRequest

if TYPE_CHECKING:
    from penstock.broker.router import Router


# -- queues -------------------------------------------------------------------------------------------------------


async def put_queue(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """Create or change. A queue that is to live on another shard than its home is first entered at its home: from then
    on every publish goes to that shard, and no second queue of this path can be created."""
    path, values = arguments
    placement, home = values.get("placement", BY_QUEUE), router.home_of(path)
    if not router.is_here(home):
        return await router.route(home, method, arguments, options)
    async with router.changing(path):
        shard = router.shard_of(path)
        if await router.has(path, shard) or not isinstance(placement, str) or not is_placement(placement):
            return await router.call(shard, method, arguments, options)
        wanted = shard_of(path, placement, router.count)
        if wanted != home and wanted < router.count:
            await router.call(home, "queues.place", (path, placement), {})
            try:
                return await router.call(wanted, method, arguments, options)
            except (Unavailable, DiskFull):
                raise  # it may be there; otherwise the next publish or `PUT` creates it
            except PenstockError:
                await router.call(home, "queues.unplace", (path,), {})
                raise
        return await router.call(home, method, arguments, options)


async def delete_queue(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    path = arguments[0]
    home = router.home_of(path)
    if not router.is_here(home):
        return await router.route(home, method, arguments, options)
    async with router.changing(path):
        shard = router.shard_of(path)
        if shard != home:
            # The next queue of this path may live elsewhere.
            await value_of(router.call(shard, "queues.demand_unused", (path,), {}))
            if not await router.has(path, shard):
                await router.call(home, "queues.unplace", (path,), {})  # an earlier delete ended between its two steps
        reply = await router.call(shard, method, arguments, options)
        if shard != home:
            await router.call(home, "queues.unplace", (path,), {})
        return reply


async def redrive(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    path, target = arguments[0], options.get("target")
    if not router.has_home(path):
        return await router.route(router.home_of(path), method, arguments, options)
    shard = router.shard_of(path)
    if target is not None and await router.locate(target) != shard:
        raise CrossShard(
            f"target: {target} is on another shard than {path}, and a dead letter and its copy change together; create "
            "both queues with `placement: namespace`",
            details={"field": "target"},
        )
    return await router.call(shard, method, arguments, options)


async def erase(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """A queue, or all queues of a namespace, which may be on several shards: first all of them refuse, with what would
    be lost, and then all of them erase."""
    target = arguments[0]
    if not target.endswith("/*"):
        return await router.call(await router.locate(target), method, arguments, options)
    parts = await asyncio.gather(*router.everywhere(method, arguments, options), return_exceptions=True)
    refusals = [part for part in parts if isinstance(part, Conflict) and "confirm" in part.details]
    for part in parts:
        if isinstance(part, BaseException) and part not in refusals:
            raise part
    if refusals:
        raise merging.refusal(refusals)
    return merging.erased([part for part in parts if isinstance(part, ErasedReply)])


# -- what has a name or an id of its own ------------------------------------------------------------------------


def schedule(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """A schedule lives on the shard of its queue, so that a fire and its message are one frame."""
    shard = _shard_with_schedule(router, arguments[0])
    if not inspect.isawaitable(shard):
        return router.call(META if shard is None else shard, method, arguments, options)

    async def find_first() -> Any:
        found = await shard
        return await value_of(router.call(META if found is None else found, method, arguments, options))

    return find_first()


def _shard_with_schedule(router: Router, name: str) -> Any:
    return merged(
        router.everywhere("schedules.has", (name,), {}),
        lambda found: next((shard for shard, has in enumerate(found) if has), None),
    )


async def put_schedule(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    if not router.is_here(META):
        return await router.route(META, method, arguments, options)
    name, asked = arguments
    queue = parse_queue(asked.queue)
    async with router.names:
        await router.finish(queue)
        present, shard = await value_of(_shard_with_schedule(router, name)), await router.locate(queue)
        if present is not None and present != shard:
            raise CrossShard(
                f"schedule {name} publishes to a queue on another shard than {queue}, and a schedule lives with its "
                "queue; delete it, and create it again",
                details={"field": "queue"},
            )
        return await router.call(shard, method, arguments, options)


def webhook(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """The id of a webhook says its shard, which is that of its queue."""
    try:
        shard = shard_of_id(ulid_value(arguments[0]))
    except InvalidRequest:
        shard = META
    return router.call(shard if shard < router.count else META, method, arguments, options)


async def create_webhook(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    queue = parse_queue(arguments[0].queue)
    await router.finish(queue)
    return await router.call(await router.locate(queue), method, arguments, options)


async def receipts_of_ids(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """A text may be the id of a client, so without a queue all shards look."""
    queue = options.get("queue")
    if queue is not None:
        return await router.call(await router.locate(queue), method, arguments, options)
    found = await gathered(router.everywhere(method, arguments, options))
    return list(map(merging.one_holder, arguments[0], zip(*found, strict=True)))


# -- holds and events ---------------------------------------------------------------------------------------------


async def set_hold(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """Each shard holds its own queues and its own journal. All of them are asked before the first one changes."""
    name, asked, paths = arguments
    places = {path: await router.locate(path) for path in paths.values()}
    parts = {shard: _part_of_hold(asked, paths, places, shard) for shard in router.numbers}
    wrong = sorted(number for number in asked.shards if int(number) >= router.count)
    if wrong:
        raise _no_such_shard(int(wrong[0]), router.count)
    held = {shard for shard, (part, _) in parts.items() if part.queues or part.events is not None} or {META}
    await gathered(router.call(shard, "holds.check", parts[shard], {}) for shard in held)
    replies = await gathered(
        router.call(shard, method, (name, *parts[shard]), options)
        if shard in held
        else router.call(shard, "holds.remove", (name,), {})
        for shard in router.numbers
    )
    return merging.hold([replies[shard] for shard in sorted(held)])


def _part_of_hold(
    asked: HoldRequest, paths: dict[str, str], places: dict[str, int], shard: int
) -> tuple[HoldRequest, dict[str, str]]:
    here = {given: path for given, path in paths.items() if places[path] == shard}
    part = HoldRequest(
        events=asked.shards.get(str(shard), asked.events if shard == META else None),
        queues={given: asked.queues[given] for given in here},
        max_bytes=asked.max_bytes,
        uuids={given: uuid for given, uuid in asked.uuids.items() if given in here or given not in paths},
    )
    return part, here


def get_hold(router: Router, method: str, arguments: Arguments, options: Options) -> Any:  # noqa: ARG001
    def pick(parts: list[Any]) -> Any:
        found = [hold for hold in merging.holds(parts).holds if hold.name == arguments[0]]
        if not found:
            raise NotFound(f"there is no hold {arguments[0]!r}")
        return found[0]

    return merged(router.everywhere("holds.list", (), {}), pick)


async def events(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """The shard that the query names; else that of the queue that it names; else the first."""
    query = arguments[0]
    queue = arguments[1] if len(arguments) > 1 else None
    shard = query.shard
    if shard is None:
        shard = META if queue is None else await router.locate(queue)
    elif shard >= router.count:
        raise _no_such_shard(shard, router.count)
    elif queue is not None and shard != (place := await router.locate(queue)):
        raise InvalidRequest(
            f"shard: queue {queue} is on shard {place}, not on {shard}; leave `shard` out",
            details={"field": "shard"},
        )
    return await router.call(shard, method, arguments, options)


def _no_such_shard(shard: int, count: int) -> InvalidRequest:
    return InvalidRequest(
        f"shard: there are shards 0 to {count - 1}, not {shard}", details={"field": "shard", "shards": count}
    )


def watch_feed(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    stops = [router.call(shard, method, arguments, options) for shard in router.numbers]

    def stop() -> None:
        for each in stops:
            each()

    return stop


async def summary(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    parts = await gathered(router.everywhere(method, arguments, options))
    paths = merging.paths(await gathered(router.everywhere("queues.paths", (), {})))
    held = merging.holds(await gathered(router.everywhere("holds.list", (), {})))
    return merging.summary(parts, paths, held)
