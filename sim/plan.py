"""The plan of a run from its seed. Swarm testing: every seed leaves out a random half of the features and faults.

A run with all features and all faults explores little: common combinations hide rare ones. With a random half switched
off, each seed tests another combination, including those in which one feature must be absent.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from penstock import limits
from penstock.core.offsets import ranges
from penstock.core.state import sorted_pairs
from penstock.engines.local.recovery import Fsync
from penstock.journal.frame import PAGE_BYTES
from penstock.runtime import sealing

FEATURES = (
    "ack_in_lease", "at_most_once", "batches", "budgets", "cancels", "client_ids", "cold", "delays", "deletes",
    "deliver_at", "epochs", "extends", "far", "forgets", "groups", "impatience", "keep", "keys", "late_acks",
    "late_groups", "max_messages", "members", "nacks", "offsets", "partitions", "parts", "patches", "pipelining",
    "purges", "ranges", "reads", "rejects", "releases", "reschedules", "schedules", "scopes", "sequences", "ttl",
    "windows", "redrives", "dead_letter_bounds", "transacts",
)  # fmt: skip
"""Behaviour of clients and configurations of queues."""

FAULTS = (
    "cuts", "drift", "duplicates", "eio_sync", "eio_write", "full", "full_hard", "kill", "lost_requests",
    "lost_responses", "power", "restarts", "slow", "steps", "stragglers",
)  # fmt: skip
"""Faults of the machine, the disk, the clock and the network."""

ORDERS = {"lanes": 0.2, "heaps": 0.2, "ordered_keys": 0.35, "fair_share": 0.2, "growth": 0.3}
"""Probabilities of delivery orders. Drawn apart from the other features, as most runs have none."""

EXCLUSIVE = 0.15
"""The share of runs with queues whose groups work on one lease at a time: fewer events happen in them."""

ARCHIVES = 0.2
"""The share of runs with an archiver, for which retention waits."""

API_KEYS = 0.1
"""The share of runs with an administrator of API keys and people."""

ENCRYPTION = 0.2
"""The share of runs with encrypted queues."""

STANDSTILLS = 0.25
"""The share of runs with a broker process that stops at times, and continues."""

REMOTE_STORES = 0.2
"""The share of runs whose journal is in a store behind a connection that breaks."""

LULLS = 0.25
"""The share of runs with hours without client activity: events after hours and days happen only in them."""
LULL_S = (600, 3_600, 7_200, 30_000, 100_000)
"""The longest pause; the shortest is half of it. The last one may be longer than the dedup window."""
LULL_S_MAX_WITH_SCHEDULES = 7_200
"""The length of a pause with a schedule of every minute."""

RARE = {"deletes": 0.2, "purges": 0.3, "far": 0.2, "full_hard": 0.3}
"""Features with so much effect that a half of all seeds would be too many."""

DRAIN_SHARE = 0.12
"""The last part of a run, without faults and without new messages: all messages must be finished."""


class QueuePlan(NamedTuple):
    path: str
    config: dict[str, Any]

    @property
    def ordered(self) -> bool:
        """True if the delivery order depends on more than offsets."""
        return bool(self.config.keys() & {"order", "ordered_keys", "fair_share"})


class Plan:
    """All decisions that are made before a run begins."""

    def __init__(self, seed: int, minutes: float):
        rng = Random(f"{seed}/plan")
        self.seed = seed
        self.seconds = minutes * 60
        self.faulty_seconds = self.seconds * (1 - DRAIN_SHARE)
        """The time of the last fault."""
        self._on = {name: rng.random() < RARE.get(name, 0.5) for name in (*FEATURES, *FAULTS)}
        self.segment_bytes = rng.choice((2, 4, 8, 12, 24)) * 1024
        self.round_bytes = max(4096, round(self.segment_bytes * rng.choice((0.5, 1, 1, 2))))
        self.zero_ahead_bytes = rng.choice((0, 100, 4096))
        self.segments_kept = rng.randint(1, 3)
        self.hot_bytes = rng.choice((0, 5_000, 50_000)) if self.has("cold") else 1 << 24
        self.far_entries = self.rng("far").choice((1, 1, 4, 1 << 14))
        self.slice_queues = self.rng("slices").choice((1, 1, 10))
        """The limit of far delays that stay in memory."""
        self.stored_ids = self.rng("ids").choice((1, 4, 32, 1 << 12))
        letters = self.rng("letters")
        self.stored_letters = letters.choice((1, 2, 128))
        self.shared_bytes = self.rng("segments").choice((500, 4_000, sealing.SEGMENT_BYTES_MAX))
        """The size of a segment that partitions share."""
        self.chunk_pairs = letters.choice((4, 8, sorted_pairs.CHUNK_PAIRS))
        """The most dead letters of a chunk: runs are too small for the real number."""
        small = self.rng("small")
        self.crumbs = small.choice((2, 4, ranges.CRUMBS, ranges.CRUMBS))
        """The number of ranges above which a set of offsets becomes a bitmap: runs are too small for the real one."""
        self.portion = small.choice((1, 2, 5, sealing.CHANGE_PIECES))
        """Pieces of the log that upkeep handles in one step; small for the same reason."""
        self.page_bytes = small.choice((1, 1, 64, PAGE_BYTES))
        """The size of journal files. A reused file has old content behind its end."""
        self.reclaim_bytes = self.rng("reclaim").choice((1_000, 8_000, 1 << 25))
        """The bytes that a round of upkeep must free."""
        self.reserve_bytes = self.rng("reserve").choice((limits.DISK_RESERVE_BYTES, 6_000, 20_000))
        """With a small reserve, a full disk has no room for all copies and acks."""
        self.fsync: Fsync = "always"
        if not (self.has("power") or self.has("cuts") or self.has("eio_sync")):
            # A killed process loses no written data, so the weaker fsync policies must pass too.
            self.fsync = rng.choice(("always", "always", "interval", "batch", "never"))
        self.latency_s = rng.choice((0.001, 0.004, 0.04, 0.3))
        """The average latency of the disk. With a slow disk, many requests are decided and not answered."""
        self.fault_every_s = rng.choice((10, 20, 30, 60))
        orders = self.rng("orders")
        self._on |= {name: orders.random() < chance for name, chance in ORDERS.items()}
        alone = self.rng("exclusive")
        self._on["exclusive"] = alone.random() < EXCLUSIVE
        self._on["archives"] = self.rng("archives").random() < ARCHIVES
        self._on["api_keys"] = self.rng("key_runs").random() < API_KEYS
        self._on["remote_store"] = self.rng("remote_store").random() < REMOTE_STORES
        self._on["standstills"] = self.rng("standstills").random() < STANDSTILLS
        self.lulls = self._lulls(self.rng("lulls"))
        """(start, length) in seconds of the pauses, in order."""
        self.seconds += sum(length for _, length in self.lulls)
        self.faulty_seconds += sum(length for _, length in self.lulls)
        self.queues = [self._queue(rng, number, orders) for number in range(rng.choice((1, 1, 2, 3)))]
        for queue in self.queues:
            if self.has("exclusive") and alone.random() < 0.7 and "delivery" not in queue.config:
                queue.config["exclusive"] = True
        sealed = self.rng("encryption")
        self._on["encryption"] = sealed.random() < ENCRYPTION
        for queue in self.queues:
            if self.has("encryption") and sealed.random() < 0.8:
                queue.config["encryption"] = True
        self.groups = ["default", "audit"] if self.has("groups") else ["default"]
        self.producers = rng.randint(1, 2)
        self.consumers = rng.randint(1, 2)
        """Per queue and group."""
        self.assigned = {
            (queue.path, group)
            for queue in self.queues
            for group in self.groups
            if self.has("members") and rng.random() < 0.7 and not queue.ordered
        }
        """Groups whose consumers are members with assigned partitions."""
        crowd = len(self.queues) * len(self.groups) * self.consumers
        self.pace = rng.choice((0.7, 1, 1, 2)) * max(1.0, crowd / 2) ** 0.7
        """Additional think time of clients: with many clients, each of them does less."""

    def has(self, name: str) -> bool:
        return self._on[name]

    def chance(self, name: str, probability: float) -> float:
        """The probability of a feature that is switched on, otherwise 0."""
        return probability if self._on[name] else 0.0

    def switched_on(self) -> list[str]:
        return [name for name, on in self._on.items() if on]

    def rng(self, stream: str) -> Random:
        """Each part of the simulation has its own random stream, so that a change in one does not affect the others."""
        return Random(f"{self.seed}/{stream}")

    def _lulls(self, rng: Random) -> list[tuple[float, float]]:
        self._on["lulls"] = rng.random() < LULLS
        lulls: list[tuple[float, float]] = []
        if self._on["lulls"]:
            slept_s = 0.0
            for moment_s in sorted(rng.uniform(0, self.faulty_seconds) for _ in range(rng.choice((1, 1, 2)))):
                length_s = rng.choice(LULL_S) * rng.uniform(0.5, 1.0)
                if self.has("schedules"):
                    length_s = min(length_s, LULL_S_MAX_WITH_SCHEDULES)
                lulls.append((moment_s + slept_s, length_s))
                slept_s += length_s
        return lulls

    def _queue(self, rng: Random, number: int, orders: Random) -> QueuePlan:
        config: dict[str, Any] = {
            "lease_ms": rng.choice((1_000, 4_000, 10_000)),
            "max_retries": rng.choice((0, 1, 3, 3, 20)),
            "dead_letter": rng.random() < 0.8,
            "backoff": rng.choice(
                (
                    {"kind": "none"},
                    {"kind": "fixed", "base_ms": 700},
                    {"kind": "exponential", "base_ms": 200, "cap_ms": 8_000, "jitter": 0.3},
                )
            ),
        }
        if self.has("dead_letter_bounds") and rng.random() < 0.5:
            config["dead_letter_max"] = rng.choice((1, 5, 20))
            config["dead_letter_ttl_ms"] = rng.choice((None, 20_000, 100_000))
        if self.has("partitions"):
            config["partitions"] = rng.randint(1, 4)
        if self.has("ttl") and rng.random() < 0.3:
            config["ttl_ms"] = rng.choice((3_000, 20_000))
        if self.has("delays") and rng.random() < 0.2:
            config["delay_ms"] = rng.choice((500, 5_000))
        if self.has("at_most_once") and rng.random() < 0.5:
            config["delivery"] = "at_most_once"
        if self.has("max_messages") and rng.random() < 0.7:
            config["max_messages"] = rng.choice((5, 20, 100))
        if self.has("keep") and rng.random() < 0.7:
            config["retention"] = rng.choice(
                (
                    {"mode": "keep"},
                    {"mode": "keep", "ms": rng.choice((5_000, 60_000))},
                    {"mode": "keep", "bytes": rng.choice((500, 5_000, 50_000))},
                )
            )
        if self.has("scopes"):
            config["queue_priority"] = rng.choice((-1, 0, 0, 1))
        if self.has("windows") and rng.random() < 0.6:
            config["window_ms"] = rng.choice((300, 1_500, 4_000))
            config["window_max_wait_ms"] = rng.choice((None, 0, 900, 5_000))
        return QueuePlan(f"sim/default/queue-{number}", config | self._order(orders))

    def _order(self, rng: Random) -> dict[str, Any]:
        order: dict[str, Any] = {}
        if self.has("lanes") and rng.random() < 0.7:
            order |= {"order": "lanes", "lane_weights": rng.choice(((3, 2, 1, 1, 1), (1, 1, 1, 1, 1), (5, 3, 2, 1, 1)))}
        elif self.has("heaps") and rng.random() < 0.7:
            order |= {"order": "heap", "heap_mode": rng.choice(("min", "max")), "top_k": rng.choice((1, 5))}
        if self.has("ordered_keys") and rng.random() < 0.8:
            order["ordered_keys"] = True
        if self.has("fair_share") and rng.random() < 0.7:
            weights = rng.choice(({}, {"acme": 3}))
            order["fair_share"] = {"enabled": True, "weights": weights, "max_in_flight": rng.choice((None, None, 1, 3))}
        return order
