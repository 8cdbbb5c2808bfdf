"""The lives of messages: told from everything at once or bit by bit, they are the same, and they are what happened."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from penstock.pipeline.accounts import account
from penstock.pipeline.ground import Ground, place_of
from penstock.pipeline.history import History
from penstock.pipeline.lifetable import lifetable
from penstock.pipeline.lives import FATES, group_name, left_open, unfold
from penstock.pipeline.tallies import Tallies, decode, encode, standing_changes, tally
from tests.unit.pipeline_model import QUEUE, Model

SEEDS = [*range(40), 77, 265, 595]


def whole(model: Model):
    ground = Ground()
    ends = ground.learn(model.about_queues)
    return unfold(model.history(), ground, ends), ground


def fates_of(lives) -> dict:
    found: dict = {}
    for first, fate in zip(lives.cells, lives.fates(), strict=True):
        group = group_name(lives, int(lives.group[first]))
        if group is not None:
            found.setdefault(group, {})[int(lives.history.offset[lives.row[first]])] = FATES[fate]
    return found


def model_of(seed: int) -> Model:
    model = Model(seed, keeps=seed % 2 == 0)
    model.run(120)
    return model


@pytest.mark.parametrize("seed", SEEDS)
def test_what_became_of_every_message(seed):
    model = model_of(seed)
    lives, _ = whole(model)
    assert fates_of(lives) == {group: cells for group, cells in model.cells.items() if cells}
    found = account(lives, since=2**62, done={})
    assert (found.wrong, found.unknown) == ([], [])
    assert all(not extent.holes for extent in found.extents)


def in_batches(model: Model, cuts: list[int]) -> tuple[Tallies, History | None, Ground]:
    """As the analytics do it: what is new, together with what is remembered."""
    ground, total, remembered = Ground(), Tallies(), None
    after = 0
    for until in [*cuts, model.frame]:
        new = [event for event in model.about_queues if after < event["frame"] <= until]
        ends = ground.learn(new)
        history = model.history(after, until)
        if remembered is not None:
            tables = [each.to_table(range(len(each))) for each in (history, remembered)]
            history = History.of(pa.concat_tables(tables))
        lives = unfold(history, ground, ends, after=place_of(after + 1, 0) - 1)
        total.add(decode(encode(tally(lives, ground))))
        left = left_open(lives, ground)
        remembered = History.of(lives.history.to_table(left))
        after = until
    return total, remembered, ground


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_add_up(seed):
    model = model_of(seed)
    lives, ground = whole(model)
    once = tally(lives, ground)
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
    lives, ground = whole(model)
    depth: Counter[str | None] = Counter()
    dead: Counter[str | None] = Counter()
    for minute, numbers in tally(lives, ground).counts.items():
        assert minute.queue_id == QUEUE
        live, died = standing_changes(numbers)
        depth[minute.group] += live
        dead[minute.group] += died
    for group, cells in model.cells.items():
        assert depth[group] == sum(fate in ("pending", "leased") for fate in cells.values())
        assert dead[group] == sum(fate == "dead" for fate in cells.values())


def test_a_table_for_people():
    model = model_of(2)
    lives, ground = whole(model)
    rows = lifetable(lives, ground).to_pylist()
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
    lives = unfold(Model(1, keeps=True).history(), Ground())
    assert len(lives) == 0
    assert tally(lives, Ground()) == Tallies()
    assert lifetable(lives, Ground()).num_rows == 0
    assert account(lives, since=0, done={}).fates == []
    assert len(left_open(lives, Ground())) == 0
