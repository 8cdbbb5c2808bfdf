"""One seed -> what this run is like. Swarm testing: every seed leaves out a random half of everything.

A run with all features and all faults at once explores little: rare combinations drown in common ones. With a random
half switched off, each seed is a different small world, and what needs three things together and a fourth one absent
has its turn.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from penstock import limits
from penstock.core import ranges
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
"""What clients do and how queues are configured."""

FAULTS = (
    "cuts", "drift", "duplicates", "eio_sync", "eio_write", "full", "full_hard", "kill", "lost_requests",
    "lost_responses", "power", "restarts", "slow", "steps", "stragglers",
)  # fmt: skip
"""What the machine, the disk, the clock and the network do to them."""

ORDERS = {"lanes": 0.2, "heaps": 0.2, "ordered_keys": 0.35, "fair_share": 0.2, "growth": 0.3}
"""Who is next: how likely each is. Drawn apart from the others, as most worlds do without."""

EXCLUSIVE = 0.15
"""How many worlds have queues whose groups work on one lease at a time: less happens in them."""

ARCHIVES = 0.2
"""How many worlds have somebody who copies the queues, and for whom retention waits."""

STANDSTILLS = 0.25
"""How many worlds have a broker process that stands still at times, and then goes on as if nothing had been."""

LULLS = 0.25
"""How many worlds have hours in which every client sleeps: what is counted in hours and days happens only in them."""
LULL_S = (600, 3_600, 7_200, 30_000, 100_000)
"""At most, and at least half of it: the last may be longer than client ids are remembered."""
LULL_S_MAX_WITH_SCHEDULES = 7_200
"""Each minute of it may have its message."""

RARE = {"deletes": 0.2, "purges": 0.3, "far": 0.2, "full_hard": 0.3}
"""These change so much that a half of all seeds would be too many."""

DRAIN_SHARE = 0.12
"""The last part of a run, without faults and without new messages: everything must come to rest."""


class QueuePlan(NamedTuple):
    path: str
    config: dict[str, Any]

    @property
    def ordered(self) -> bool:
        """True if who is next depends on more than offsets."""
        return bool(self.config.keys() & {"order", "ordered_keys", "fair_share"})


class Plan:
    """Everything that is decided before a run begins."""

    def __init__(self, seed: int, minutes: float):
        rng = Random(f"{seed}/plan")
        self.seed = seed
        self.seconds = minutes * 60
        self.faulty_seconds = self.seconds * (1 - DRAIN_SHARE)
        """Until the weather turns good."""
        self._on = {name: rng.random() < RARE.get(name, 0.5) for name in (*FEATURES, *FAULTS)}
        self.segment_bytes = rng.choice((2, 4, 8, 12, 24)) * 1024
        self.round_bytes = max(4096, round(self.segment_bytes * rng.choice((0.5, 1, 1, 2))))
        self.zero_ahead_bytes = rng.choice((0, 100, 4096))
        self.segments_kept = rng.randint(1, 3)
        self.hot_bytes = rng.choice((0, 500, 5_000)) if self.has("cold") else 1 << 24
        self.far_entries = self.rng("far").choice((1, 1, 4, 1 << 14))
        """Delays far in the future that stay in memory, at most."""
        small = self.rng("small")
        self.crumbs = small.choice((2, 4, ranges.CRUMBS, ranges.CRUMBS))
        """Ranges from which on a set of offsets is kept as bits: worlds are too small for the real number."""
        self.portion = small.choice((1, 2, 5, sealing.CHANGE_PIECES))
        """Pieces of the log that upkeep handles in one go; the same goes for them."""
        self.page_bytes = small.choice((1, 1, 64, PAGE_BYTES))
        """Of the disk. In a file that is used again, what it held before begins with the next one."""
        self.reclaim_bytes = self.rng("reclaim").choice((1_000, 8_000, 1 << 25))
        """What a round of upkeep must promise to free."""
        self.reserve_bytes = self.rng("reserve").choice((limits.DISK_RESERVE_BYTES, 6_000, 20_000))
        """With a small one there is not always room for copies on a full disk, nor for every ack."""
        self.fsync: Fsync = "always"
        if not (self.has("power") or self.has("cuts") or self.has("eio_sync")):
            # A killed process loses nothing that it has written, so the weaker policies must pass as well.
            self.fsync = rng.choice(("always", "always", "interval", "batch", "never"))
        self.latency_s = rng.choice((0.001, 0.004, 0.04, 0.3))
        """Of the disk, on average. With a slow one many requests are between their decision and their answer."""
        self.fault_every_s = rng.choice((10, 20, 30, 60))
        orders = self.rng("orders")
        self._on |= {name: orders.random() < chance for name, chance in ORDERS.items()}
        alone = self.rng("exclusive")
        self._on["exclusive"] = alone.random() < EXCLUSIVE
        self._on["archives"] = self.rng("archives").random() < ARCHIVES
        self._on["standstills"] = self.rng("standstills").random() < STANDSTILLS
        self.lulls = self._lulls(self.rng("lulls"))
        """(when it begins, how long it lasts) in seconds, one after the other."""
        self.seconds += sum(length for _, length in self.lulls)
        self.faulty_seconds += sum(length for _, length in self.lulls)
        self.queues = [self._queue(rng, number, orders) for number in range(rng.choice((1, 1, 2, 3)))]
        for queue in self.queues:
            if self.has("exclusive") and alone.random() < 0.7 and "delivery" not in queue.config:
                queue.config["exclusive"] = True
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
        """Clients think this much longer than usual; in a crowd each one does less."""

    def has(self, name: str) -> bool:
        return self._on[name]

    def chance(self, name: str, probability: float) -> float:
        """The probability if this is switched on, otherwise never."""
        return probability if self._on[name] else 0.0

    def switched_on(self) -> list[str]:
        return [name for name, on in self._on.items() if on]

    def rng(self, stream: str) -> Random:
        """Each part of the world has a stream of its own, so that a change in one leaves the others alone."""
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
