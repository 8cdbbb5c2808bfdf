"""The catalog of queues, event by event."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.pipeline.lake.spans import place_of
from penstock.pipeline.queue_catalog import QueueCatalog, QueueFacts, RangeEnd


def event(kind: str, frame: int, **values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("partition", "group", "until_offset", "config"))
    return {**empty, "kind": kind, "frame": frame, "record": 0, "at_ms": frame * 10, "queue_id": 1, "queue": "a/b/c",
            **values}  # fmt: skip


def configured(frame: int, **config: Any) -> dict[str, Any]:
    return event("queue_configured", frame, config=json.dumps(config))


def created(frame: int, group: str, *starts: int) -> list[dict[str, Any]]:
    return [event("group_created", frame, group=group, partition=p, until_offset=s) for p, s in enumerate(starts)]


def test_groups_start_at_their_positions():
    catalog = QueueCatalog()
    assert catalog.apply([configured(1), *created(2, "one", 0, 5)]) == []
    group = catalog.queues[1].groups["one"]
    assert (group.since, group.since_ms, group.starts) == (place_of(2, 0), 20, {0: 0, 1: 5})
    assert group.left_out == place_of(2, 0), "where nothing is kept, what was finished is not seen"


def test_kept_log_is_read_by_every_new_group():
    catalog = QueueCatalog()
    catalog.apply([configured(1, retention={"mode": "keep"}), *created(2, "one", 0)])
    assert catalog.queues[1].groups["one"].left_out == place_of(1, 0)
    catalog.apply([configured(3), configured(4, retention={"mode": "keep"}), *created(5, "two", 0)])
    assert catalog.queues[1].groups["two"].left_out == place_of(4, 0), "what was let go before does not come back"


def test_what_is_cut_off_is_cut_off_once():
    catalog = QueueCatalog()
    ends = catalog.apply(
        [
            event("trimmed", 3, partition=1, until_offset=10),
            event("trimmed", 4, partition=1, until_offset=25),
            event("purged", 5, partition=1, until_offset=40),
            event("trimmed", 6, partition=1, until_offset=40),
            event("queue_deleted", 7),
        ]
    )
    assert [(end.partition, end.first, end.until, end.kind) for end in ends] == [
        (1, 0, 10, "trimmed"), (1, 10, 25, "trimmed"), (1, 0, 40, "purged"), (None, 0, 0, "deleted"),
    ]  # fmt: skip
    assert ends[-1] == RangeEnd(1, None, 0, 0, place_of(7, 0), 70, "deleted")
    assert catalog.queues[1].deleted


def test_delays_of_a_queue_are_kept_with_their_places():
    catalog = QueueCatalog()
    catalog.apply([configured(1), configured(2, delay_ms=500), configured(3)])
    assert catalog.queues[1].delays == [(place_of(2, 0), 500), (place_of(3, 0), 0)]


def test_it_survives_being_written_down():
    catalog = QueueCatalog()
    catalog.apply([configured(1, delay_ms=5), *created(2, "one", 3), event("trimmed", 3, partition=0, until_offset=2)])
    assert msgspec.json.decode(msgspec.json.encode(catalog.queues[1]), type=QueueFacts) == catalog.queues[1]


def test_what_is_not_about_queues_is_passed_over():
    catalog = QueueCatalog()
    assert catalog.apply([event("webhook", 1, queue_id=None), event("something_new", 2)]) == []
    assert catalog.queues == {}
