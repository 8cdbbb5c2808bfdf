"""`penstock pipeline audit`: is every message accounted for?

The records are counted message by message: whatever was published is, in every group, acked, dead, removed from the
dead letters, expired, cancelled, purged, deleted with its queue, trimmed by retention, or live; nothing happened to it
that may not happen; and no offset is missing. Then the broker is asked what it has now, and must say the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client import lowlevel as calls
from penstock.client.lowlevel import bulk
from penstock.ids import QueuePath
from penstock.pipeline import accounts, fates
from penstock.pipeline.accounts import Account, Done, Extent, Moved, Who
from penstock.pipeline.archived import Archived, LiveEvents
from penstock.pipeline.connect import Broker, broker_id, listed_queues
from penstock.pipeline.fates import Balance
from penstock.pipeline.folding import fold, learned, message_rows
from penstock.pipeline.ground import Ground, place_of
from penstock.pipeline.history import History
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lives import unfold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGES_TOLD = 100
"""Finished ranges above the floor that the broker's stats name."""


class Trouble(NamedTuple):
    """Something that cannot be, and where."""

    queue: str
    group: str | None
    what: str
    messages: int
    named: list[str]
    """`partition/offset` of the first of them, with the id where it is known."""


class Line(NamedTuple):
    """One group of one queue; or one queue that has none."""

    queue_id: int
    queue: str
    group: str | None
    balance: Balance
    verdict: str
    """`balanced`, `unbalanced`, or `incomplete` where the history does not begin at the beginning."""


class Report(NamedTuple):
    first_frame: int
    """The history begins behind it: 0 if it is whole."""
    last_frame: int
    lines: list[Line]
    troubles: list[Trouble]

    @property
    def balances(self) -> bool:
        return not self.troubles and all(line.verdict == "balanced" for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        lines = [{**line._asdict(), **line.balance._asdict()} for line in self.lines]
        for line in lines:
            del line["balance"]
        return {
            "balances": self.balances,
            "history_after_frame": self.first_frame,
            "history_until_frame": self.last_frame,
            "groups": lines,
            "troubles": [trouble._asdict() for trouble in self.troubles],
        }


class State(NamedTuple):
    """The broker at a moment between two frames of its journal."""

    start: int
    before: int
    after: int
    queues: dict[str, dict[str, Any]]
    """Path -> its stats."""


def take_state(broker: Broker, hold: str) -> State:
    """What the broker has now. A hold is set before and moved after, so that both frames are durable, and kept."""
    broker.ask(bulk.set_hold(hold, events=0, queues={}))
    ends = broker.ask(bulk.event_ranges("latest", until=0, each=1))
    paths = [entry["queue"] for entry in listed_queues(broker)]
    queues = {path: broker.ask(calls.stats(QueuePath(path))) for path in paths}
    broker.ask(bulk.set_hold(hold, events=0, queues={}))
    later = broker.ask(bulk.event_ranges("latest", until=0, each=1))
    return State(ends.start, ends.end, later.end, queues)


def audit(spark: SparkSession, url: str, token: str | None = None, *, lake: Path | str | None = None) -> Report:
    """Audit a running broker; what its journal no longer has comes from a lake, if there is one.

    The verdict is `incomplete` where the history does not reach back to the beginning.
    """
    broker = Broker(url, token, 60.0)
    hold = f"audit-{secrets.token_hex(4)}"
    try:
        state = take_state(broker, hold)
        live = LiveEvents(spark, url, token)
        if lake is None:
            return examine(live.between(None, state.after), state)
        opened = Lake(lake)
        opened.check_broker(broker_id(broker))
        return examine(Archived(opened).events(live, 0, state.after), state._replace(start=0))
    finally:
        broker.ask(bulk.remove_hold(hold))


def examine(events: DataFrame, state: State | None) -> Report:
    """The account of a history, and, if the broker's state is given, whether it agrees."""
    events = events.persist()
    ground = Ground()
    try:
        _, ends = learned(events, ground)
        done = {} if state is None else _done(ground, state)
        since = place_of(state.before + 1, 0) if state is not None else 2**62

        def work(_: str, history: History) -> bytes:
            lives = unfold(history, ground, ends)
            return accounts.encode(accounts.account(lives, since=since, done=done))

        parts = [accounts.decode(made) for made in fold(message_rows(events), work)]
    finally:
        events.unpersist()
    return _report(_Whole(parts), ground, state)


class _Whole:
    """The accounts of all slots together."""

    def __init__(self, parts: Iterable[Account]):
        self.fates: dict[Who, dict[str, int]] = {}
        self.moved: dict[Who, Moved] = {}
        self.extents: list[Extent] = []
        unknown, wrong, differing = [], [], []
        for part in parts:
            for who, fate, count in part.fates:
                counts = self.fates.setdefault(who, {})
                counts[fate] = counts.get(fate, 0) + count
            for who, moved in part.moved:
                before = self.moved.get(who, Moved(0, 0, 0))
                self.moved[who] = Moved(*(a + b for a, b in zip(before, moved, strict=True)))
            self.extents += part.extents
            unknown += part.unknown
            wrong += [((who, said), finding) for who, said, finding in part.wrong]
            differing += part.differing
        self.unknown = accounts.merged(unknown)
        self.wrong = accounts.merged(wrong)
        self.differing = accounts.merged(differing)

    def live(self, who: Who) -> int:
        return sum(self.fates.get(who, {}).get(name, 0) for name in fates.LIVE)

    def dead(self, queue: int) -> int:
        return sum(counts.get(fates.DEAD, 0) for who, counts in self.fates.items() if who.queue_id == queue)


def _report(whole: _Whole, ground: Ground, state: State | None) -> Report:
    first = 0 if state is None else state.start
    is_whole = first == 0
    troubles: list[Trouble] = []
    for (who, said), finding in whole.wrong.items():
        troubles.append(Trouble(_path(ground, who), who.group, said, finding.messages, finding.named))
    if is_whole:
        said = "something happened to them, but they were never published"
        for who, finding in whole.unknown.items():
            troubles.append(Trouble(_path(ground, who), who.group, said, finding.messages, finding.named))
    troubles += _holes(whole.extents, ground, is_whole=is_whole)
    if state is not None and is_whole:
        troubles += _against(whole, ground, state)
    troubles.sort(key=lambda trouble: (trouble.queue, trouble.group or "", trouble.what))
    return Report(first, 0 if state is None else state.after, _lines(whole, ground, troubles, is_whole), troubles)


def _path(ground: Ground, who: Who) -> str:
    return ground.queues[who.queue_id].path


def _lines(whole: _Whole, ground: Ground, troubles: list[Trouble], is_whole: bool) -> list[Line]:
    blamed = {(trouble.queue, trouble.group) for trouble in troubles}
    lines = []
    for number, queue in sorted(ground.queues.items()):
        names: list[str | None] = [*sorted(queue.groups)]
        for group in names or [None]:
            counts = whole.fates.get(Who(number, group), {})
            outcomes = {name: counts.get(name, 0) for name in fates.OUTCOMES}
            balance = Balance(sum(counts.values()), whole.live(Who(number, group)), **outcomes)
            verdict = "balanced" if is_whole else "incomplete"
            if balance.difference or not blamed.isdisjoint({(queue.path, group), (queue.path, None)}):
                verdict = "unbalanced"
            lines.append(Line(number, queue.path, group, balance, verdict))
    return lines


def _holes(extents: list[Extent], ground: Ground, *, is_whole: bool) -> Iterator[Trouble]:
    """Offsets are dense: where one is missing, so is the record of its publishing."""
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
            for partition, first, until in ranges[: accounts.NAMED_MAX]
        ]
        count = sum(until - first for _, first, until in ranges)
        yield Trouble(ground.queues[number].path, None, "offsets of which no publish is recorded", count, named)


def _done(ground: Ground, state: State) -> dict[tuple[int, str, int], Done]:
    """What the broker says its groups have finished, by queue, group and partition."""
    told: dict[tuple[int, str, int], Done] = {}
    for number, queue in ground.queues.items():
        stats = state.queues.get(queue.path)
        if stats is None or queue.deleted:
            continue
        for group in stats["groups"]:
            for part in group["partitions"]:
                ranges = [(first, stop) for first, stop in part["acked_ranges"]]
                # So many ranges at most are told; what is behind them is not known.
                until = ranges[-1][1] if len(ranges) == RANGES_TOLD else 2**62
                told[number, group["group"], part["partition"]] = Done(part["floor"], ranges, until)
    return told


def _against(whole: _Whole, ground: Ground, state: State) -> Iterator[Trouble]:
    """What the records say is live and dead, and what the broker says."""
    newest = {queue.path: number for number, queue in sorted(ground.queues.items()) if not queue.deleted}
    busy = {_path(ground, who) for who in whole.moved}
    for path in sorted({*newest, *state.queues}):
        stats, number = state.queues.get(path), newest.get(path)
        if stats is None or number is None:
            if path not in busy:
                known, unknown = ("records", "broker") if stats is None else ("broker", "records")
                yield Trouble(path, None, f"known by the {known} only, not by the {unknown}", 0, [])
            continue
        yield from _against_queue(whole, number, path, stats)
        dead = whole.dead(number)
        if stats["dead"] != dead and path not in busy:
            what = f"{dead} dead letters by the records, {stats['dead']} by the broker"
            yield Trouble(path, None, what, abs(stats["dead"] - dead), [])


def _against_queue(whole: _Whole, number: int, path: str, stats: Mapping[str, Any]) -> Iterator[Trouble]:
    for group in stats["groups"] or [None]:
        who = Who(number, None if group is None else group["group"])
        told = stats["depth"] if group is None else group["lag"]
        counted, moved = whole.live(who), whole.moved.get(who, Moved(0, 0, 0))
        # The account is that of the later frame; until then these came and went.
        if not counted - moved.came <= told <= counted + moved.went:
            finding = whole.differing.get(who)
            what = f"{counted} live by the records, {told} by the broker"
            yield Trouble(path, who.group, what, abs(counted - told), [] if finding is None else finding.named)
