"""Timelines from a complete history and from batches are equal, and agree with a model of a queue."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from penstock.pipeline.audit_counts import account
from penstock.pipeline.history import History
from penstock.pipeline.lake.spans import place_of
from penstock.pipeline.lifecycle_table import lifecycle_table
from penstock.pipeline.queue_catalog import QueueCatalog
from penstock.pipeline.tallies import Tallies, decode, encode, standing_changes, tally
from penstock.pipeline.timelines import FATES, build_timelines, group_name, open_events
from tests.unit.pipeline_model import QUEUE, Model

SEEDS = [*range(40), 77, 265, 595]


def whole(model: Model):
    catalog = QueueCatalog()
    ends = catalog.apply(model.about_queues)
    return build_timelines(model.history(), catalog, ends), catalog


def fates_of(timelines) -> dict:
    found: dict = {}
    for first, fate in zip(timelines.cells, timelines.fates(), strict=True):
        group = group_name(timelines, int(timelines.group[first]))
        if group is not None:
            found.setdefault(group, {})[int(timelines.history.offset[timelines.row[first]])] = FATES[fate]
    return found


def model_of(seed: int) -> Model:
    model = Model(seed, keeps=seed % 2 == 0)
    model.run(120)
    return model


@pytest.mark.parametrize("seed", SEEDS)
def test_what_became_of_every_message(seed):
    model = model_of(seed)
    timelines, _ = whole(model)
    assert fates_of(timelines) == {group: cells for group, cells in model.cells.items() if cells}
    found = account(timelines, since=2**62, done={})
    assert (found.wrong, found.unknown) == ([], [])
    assert all(not extent.holes for extent in found.extents)


def in_batches(model: Model, cuts: list[int]) -> tuple[Tallies, History | None, QueueCatalog]:
    """As the analytics do it: what is new, together with what is remembered."""
    catalog, total, remembered = QueueCatalog(), Tallies(), None
    after = 0
    for until in [*cuts, model.frame]:
        new = [event for event in model.about_queues if after < event["frame"] <= until]
        ends = catalog.apply(new)
        history = model.history(after, until)
        if remembered is not None:
            tables = [each.to_table(range(len(each))) for each in (history, remembered)]
            history = History.of(pa.concat_tables(tables))
        timelines = build_timelines(history, catalog, ends, after=place_of(after + 1, 0) - 1)
        total.add(decode(encode(tally(timelines, catalog))))
        left = open_events(timelines, catalog)
        remembered = History.of(timelines.history.to_table(left))
        after = until
    return total, remembered, catalog


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_add_up(seed):
    model = model_of(seed)
    timelines, catalog = whole(model)
    once = tally(timelines, catalog)
    cuts = sorted(model.dice.sample(range(1, model.frame), 5))
    total, remembered, _ = in_batches(model, cuts)
    assert total.counts == once.counts
    assert total.sketches == once.sketches
    assert total.workers == once.workers
    assert (total.failures, total.examples) == (once.failures, once.examples)
    assert remembered is not None
    kept = {int(offset) for offset in remembered.offset}
    in_use = {o for cells in model.cells.values() for o, fate in cells.items() if fate in ("pending", "leased", "dead")}
    if model.keeps or not model.cells:
        in_use |= {offset for offset in range(model.start, model.end) if offset not in model.gone}
    assert kept == in_use, "what is over is forgotten, what is not is remembered"


@pytest.mark.parametrize("seed", SEEDS)
def test_depths_follow_from_the_counts(seed):
    model = model_of(seed)
    timelines, catalog = whole(model)
    depth: Counter[str | None] = Counter()
    dead: Counter[str | None] = Counter()
    for minute, numbers in tally(timelines, catalog).counts.items():
        assert minute.queue_id == QUEUE
        live, died = standing_changes(numbers)
        depth[minute.group] += live
        dead[minute.group] += died
    for group, cells in model.cells.items():
        assert depth[group] == sum(fate in ("pending", "leased") for fate in cells.values())
        assert dead[group] == sum(fate == "dead" for fate in cells.values())


def test_a_table_for_people():
    model = model_of(2)
    timelines, catalog = whole(model)
    rows = lifecycle_table(timelines, catalog).to_pylist()
    assert {(row["group"], row["offset"]): row["fate"] for row in rows if row["group"]} == {
        (group, offset): fate for group, cells in model.cells.items() for offset, fate in cells.items()
    }
    assert {row["queue"] for row in rows} == {"a/b/c"}
    for row in rows:
        assert row["id"] == f"id-{row['offset']}"
        assert (row["wait_ms"] is None) == (row["deliveries"] == 0)
        if row["end_to_end_ms"] is not None:
            assert row["fate"] == "acked"
            assert row["ended_at"] is not None


def test_nothing_happened():
    timelines = build_timelines(Model(1, keeps=True).history(), QueueCatalog())
    assert len(timelines) == 0
    assert tally(timelines, QueueCatalog()) == Tallies()
    assert lifecycle_table(timelines, QueueCatalog()).num_rows == 0
    assert account(timelines, since=0, done={}).fates == []
    assert len(open_events(timelines, QueueCatalog())) == 0
