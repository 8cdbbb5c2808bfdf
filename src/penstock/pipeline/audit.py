"""`penstock pipeline audit`: check that every message is accounted for.

The events are counted message by message. A published message is, in every group, acked, dead, removed from the dead
letters, expired, cancelled, purged, deleted with its queue, trimmed by retention, or live; it has no impossible event;
and no offset is missing. The counts must agree with the present stats of the broker.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client import lowlevel as calls
from penstock.pipeline import audit_counts, bulk
from penstock.pipeline import lifecycle_rules as rules
from penstock.pipeline.archived_events import ArchivedEvents, LiveEvents
from penstock.pipeline.audit_counts import Account, Extent, FinishedRanges, GroupKey, Movement
from penstock.pipeline.connect import BrokerCalls, broker_id, listed_queues
from penstock.pipeline.history import History
from penstock.pipeline.lake.spans import place_of
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lifecycle_rules import Balance
from penstock.pipeline.queue_catalog import QueueCatalog
from penstock.pipeline.slots import map_slots, message_rows, update_catalog
from penstock.pipeline.timelines import build_timelines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGES_REPORTED = 100
"""The broker's stats have at most this many finished ranges above the floor."""


class Discrepancy(NamedTuple):
    """A number of messages that contradict the rules or the broker."""

    queue: str
    group: str | None
    what: str
    messages: int
    named: list[str]
    """`partition/offset` of the first messages, with the id if it is known."""


class AuditLine(NamedTuple):
    """The result for a group, or for a queue without groups."""

    queue_id: int
    queue: str
    group: str | None
    balance: Balance
    verdict: str
    """`balanced`, `unbalanced`, or `incomplete` if the first events of the history are missing."""


class Report(NamedTuple):
    first_frame: int
    """The history begins after this frame; 0 if it is complete."""
    last_frame: int
    lines: list[AuditLine]
    discrepancies: list[Discrepancy]

    @property
    def balances(self) -> bool:
        return not self.discrepancies and all(line.verdict == "balanced" for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        lines = [{**line._asdict(), **line.balance._asdict()} for line in self.lines]
        for line in lines:
            del line["balance"]
        return {
            "balances": self.balances,
            "history_after_frame": self.first_frame,
            "history_until_frame": self.last_frame,
            "groups": lines,
            "troubles": [discrepancy._asdict() for discrepancy in self.discrepancies],
        }


class BrokerState(NamedTuple):
    """The stats of the broker, taken between two frames of its journal."""

    start: int
    before: int
    after: int
    queues: dict[str, dict[str, Any]]
    """Path -> its stats."""


def take_state(broker: BrokerCalls, hold: str) -> BrokerState:
    """The present stats of the broker. A hold, set before and moved after, makes both frames durable and keeps them."""
    broker.ask(bulk.set_hold(hold, events=0, queues={}))
    ends = broker.ask(bulk.event_ranges("latest", until=0, each=1))
    paths = [entry["queue"] for entry in listed_queues(broker)]
    queues = {path: broker.ask(calls.operation("stats", dict[str, Any], queue=path)) for path in paths}
    broker.ask(bulk.set_hold(hold, events=0, queues={}))
    later = broker.ask(bulk.event_ranges("latest", until=0, each=1))
    return BrokerState(ends.start, ends.end, later.end, queues)


def audit(spark: SparkSession, url: str, token: str | None = None, *, lake: Path | str | None = None) -> Report:
    """Audit a running broker. Events that its journal no longer has are read from the lake, if one is given."""
    broker = BrokerCalls(url, token, 60.0)
    hold = f"audit-{secrets.token_hex(4)}"
    try:
        state = take_state(broker, hold)
        live = LiveEvents(spark, url, token)
        if lake is None:
            return examine(live.between(None, state.after), state)
        opened = Lake(lake)
        opened.check_broker(broker_id(broker))
        return examine(ArchivedEvents(opened).events(live, 0, state.after), state._replace(start=0))
    finally:
        broker.ask(bulk.remove_hold(hold))


def examine(events: DataFrame, state: BrokerState | None) -> Report:
    """The audit of a history; with a `state`, also compared with the broker."""
    events = events.persist()
    catalog = QueueCatalog()
    try:
        _, ends = update_catalog(events, catalog)
        done = {} if state is None else _done(catalog, state)
        since = place_of(state.before + 1, 0) if state is not None else 2**62

        def work(_: str, history: History) -> bytes:
            timelines = build_timelines(history, catalog, ends)
            return audit_counts.encode(audit_counts.account(timelines, since=since, done=done))

        parts = [audit_counts.decode(made) for made in map_slots(message_rows(events), work)]
    finally:
        events.unpersist()
    return _report(_Whole(parts), catalog, state)


class _Whole:
    """The accounts of all slots together."""

    def __init__(self, parts: Iterable[Account]):
        self.fates: dict[GroupKey, dict[str, int]] = {}
        self.moved: dict[GroupKey, Movement] = {}
        self.extents: list[Extent] = []
        unknown, wrong, differing = [], [], []
        for part in parts:
            for key, fate, count in part.fates:
                counts = self.fates.setdefault(key, {})
                counts[fate] = counts.get(fate, 0) + count
            for key, moved in part.moved:
                before = self.moved.get(key, Movement(0, 0, 0))
                self.moved[key] = Movement(*(a + b for a, b in zip(before, moved, strict=True)))
            self.extents += part.extents
            unknown += part.unknown
            wrong += [((key, problem), finding) for key, problem, finding in part.wrong]
            differing += part.differing
        self.unknown = audit_counts.merged(unknown)
        self.wrong = audit_counts.merged(wrong)
        self.differing = audit_counts.merged(differing)

    def live(self, key: GroupKey) -> int:
        return sum(self.fates.get(key, {}).get(name, 0) for name in rules.LIVE)

    def dead(self, queue: int) -> int:
        return sum(counts.get(rules.DEAD, 0) for key, counts in self.fates.items() if key.queue_id == queue)


def _report(whole: _Whole, catalog: QueueCatalog, state: BrokerState | None) -> Report:
    first = 0 if state is None else state.start
    is_whole = first == 0
    discrepancies: list[Discrepancy] = []
    for (key, problem), finding in whole.wrong.items():
        discrepancies.append(Discrepancy(_path(catalog, key), key.group, problem, finding.messages, finding.named))
    if is_whole:
        problem = "something happened to them, but they were never published"
        for key, finding in whole.unknown.items():
            discrepancies.append(Discrepancy(_path(catalog, key), key.group, problem, finding.messages, finding.named))
    discrepancies += _holes(whole.extents, catalog, is_whole=is_whole)
    if state is not None and is_whole:
        discrepancies += _against(whole, catalog, state)
    discrepancies.sort(key=lambda discrepancy: (discrepancy.queue, discrepancy.group or "", discrepancy.what))
    return Report(
        first, 0 if state is None else state.after, _lines(whole, catalog, discrepancies, is_whole), discrepancies
    )


def _path(catalog: QueueCatalog, key: GroupKey) -> str:
    return catalog.queues[key.queue_id].path


def _lines(whole: _Whole, catalog: QueueCatalog, discrepancies: list[Discrepancy], is_whole: bool) -> list[AuditLine]:
    blamed = {(discrepancy.queue, discrepancy.group) for discrepancy in discrepancies}
    lines = []
    for number, queue in sorted(catalog.queues.items()):
        names: list[str | None] = [*sorted(queue.groups)]
        for group in names or [None]:
            counts = whole.fates.get(GroupKey(number, group), {})
            outcomes = {name: counts.get(name, 0) for name in rules.OUTCOMES}
            balance = Balance(sum(counts.values()), whole.live(GroupKey(number, group)), **outcomes)
            verdict = "balanced" if is_whole else "incomplete"
            if balance.difference or not blamed.isdisjoint({(queue.path, group), (queue.path, None)}):
                verdict = "unbalanced"
            lines.append(AuditLine(number, queue.path, group, balance, verdict))
    return lines


def _holes(extents: list[Extent], catalog: QueueCatalog, *, is_whole: bool) -> Iterator[Discrepancy]:
    """Offsets are dense: a missing offset is a missing `published` event."""
    missing: dict[int, list[tuple[int, int, int]]] = {}
    expected: dict[tuple[int, int], int] = {}
    for extent in sorted(extents):
        begin = expected.get((extent.queue_id, extent.partition), 0 if is_whole else extent.first)
        between = [(begin, extent.first)] if extent.first > begin else []
        for hole_first, until in [*between, *extent.holes]:
            missing.setdefault(extent.queue_id, []).append((extent.partition, hole_first, until))
        expected[extent.queue_id, extent.partition] = extent.last + 1
    for number, ranges in missing.items():
        named = [
            f"{partition}/{first}" if until == first + 1 else f"{partition}/{first} to {partition}/{until - 1}"
            for partition, first, until in ranges[: audit_counts.NAMED_MAX]
        ]
        count = sum(until - first for _, first, until in ranges)
        yield Discrepancy(catalog.queues[number].path, None, "offsets of which no publish is recorded", count, named)


def _done(catalog: QueueCatalog, state: BrokerState) -> dict[tuple[int, str, int], FinishedRanges]:
    """The offsets that groups have finished by the broker's stats: by queue, group and partition."""
    reported: dict[tuple[int, str, int], FinishedRanges] = {}
    for number, queue in catalog.queues.items():
        stats = state.queues.get(queue.path)
        if stats is None or queue.deleted:
            continue
        for group in stats["groups"]:
            for part in group["partitions"]:
                ranges = [(first, stop) for first, stop in part["acked_ranges"]]
                until = ranges[-1][1] if len(ranges) == RANGES_REPORTED else 2**62
                reported[number, group["group"], part["partition"]] = FinishedRanges(part["floor"], ranges, until)
    return reported


def _against(whole: _Whole, catalog: QueueCatalog, state: BrokerState) -> Iterator[Discrepancy]:
    """Differences between the records and the broker in the numbers of live and dead messages."""
    newest = {queue.path: number for number, queue in sorted(catalog.queues.items()) if not queue.deleted}
    busy = {_path(catalog, key) for key in whole.moved}
    for path in sorted({*newest, *state.queues}):
        stats, number = state.queues.get(path), newest.get(path)
        if stats is None or number is None:
            if path not in busy:
                known, unknown = ("records", "broker") if stats is None else ("broker", "records")
                yield Discrepancy(path, None, f"known by the {known} only, not by the {unknown}", 0, [])
            continue
        yield from _against_queue(whole, number, path, stats)
        dead = whole.dead(number)
        if stats["dead"] != dead and path not in busy:
            what = f"{dead} dead letters by the records, {stats['dead']} by the broker"
            yield Discrepancy(path, None, what, abs(stats["dead"] - dead), [])


def _against_queue(whole: _Whole, number: int, path: str, stats: Mapping[str, Any]) -> Iterator[Discrepancy]:
    for group in stats["groups"] or [None]:
        key = GroupKey(number, None if group is None else group["group"])
        reported = stats["depth"] if group is None else group["lag"]
        counted, moved = whole.live(key), whole.moved.get(key, Movement(0, 0, 0))
        # The records are counted up to a later frame than the stats: `moved` are the messages in between.
        if not counted - moved.came <= reported <= counted + moved.went:
            finding = whole.differing.get(key)
            what = f"{counted} live by the records, {reported} by the broker"
            yield Discrepancy(path, key.group, what, abs(counted - reported), [] if finding is None else finding.named)
