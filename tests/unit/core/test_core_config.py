"""Queue settings: what is refused is refused by the name of its field."""

from __future__ import annotations

import msgspec
import pytest

from penstock import limits
from penstock.core.config import DEFAULT, QueueConfig, check_change, parse_config
from penstock.errors import Conflict, InvalidRequest


def test_the_defaults_are_those_of_the_contract():
    assert msgspec.to_builtins(parse_config({})) == {
        "partitions": 1, "order": "fifo", "lane_weights": (50, 25, 15, 7, 3), "heap_mode": "min", "top_k": 1,
        "ordered_keys": False, "park_dead_keys": False,
        "fair_share": {"enabled": False, "weights": {}, "max_in_flight": None}, "queue_priority": 0,
        "exclusive": False, "strict_leases": False, "lease_ms": 30000, "max_retries": 3,
        "backoff": {
            "kind": "exponential", "base_ms": 1000, "factor": 2, "cap_ms": 60000, "jitter": 0.1, "steps_ms": (),
        },
        "dead_letter": True, "dead_letter_ttl_ms": None, "dead_letter_max": None, "dead_letter_alarm": None,
        "delay_ms": 0, "window_ms": 0, "window_max_wait_ms": None, "ttl_ms": None,
        "max_messages": None, "max_payload_bytes": 1048576, "delivery": "at_least_once",
        "retention": {"mode": "until_acked", "ms": None, "bytes": None},
        "durability": "default", "compression": "none", "encryption": False, "placement": "queue",
        "spread": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"partitions": 0}, "partitions"),
        ({"partitions": limits.PARTITIONS_MAX + 1}, "partitions"),
        ({"partitions": "3"}, "partitions"),
        ({"partitions": True}, "partitions"),
        ({"partitions": 1.5}, "partitions"),
        ({"partitions": None}, "partitions"),
        ({"partions": 3}, "partions"),
        ({"order": "lifo"}, "order"),
        ({"lane_weights": [1, 2, 3]}, "lane_weights"),
        ({"lane_weights": [50, 25, 15, 7, 0]}, "lane_weights"),
        ({"park_dead_keys": True}, "park_dead_keys"),
        ({"fair_share": {"weights": {"acme": 0}}}, "fair_share"),
        ({"fair_share": {"max_in_flight": 0}}, "fair_share"),
        ({"fair_share": {"share": 1}}, "share"),
        ({"order": 1}, "order"),
        ({"heap_mode": "middle"}, "heap_mode"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": limits.TOP_K_MAX + 1}, "top_k"),
        ({"ordered_keys": "yes"}, "ordered_keys"),
        ({"queue_priority": 2**31}, "queue_priority"),
        ({"lease_ms": 99}, "lease_ms"),
        ({"lease_ms": limits.LEASE_MS_MAX + 1}, "lease_ms"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": limits.RETRIES_MAX + 1}, "max_retries"),
        ({"dead_letter_ttl_ms": 0}, "dead_letter_ttl_ms"),
        ({"dead_letter_max": 0}, "dead_letter_max"),
        ({"dead_letter_alarm": {}}, "dead_letter_alarm"),
        ({"dead_letter_alarm": {"count": 0}}, "dead_letter_alarm"),
        ({"dead_letter_alarm": {"per_hour": 3}}, "per_hour"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": 2**70}, "delay_ms"),
        ({"window_ms": 86_400_001}, "window_ms"),
        ({"window_max_wait_ms": -1}, "window_max_wait_ms"),
        ({"ttl_ms": 0}, "ttl_ms"),
        ({"max_messages": 0}, "max_messages"),
        ({"max_payload_bytes": 0}, "max_payload_bytes"),
        ({"max_payload_bytes": limits.PAYLOAD_BYTES_MAX + 1}, "max_payload_bytes"),
        ({"delivery": "exactly_once"}, "delivery"),
        ({"durability": "none"}, "durability"),
        ({"compression": "zstd"}, "compression"),
        ({"encryption": "yes"}, "encryption"),
        ({"dead_letter": "yes"}, "dead_letter"),
        ({"backoff": "none"}, "backoff"),
        ({"backoff": {"kind": "linear"}}, "backoff.kind"),
        ({"backoff": {"base": 1}}, "base"),
        ({"backoff": {"base_ms": -1}}, "backoff"),
        ({"backoff": {"base_ms": 2000, "cap_ms": 1000}}, "backoff"),
        ({"backoff": {"factor": 0.5}}, "backoff"),
        ({"backoff": {"factor": float("nan")}}, "backoff"),
        ({"backoff": {"jitter": 1.5}}, "backoff"),
        ({"backoff": {"jitter": float("nan")}}, "backoff"),
        ({"backoff": {"kind": "steps"}}, "backoff"),
        ({"exclusive": True, "delivery": "at_most_once"}, "exclusive"),
        ({"backoff": {"steps_ms": [1]}}, "backoff"),
        ({"backoff": {"kind": "steps", "steps_ms": [1, -1]}}, "backoff"),
        ({"backoff": {"kind": "steps", "steps_ms": [1] * 101}}, "backoff"),
        ({"retention": {"mode": "forever"}}, "retention.mode"),
        ({"retention": {"ms": 1000}}, "retention"),
        ({"retention": {"mode": "keep", "ms": 0}}, "retention"),
        ({"retention": {"mode": "keep", "bytes": -1}}, "retention"),
    ],
)
def test_what_is_refused_is_refused_by_name(values, field):
    with pytest.raises(InvalidRequest, match=field.rpartition(".")[2]) as caught:
        parse_config(values)
    assert caught.value.details == {"field": field}


def test_changes_are_laid_over_what_was_there_one_level_down_too():
    base = parse_config({"lease_ms": 5000, "backoff": {"kind": "fixed", "base_ms": 7}})
    changed = parse_config({"backoff": {"jitter": 0.5}, "retention": {"mode": "keep", "bytes": 10**6}}, base)
    assert (changed.lease_ms, changed.backoff.kind, changed.backoff.base_ms) == (5000, "fixed", 7)
    assert (changed.backoff.jitter, changed.retention.mode, changed.retention.bytes) == (0.5, "keep", 10**6)
    assert parse_config({"retention": {"bytes": None}}, changed).retention.bytes is None
    assert base.backoff.jitter == DEFAULT.backoff.jitter


def test_steps_belong_to_their_kind():
    steps = parse_config({"backoff": {"kind": "steps", "steps_ms": [1_000, 60_000]}})
    assert parse_config({"backoff": {"jitter": 0}}, steps).backoff.steps_ms == (1_000, 60_000)
    assert parse_config({"backoff": {"kind": "fixed"}}, steps).backoff.steps_ms == ()


def test_partitions_can_only_become_more():
    with pytest.raises(InvalidRequest, match="from 3 to 2") as caught:
        check_change(QueueConfig(partitions=3), QueueConfig(partitions=2), empty=True)
    assert caught.value.details == {"field": "partitions"}
    check_change(QueueConfig(partitions=2), QueueConfig(partitions=3), empty=False)


def test_the_order_changes_only_while_nothing_is_stored_everything_else_at_any_time():
    for field, value in {"order": "lanes", "ordered_keys": True, "fair_share": {"enabled": True}}.items():
        changed = parse_config({field: value})
        check_change(DEFAULT, changed, empty=True)
        with pytest.raises(Conflict, match="holds no messages") as caught:
            check_change(DEFAULT, changed, empty=False, dead_letters=2)
        assert caught.value.details == {"field": field}
        with pytest.raises(Conflict, match="2 of its dead letters") as caught:
            check_change(DEFAULT, changed, empty=True, dead_letters=2)
        assert caught.value.details == {"field": field, "dead_letters": 2}
    changed = parse_config(
        {
            "delivery": "at_most_once", "ttl_ms": 5, "retention": {"mode": "keep"}, "lane_weights": [5, 4, 3, 2, 1],
            "fair_share": {"weights": {"acme": 2}}, "top_k": 3,
        }
    )  # fmt: skip
    check_change(DEFAULT, changed, empty=False, dead_letters=2)
