"""`explain`: why a message is still in its queue. Joins the reasons of the state machine (`core/explain.py`) with facts
of the runtime: the ids of messages, the waiting consumers, and whether the journal accepts writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from penstock.batch import layout
from penstock.broker.finding import find_message
from penstock.broker.stats import Stats
from penstock.broker.webhooks import Webhooks
from penstock.core import explain as core
from penstock.core.explain import Explanation, Reason
from penstock.core.lifecycle import State
from penstock.core.records import Published
from penstock.core.state import Queue
from penstock.durations import duration_text
from penstock.ids import QueuePath, ulid_text
from penstock.runtime.stored import when_at_hand
from penstock.runtime.view import ShardView

LATELY_MS = 60_000
"""A consumer whose last lease request is newer than this counts as present: no wait is longer."""


HOLDERS_SHOWN = 10
"""Groups that hold back the log, those that hold most."""


class NoConsumer(Reason, frozen=True, tag="no_consumer"):
    """No consumer waits for messages of this group, and none has asked for a minute."""

    blocks = False
    last_asked_at_ms: int | None
    """None: not since the server started."""


class DiskFull(Reason, frozen=True, tag="disk_full"):
    """Not even a lease can be written; consumers are refused until there is room."""


class WebhookRests(Reason, frozen=True, tag="webhook_rests"):
    """The group is read by a webhook, which sends nothing now."""

    blocks = False
    webhook: str
    state: str
    """`paused`, `disabled`, or `open`: the circuit, because the endpoint failed too often or asked for patience."""
    until_at_ms: int | None
    """Of `open`."""


class Explanations:
    def __init__(self, view: ShardView, webhooks: Webhooks, stats: Stats):
        self._view = view
        self._stats = stats
        self._webhooks = webhooks

    async def explain(self, path: QueuePath, *, id: str | None = None, group: str = "default") -> dict[str, Any]:
        """Why the message with this id is not being delivered to this group now; without an id the head of every
        partition that has anything waiting."""
        queue = self._view.queue(path)
        if id is not None:
            entries = [await when_at_hand(partial(self._by_id, queue, group, id))]
        else:
            entries = []
            for number in range(len(queue.partitions)):
                # Each entry speaks of its own moment: with many partitions, others have their turn in between.
                offset = self._view.explainer(queue, group, self._view.advance()).head(number)
                if offset is not None:
                    entries.append(await when_at_hand(partial(self._at, queue, group, number, offset)))
                await self._view.give_way()
        asked = self._view.last_asked_ms(queue, group)
        return {
            "queue": queue.path,
            "group": group,
            "at_ms": self._view.now_ms(),
            "waiting_consumers": self._view.waiting_in(queue, group),
            "last_asked_at_ms": asked,
            "held_by": self._stats.holders(queue, HOLDERS_SHOWN),
            "messages": entries,
        }

    def _by_id(self, queue: Queue, group: str, text: str) -> dict[str, Any]:
        handle = find_message(self._view.log, queue, text)
        if handle is not None and handle.partition is not None and handle.offset is not None:
            return self._at(queue, group, handle.partition, handle.offset)
        shown = text if handle is None else ulid_text(handle.id)
        return {
            "id": shown, "partition": None, "offset": None, "published_at_ms": None, "state": "not_found",
            "attempts": None, "deliverable": False, "reasons": [],
            "text": f"No message {shown} is stored in {queue.path}: it was finished and let go, or was never there. "
            "Its history may know.",
        }  # fmt: skip

    def _at(self, queue: Queue, group: str, number: int, offset: int) -> dict[str, Any]:
        now_ms = self._view.advance()
        record = self._record(queue, number, offset)
        explainer = self._view.explainer(queue, group, now_ms)
        found = explainer.explain(number, offset, own_due_ms(queue, record, offset) if record is not None else None)
        reasons = [*found.reasons, *self._of_runtime(queue, group, found, now_ms)]
        return {
            "id": None if record is None else ulid_text(record.id + offset - record.offset),
            "partition": number,
            "offset": offset,
            "published_at_ms": None if record is None else record.at,
            "state": found.state,
            "attempts": found.attempts,
            "deliverable": not any(reason.blocks for reason in reasons),
            "reasons": [self._shown(queue, reason) for reason in reasons],
            "text": _sentence(found, reasons, now_ms),
        }

    def _record(self, queue: Queue, number: int, offset: int) -> Published | None:
        """The record that published this offset; None if it is not durable yet, or its bytes are gone."""
        for run in self._view.log.runs(queue.number, number, offset, offset + 1):
            return run.record
        return None

    def _of_runtime(self, queue: Queue, group: str, found: Explanation, now_ms: int) -> list[Reason]:
        if found.state != State.READY:
            return []
        reasons: list[Reason] = []
        if self._view.without_room:
            reasons.append(DiskFull())
        rest = self._webhooks.rest_of(queue.path, group)
        if rest is not None:
            return [*reasons, WebhookRests(*rest)]
        asked = self._view.last_asked_ms(queue, group)
        waiting = self._view.waiting_in(queue, group)
        if group in queue.groups and not waiting and (asked is None or now_ms - asked > LATELY_MS):
            reasons.append(NoConsumer(asked))
        return reasons

    def _shown(self, queue: Queue, reason: Reason) -> dict[str, Any]:
        shown: dict[str, Any] = {**msgspec.to_builtins(reason), "blocks": reason.blocks}
        if isinstance(reason, core.KeyBlocked):
            record = self._record(queue, reason.partition, reason.offset)
            shown["id"] = None if record is None else ulid_text(record.id + reason.offset - record.offset)
        return shown


def own_due_ms(queue: Queue, record: Published, offset: int) -> int:
    """The delivery time of a message by its own fields and by the present delay of the queue."""
    row, batch = offset - record.offset, record.batch
    due = record.at + queue.config.delay_ms
    if batch.has(layout.DELAY_MS):
        due = max(due, record.at + batch.integers(layout.DELAY_MS)[row])
    if batch.has(layout.DELIVER_AT_MS):
        due = max(due, batch.integers(layout.DELIVER_AT_MS)[row])
    return due


# -- in words -----------------------------------------------------------------------------------------------------


def _sentence(found: Explanation, reasons: list[Reason], now_ms: int) -> str:
    """The reasons as text, most important first. The wording is not part of the contract."""
    if not reasons:
        return "Ready, and nothing is in the way: the next consumer that asks gets it."
    told = "; ".join(_WORDS[type(reason)](reason, now_ms) for reason in reasons)
    if found.state == State.READY:
        told = f"ready; {told}"
    return told[0].upper() + told[1:] + "."


def _in(at_ms: int | None, now_ms: int) -> str:
    if at_ms is None:
        return "at a time that is not known here"
    return f"in {duration_text(at_ms - now_ms)}" if at_ms > now_ms else "now"


def _who(consumer: str) -> str:
    return f"consumer {consumer}" if consumer else "a consumer without a name"


def _not_due(reason: core.NotDue, now_ms: int) -> str:
    return f"scheduled: due {_in(reason.due_at_ms, now_ms)}"


def _retry(reason: core.WaitingForRetry, now_ms: int) -> str:
    error = f" ({reason.error})" if reason.error else ""
    if not reason.attempt:
        return f"redriven from the dead letters{error}; due {_in(reason.due_at_ms, now_ms)}"
    return f"attempt {reason.attempt} failed{error}; the next one is due {_in(reason.due_at_ms, now_ms)}"


def _leased(reason: core.LeasedTo, now_ms: int) -> str:
    since = duration_text(now_ms - reason.since_at_ms)
    return (
        f"leased to {_who(reason.consumer)} for {since}, attempt {reason.attempt}; the lease ends "
        f"{_in(reason.deadline_at_ms, now_ms)}"
    )


_OUTCOMES = {
    "done": "finished in this group; how is no longer known here, but its history may tell",
    "expired_or_cancelled": "over: it expired or was cancelled",
    "trimmed": "no longer retained: the log begins after it",
}


def _finished(reason: core.Finished, now_ms: int) -> str:  # noqa: ARG001  one shape for all
    if reason.outcome == "dead":
        error = f": {reason.error}" if reason.error else ""
        return f"given up and among the dead letters ({reason.reason}{error})"
    return _OUTCOMES[reason.outcome]


def _key(reason: core.KeyBlocked, now_ms: int) -> str:
    states: dict[str, str] = {
        State.LEASED: f"is leased to {_who(reason.consumer)} until its lease ends {_in(reason.deadline_at_ms, now_ms)}",
        State.WAITING: f"failed and is due again {_in(reason.due_at_ms, now_ms)}",
        State.DEAD: "is a dead letter, and its key is parked until that is redriven or deleted",
    }
    state = states.get(reason.state, "is ready itself")
    more = f", and {reason.ahead} more with the key come first" if reason.ahead else ""
    return f"its key is blocked by offset {reason.offset} of partition {reason.partition}, which {state}{more}"


def _cap(reason: core.TenantAtCap, now_ms: int) -> str:  # noqa: ARG001
    ahead = f" and {reason.ahead} more come first" if reason.ahead else ""
    return f"its tenant has {reason.in_flight} of {reason.max_in_flight} messages in flight{ahead}"


def _behind(reason: core.Behind, now_ms: int) -> str:  # noqa: ARG001
    least = "" if reason.exact else "at least "
    noun = "message" if reason.count == 1 else "messages"
    return f"{least}{reason.count} {noun} of its {reason.within} {'comes' if reason.count == 1 else 'come'} first"


def _older(reason: core.OlderPartitions, now_ms: int) -> str:  # noqa: ARG001
    names = ", ".join(map(str, reason.partitions))
    return f"its partition was added later and waits for what was in partition {names} before"


def _window(reason: core.WindowClosed, now_ms: int) -> str:
    return f"the queue delivers once it is left alone: {_in(reason.opens_at_ms, now_ms)}, if nothing more comes"


def _occupied(reason: core.Occupied, now_ms: int) -> str:
    if reason.in_flight:
        return f"the queue is exclusive, and {reason.in_flight} of its messages are in flight"
    return f"the queue is exclusive, and what failed comes again {_in(reason.retry_at_ms, now_ms)}"


def _handed_over(reason: core.HandedOver, now_ms: int) -> str:
    giver = f"member {reason.giver}" if reason.giver else "a member that has left"
    return (
        f"its partition goes from {giver} to member {reason.member} when what is held is finished, at the latest "
        f"{_in(reason.until_at_ms, now_ms)}"
    )


def _assigned(reason: core.Assigned, now_ms: int) -> str:  # noqa: ARG001
    return f"its partition is assigned to member {reason.member}"


def _lane(reason: core.LaneShareSpent, now_ms: int) -> str:  # noqa: ARG001
    lanes = ", ".join(map(str, reason.before))
    return f"lane {reason.lane} has spent its share of this round, and lane {lanes} has not"


def _nobody(reason: NoConsumer, now_ms: int) -> str:
    if reason.last_asked_at_ms is None:
        return "no consumer of this group has asked since the server started"
    return f"no consumer of this group has asked for {duration_text(now_ms - reason.last_asked_at_ms)}"


def _webhook(reason: WebhookRests, now_ms: int) -> str:
    if reason.until_at_ms is not None:
        return (
            f"the endpoint of webhook {reason.webhook} failed too often or asked for patience, and is tried again "
            f"{_in(reason.until_at_ms, now_ms)}"
        )
    return f"its group is read by webhook {reason.webhook}, which is {reason.state}"


_WORDS: dict[type[Reason], Callable[[Any, int], str]] = {
    core.NotDue: _not_due,
    core.WaitingForRetry: _retry,
    core.LeasedTo: _leased,
    core.Finished: _finished,
    core.GroupNotBegun: lambda _reason, _now: "no consumer of this group has ever asked; its first lease begins it",
    core.OlderPartitions: _older,
    core.WindowClosed: _window,
    core.Occupied: _occupied,
    core.HandedOver: _handed_over,
    core.Assigned: _assigned,
    core.KeyBlocked: _key,
    core.TenantAtCap: _cap,
    core.Behind: _behind,
    core.LaneShareSpent: _lane,
    core.PastTtl: lambda _reason, _now: "its time to live is over, so it expires when no consumer holds it any longer",
    NoConsumer: _nobody,
    WebhookRests: _webhook,
    DiskFull: lambda _reason, _now: "the disk is full, and no lease can be written",
}
assert set(_WORDS) >= set(Reason.__subclasses__()), "every reason has its words"
