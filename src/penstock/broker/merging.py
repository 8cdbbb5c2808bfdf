"""One reply out of the replies of several shards. Pure functions, which also merge what they have merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from penstock.broker.series_block import LATENCIES
from penstock.broker.types import QueueRow
from penstock.errors import Conflict
from penstock.wire.encryption import EncryptionReply, ErasedReply
from penstock.wire.holds import HoldRemovedReply, HoldReply, HoldsReply
from penstock.wire.schedules import SchedulesReply
from penstock.wire.webhooks import WebhooksReply

_SUMS = ("queues", "depth", "scheduled", "leased", "dead", "waiting_consumers", "held_bytes")


def joined(parts: Iterable[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))


def nothing(_: list[Any]) -> None:
    return None


def paths(parts: Iterable[Sequence[str]]) -> list[str]:
    return sorted(chain.from_iterable(parts))


def rows(parts: Iterable[Sequence[QueueRow]]) -> list[QueueRow]:
    return sorted(chain.from_iterable(parts), key=lambda row: row.queue)


def queue_page(parts: list[dict[str, Any]], page: int, limit: int) -> dict[str, Any]:
    entries = sorted(chain.from_iterable(part["queues"] for part in parts), key=lambda entry: entry["queue"])
    total = sum(part["total"] for part in parts)
    return {"queues": entries[(page - 1) * limit : page * limit], "total": total, "page": page, "limit": limit}


def schedule_page(parts: list[SchedulesReply], page: int, limit: int) -> SchedulesReply:
    found = sorted(chain.from_iterable(part.schedules for part in parts), key=lambda each: each.name)
    return SchedulesReply(found[(page - 1) * limit : page * limit], sum(part.total for part in parts), page, limit)


def webhook_page(parts: list[WebhooksReply], page: int, limit: int) -> WebhooksReply:
    found = sorted(chain.from_iterable(part.webhooks for part in parts), key=lambda each: each.id)
    return WebhooksReply(found[(page - 1) * limit : page * limit], sum(part.total for part in parts), page, limit)


def summary(parts: list[dict[str, Any]], all_paths: Sequence[str], held: HoldsReply) -> dict[str, Any]:
    """A namespace or a hold may be on several shards, and counts once."""
    whole = {**parts[0], **{name: sum(part[name] for part in parts) for name in _SUMS}}
    whole["namespaces"] = len({path.partition("/")[0] for path in all_paths})
    whole["dead_letter_alarms"] = paths(part["dead_letter_alarms"] for part in parts)
    whole["holds"] = len(held.holds)
    whole["holds_lost"] = sum(hold.lost_at_ms is not None for hold in held.holds)
    return whole


# -- series -------------------------------------------------------------------------------------------------------


def _read_series(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums by time, and of latencies the highest: a minute may have ended between two shards."""
    times = sorted({at for part in parts for at in part["at_ms"]})
    series: dict[str, list[int | None]] = {}
    for name in parts[0]["series"]:
        found: dict[int, list[int]] = {}
        for part in parts:
            for at, value in zip(part["at_ms"], part["series"][name], strict=True):
                if value is not None:
                    found.setdefault(at, []).append(value)
        join = max if name in LATENCIES else sum
        series[name] = [join(found[at]) if at in found else None for at in times]
    return {"step_ms": parts[0]["step_ms"], "at_ms": times, "series": series}


def summed(parts: list[list[int]]) -> list[int]:
    return [sum(values) for values in zip(*parts, strict=True)]


SERIES: dict[str, Callable[[list[Any]], Any]] = {"series.read": _read_series, "series.recent": summed}


# -- holds --------------------------------------------------------------------------------------------------------


def holds(parts: Iterable[HoldsReply]) -> HoldsReply:
    """Parts of one hold on several shards are one hold."""
    by_name: dict[str, list[HoldReply]] = {}
    for part in parts:
        for each in part.holds:
            by_name.setdefault(each.name, []).append(each)
    return HoldsReply([hold(by_name[name]) for name in sorted(by_name)])


def hold(parts: Sequence[HoldReply]) -> HoldReply:
    """A hold that was lost on one shard is lost."""
    lost = [part.lost_at_ms for part in parts if part.lost_at_ms is not None]
    frames = {shard: frame for part in parts for shard, frame in part.shards.items()}
    return HoldReply(
        parts[0].name,
        frames.get("0"),
        {queue: offsets for part in parts for queue, offsets in part.queues.items()},
        parts[0].max_bytes,
        sum(part.spanned_bytes for part in parts),
        max(part.set_at_ms for part in parts),
        min(lost, default=None),
        {queue: uuid for part in parts for queue, uuid in part.uuids.items()},
        frames,
    )


def removed_hold(parts: list[HoldRemovedReply]) -> HoldRemovedReply:
    return HoldRemovedReply(parts[0].name, any(part.removed for part in parts))


# -- encryption ---------------------------------------------------------------------------------------------------


def encryption(parts: list[EncryptionReply]) -> EncryptionReply:
    """Each shard has a keyring of its own; the latest generation of all is shown."""
    return replace(
        parts[0], generation=max(part.generation for part in parts), queues=sum(part.queues for part in parts)
    )


def erased(parts: list[ErasedReply]) -> ErasedReply:
    sums = {name: sum(getattr(part, name) for part in parts) for name in ("queues", "messages", "dead_letters")}
    return replace(parts[0], generation=max(part.generation for part in parts), **sums)


def refusal(parts: list[Conflict]) -> Conflict:
    """One refusal with what all shards would lose. Their tokens are the same."""
    lost = [part.details["would_lose"] for part in parts]
    would_lose = {name: sum(each[name] for each in lost) for name in lost[0]}
    return Conflict(parts[0].message, details={**parts[0].details, "would_lose": would_lose})


# -- receipts by id -----------------------------------------------------------------------------------------------


def one_holder(text: str, receipts: Iterable[str | None]) -> str | None:
    """The receipt of the one shard that knows the message. Raises Conflict if several do."""
    found = [receipt for receipt in receipts if receipt is not None]
    if len(found) > 1:
        raise Conflict(
            f"{text[:128]!r} is held {len(found)} times, in queues on different shards; say which queue is meant"
        )
    return found[0] if found else None
