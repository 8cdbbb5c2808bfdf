"""`penstock pipeline audit`: is every message accounted for?

The records are counted message by message: whatever was published is, in every group, acked, dead, removed from the
dead letters, expired, cancelled, purged, deleted with its queue, trimmed by retention, or live; nothing happened to it
that may not happen; and no offset is missing. Then the broker is asked what it has now, and must say the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client import _bulk as bulk
from penstock.client import _calls as calls
from penstock.ids import QueuePath
from penstock.pipeline import fates
from penstock.pipeline.connect import Broker
from penstock.pipeline.fates import Balance
from penstock.pipeline.ground import Ground, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMED_MAX = 20
"""Messages that are named for one kind of trouble in one group; all of them are counted."""
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
    paths = []
    page = 1
    while True:
        listed = broker.ask(calls.list_queues(prefix="", page=page, limit=500))
        paths += [entry["queue"] for entry in listed["queues"]]
        if page * 500 >= listed["total"]:
            break
        page += 1
    queues = {path: broker.ask(calls.stats(QueuePath(path))) for path in paths}
    broker.ask(bulk.set_hold(hold, events=0, queues={}))
    later = broker.ask(bulk.event_ranges("latest", until=0, each=1))
    return State(ends.start, ends.end, later.end, queues)


def audit(spark: SparkSession, url: str, token: str | None = None) -> Report:
    """Audit a running broker. The verdict is `incomplete` where its journal does not reach back to the beginning."""
    broker = Broker(url, token, 60.0)
    hold = f"audit-{secrets.token_hex(4)}"
    try:
        state = take_state(broker, hold)
        reader = spark.read.format("penstock").options(url=url, table="events", endingOffset=str(state.after))
        events = (reader if token is None else reader.option("token", token)).load()
        return examine(events, state)
    finally:
        broker.ask(bulk.remove_hold(hold))


def examine(events: DataFrame, state: State | None, *, start: int | None = None) -> Report:
    """The account of a history, and, if the broker's state is given, whether it agrees."""
    from penstock.pipeline.lifecycles import fates_of, message_rows, queue_rows, unfold

    first = start if start is not None else state.start if state is not None else 0
    whole = first == 0
    events = events.persist()
    ground = Ground()
    ends = ground.learn(row.asDict() for row in queue_rows(events).collect())
    rows = message_rows(events)
    if not whole:
        for row in rows.select("queue_id", "group").distinct().collect():
            ground.meet(row.queue_id, None, row.group)
    unfolded = unfold(rows, ground, ends).persist()
    cells = fates_of(unfolded).persist()
    try:
        tally = _Tally(cells)
        troubles, moved = _wrong(unfolded, ground, state)
        if whole:
            troubles += _unknown(cells, ground, tally)
        troubles += _holes(cells, ground, whole=whole)
        if state is not None and whole:
            troubles += _against(cells, ground, state, tally, moved)
        return Report(first, 0 if state is None else state.after, _lines(tally, ground, troubles, whole), troubles)
    finally:
        for frame in (cells, unfolded, events):
            frame.unpersist()


class _Tally:
    """Cells by their fate; those of messages that were never published are counted apart."""

    def __init__(self, cells: DataFrame):
        self.known: dict[tuple[int, str | None], dict[str, int]] = {}
        self.unknown = 0
        for row in cells.groupBy("queue_id", "group", "fate", "is_known").count().collect():
            if row.is_known:
                self.known.setdefault((row.queue_id, row.group), {})[row.fate] = row["count"]
            else:
                self.unknown += row["count"]

    def live(self, queue: int, group: str | None) -> int:
        return sum(self.known.get((queue, group), {}).get(name, 0) for name in fates.LIVE)

    def dead(self, queue: int) -> int:
        return sum(fate.get(fates.DEAD, 0) for (number, _), fate in self.known.items() if number == queue)


def _lines(tally: _Tally, ground: Ground, troubles: list[Trouble], whole: bool) -> list[Line]:
    blamed = {(trouble.queue, trouble.group) for trouble in troubles}
    lines = []
    for number, queue in sorted(ground.queues.items()):
        names: list[str | None] = [*sorted(queue.groups)]
        for group in names or [None]:
            fate = tally.known.get((number, group), {})
            outcomes = {name: fate.get(name, 0) for name in fates.OUTCOMES}
            balance = Balance(sum(fate.values()), tally.live(number, group), **outcomes)
            verdict = "balanced" if whole else "incomplete"
            if balance.difference or not blamed.isdisjoint({(queue.path, group), (queue.path, None)}):
                verdict = "unbalanced"
            lines.append(Line(number, queue.path, group, balance, verdict))
    return lines


def _wrong(
    unfolded: DataFrame, ground: Ground, state: State | None
) -> tuple[list[Trouble], dict[tuple[str, str | None], tuple[int, int]]]:
    """What happened although it could not; and (queue, group) -> what came and went while the broker was asked."""
    from pyspark.sql import functions as F

    since = place_of(state.before + 1, 0) if state is not None else 2**62
    # What came before the history that is there cannot be held against it, and where all of it is there, a message that
    # was never published is told of once, and not for everything that happened to it.
    wrong = F.expr(f"case when phase is not null then {fates.wrong_sql('phase', 'ended', 'leased_as')} end")
    rows = unfolded.withColumn("wrong", wrong).where(f"wrong is not null or place >= {since}")
    came = F.expr(f"place >= {since} and kind in ('published', 'redriven')")
    went = F.expr(f"place >= {since} and (counts or becomes in ('acked', 'dead', 'removed'))")
    tally = (
        F.count("*").alias("messages"),
        F.slice(F.sort_array(F.collect_set(_name())), 1, NAMED_MAX).alias("named"),
        F.count_if(came).alias("came"),
        F.count_if(went).alias("went"),
        F.count_if(F.col("place") >= since).alias("recent"),
    )
    troubles: list[Trouble] = []
    moved: dict[tuple[str, str | None], tuple[int, int]] = {}
    for row in rows.groupBy("queue_id", "group", "wrong").agg(*tally).orderBy("queue_id", "group", "wrong").collect():
        path = ground.queues[row.queue_id].path
        if row.wrong is not None:
            troubles.append(Trouble(path, row.group, row.wrong, row.messages, list(row.named)))
        if row.recent:
            before = moved.get((path, row.group), (0, 0))
            moved[path, row.group] = (before[0] + row.came, before[1] + row.went)
    return troubles, moved


def _unknown(cells: DataFrame, ground: Ground, tally: _Tally) -> Iterator[Trouble]:
    from pyspark.sql import functions as F

    if tally.unknown:
        names = F.slice(F.sort_array(F.collect_set(_name())), 1, NAMED_MAX)
        lost = (
            cells.where("not is_known").groupBy("queue_id", "group").agg(F.count("*").alias("n"), names.alias("named"))
        )
        for row in lost.orderBy("queue_id", "group").collect():
            path = ground.queues[row.queue_id].path
            yield Trouble(
                path, row.group, "something happened to them, but they were never published", row.n, row.named
            )


def _holes(cells: DataFrame, ground: Ground, *, whole: bool) -> Iterator[Trouble]:
    """Offsets are dense: where one is missing, so is the record of its publishing."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("queue_id", "partition").orderBy("offset")
    before = F.lag("offset", 1, -1 if whole else None).over(order)
    holes = (
        cells.where("`group` is null and is_known")
        .select("queue_id", "partition", "offset", before.alias("before"))
        .where("offset > before + 1")
        .selectExpr("queue_id", "partition", "before + 1 as first", "offset as until")
    )
    missing: dict[int, list[tuple[int, int, int]]] = {}
    for row in holes.orderBy("queue_id", "partition", "first").collect():
        missing.setdefault(row.queue_id, []).append((row.partition, row.first, row.until))
    for number, ranges in missing.items():
        named = [f"{partition}/{first} to {until - 1}" for partition, first, until in ranges[:NAMED_MAX]]
        count = sum(until - first for _, first, until in ranges)
        yield Trouble(ground.queues[number].path, None, "offsets of which no publish is recorded", count, named)


def _name() -> Any:
    from pyspark.sql import functions as F

    return F.concat_ws(" ", F.concat_ws("/", "partition", "offset"), "id")


def _against(
    cells: DataFrame,
    ground: Ground,
    state: State,
    tally: _Tally,
    moved: Mapping[tuple[str, str | None], tuple[int, int]],
) -> Iterator[Trouble]:
    """What the records say is live and dead, and what the broker says."""
    newest = {queue.path: number for number, queue in sorted(ground.queues.items()) if not queue.deleted}
    busy = {path for path, _ in moved}
    for path in sorted({*newest, *state.queues}):
        stats, number = state.queues.get(path), newest.get(path)
        if stats is None or number is None:
            if path not in busy:
                known, unknown = ("records", "broker") if stats is None else ("broker", "records")
                yield Trouble(path, None, f"the {known} know this queue, the {unknown} does not", 0, [])
            continue
        for group in stats["groups"] or [None]:
            name = None if group is None else group["group"]
            told = stats["depth"] if group is None else group["lag"]
            counted = tally.live(number, name)
            came, went = moved.get((path, name), (0, 0))
            # The account is that of the later frame; until then these came and went.
            if not counted - came <= told <= counted + went:
                what = f"{counted} live by the records, {told} by the broker"
                named = [] if group is None else list(_differences(cells, number, name, group))
                yield Trouble(path, name, what, abs(counted - told), named)
        dead = tally.dead(number)
        if stats["dead"] != dead and path not in busy:
            what = f"{dead} dead letters by the records, {stats['dead']} by the broker"
            yield Trouble(path, None, what, abs(stats["dead"] - dead), [])


def _differences(cells: DataFrame, number: int, group: str | None, stats: Mapping[str, Any]) -> Iterator[str]:
    """Messages on which the records and the broker do not agree."""
    from pyspark.sql import functions as F

    ours = cells.where((F.col("queue_id") == number) & F.col("group").eqNullSafe(F.lit(group)))
    is_live = F.col("fate").isin(*fates.LIVE)
    left = NAMED_MAX
    for part in stats["partitions"]:
        done = part["acked_ranges"]
        theirs = F.col("offset") >= part["floor"]
        for first, stop in done:
            theirs &= ~F.col("offset").between(first, stop - 1)
        # The broker tells of a hundred ranges at most; what is behind them is not known.
        told_of = done[-1][1] if len(done) == RANGES_TOLD else 2**62
        here = ours.where((F.col("partition") == part["partition"]) & (F.col("offset") < told_of))
        for row in here.where(is_live != theirs).orderBy("offset").limit(left).collect():
            left -= 1
            says = "the broker is done with it" if row.fate in fates.LIVE else "the broker still has it"
            yield " ".join(filter(None, (f"{row.partition}/{row.offset}", row.id, f"({row.fate}; {says})")))
        if not left:
            return
