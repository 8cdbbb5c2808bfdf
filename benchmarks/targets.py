"""The targets, in one table: (workload, figure, contender) -> bound. A figure without an entry is only reported.

Costs (CPU, memory, restart, lateness) follow from the design. Ratios name the peer that a way of using Penstock should
at least equal; they are raised when they are met.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Target(NamedTuple):
    relation: Literal["≥", "≤"]
    bound: float

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.relation == "≥" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"


def at_least(bound: float) -> Target:
    return Target("≥", bound)


def at_most(bound: float) -> Target:
    return Target("≤", bound)


TARGETS: dict[tuple[str, str, str], Target] = {
    # Work per batch instead of work per message: plain JSON equals a peer written in C with the same guarantee, and
    # binary batches of the SDK exceed it, also where the peer may lose its last second.
    ("publish_b100_200B", "publish ratio", "penstock-sdk / valkey-always"): at_least(3),
    ("publish_b100_200B", "publish ratio", "penstock-sdk / valkey-everysec"): at_least(1.2),
    ("lease_ack_b100_200B", "lease+ack ratio", "penstock-http / valkey-always-two-calls"): at_least(1.1),
    ("lease_ack_b100_200B", "lease+ack ratio", "penstock-http / valkey-always"): at_least(1.1),
    ("lease_ack_b100_200B", "lease+ack ratio", "penstock-http-ack-in-lease / valkey-always-two-calls"): at_least(1.8),
    ("lease_ack_b100_200B", "lease+ack ratio", "penstock-http-ack-in-lease / valkey-always"): at_least(1.8),
    ("lease_ack_b100_200B", "lease+ack ratio", "penstock-sdk / valkey-always-two-calls"): at_least(2),
    ("lease_ack_b100_200B", "lease+ack ratio", "penstock-sdk / valkey-always"): at_least(2),
    ("bulk_b1000_200B", "publish, young ratio", "penstock-sdk-batches / valkey-everysec"): at_least(6),
    ("bulk_b1000_200B", "publish, grown ratio", "penstock-sdk-batches / valkey-everysec"): at_least(6),
    ("bulk_b1000_200B", "lease+ack ratio", "penstock-sdk-batches / valkey-everysec"): at_least(6),
    ("publish_b1_c64", "publish ratio", "penstock-sdk / nats-always"): at_least(2),
    ("publish_b1_c256", "publish", "penstock-sdk"): at_least(30_000),
    ("publish_b1_c256", "publish ratio", "penstock-sdk / nats-always"): at_least(3),
    # Server CPU per message, publish + lease + ack together.
    ("cpu_b100", "publish+lease+ack cpu", "penstock-http"): at_most(18),
    ("bulk_b1000_200B", "publish+lease+ack cpu", "penstock-sdk-batches"): at_most(2),
    # No cost grows with the backlog, and the speed stays the same.
    ("backlog_1m", "rss growth", "penstock-sdk-batches"): at_most(60),
    ("backlog_1m", "publish vs empty", "penstock-sdk-batches"): at_least(0.9),
    ("backlog_1m", "lease+ack vs empty", "penstock-sdk-batches"): at_least(0.9),
    ("backlog_1m", "restart after SIGTERM", "penstock-sdk-batches"): at_most(3),
    ("backlog_1m", "restart after kill -9", "penstock-sdk-batches"): at_most(3),
    # Never early, and on time when the machine is not busy.
    ("delays_200k", "lateness min", "penstock-http-ack-in-lease"): at_least(0),
    ("delays_200k", "lateness p99", "penstock-http-ack-in-lease"): at_most(10),
    # A rebalance affects only the partitions that move.
    ("rebalance_storm", "partitions owned twice", "penstock-sdk"): at_most(0),
    ("rebalance_storm", "pauses of unmoved partitions", "penstock-sdk"): at_most(0),
    ("rebalance_storm", "messages lost", "penstock-sdk"): at_most(0),
    ("rebalance_storm", "messages handled twice", "penstock-sdk"): at_most(0),
    # Far delays are on disk: they take no memory, delay no other message, and are found by id or key there.
    ("delays_1m", "rss growth", "penstock-http-ack-in-lease"): at_most(60),
    ("delays_1m", "lateness min", "penstock-http-ack-in-lease"): at_least(0),
    ("delays_1m", "lateness p99", "penstock-http-ack-in-lease"): at_most(10),
    ("delays_1m", "cancel 1000 ids", "penstock-http-ack-in-lease"): at_most(1),
    ("delays_1m", "cancel by key", "penstock-http-ack-in-lease"): at_most(0.1),
    ("delays_1m", "restart after SIGTERM", "penstock-http-ack-in-lease"): at_most(5),
    ("delays_1m", "restart after kill -9", "penstock-http-ack-in-lease"): at_most(5),
    ("latency_e2e", "p50", "penstock-sdk"): at_most(3),
    ("latency_e2e", "p99", "penstock-sdk"): at_most(15),
    ("latency_e2e", "p50", "penstock-http"): at_most(3),
    ("latency_e2e", "p99", "penstock-http"): at_most(15),
    # A message of gRPC costs some 200 µs of Python on each side, whatever its size: it should carry a batch.
    ("grpc_lease_stream", "lease+ack", "penstock-grpc"): at_least(30_000),
    ("grpc_lease_stream", "lease+ack", "penstock-sdk-grpc"): at_least(30_000),
    ("grpc_publish_stream", "publish", "penstock-grpc"): at_least(30_000),
    # Delivery orders at size: shares to a percentage point, a heap of millions as fast as one of thousands, and a
    # failing key or a flooding tenant that does not delay the others.
    ("lanes_shares", "largest deviation", "penstock-http"): at_most(1),
    ("heap_2m", "lease p99", "penstock-http"): at_most(5),
    ("heap_2m", "memory", "penstock-http"): at_most(64),
    ("heap_2m", "publish vs 2,000", "penstock-http"): at_least(0.7),
    ("heap_2m", "lease+ack vs 2,000", "penstock-http"): at_least(0.7),
    ("ordered_keys", "other keys vs no failures", "penstock-http"): at_least(0.9),
    ("fair_share", "p99 wait vs alone", "penstock-http"): at_most(2),
    ("fair_share", "p99 wait vs alone, capped", "penstock-http"): at_most(2),
    # An idle WebSocket costs little, many readers are served with one read, and a reader that stalls affects no other.
    ("ws_idle_10k", "memory each", "penstock-http"): at_most(30),
    ("ws_fanout_1k", "last reader", "penstock-http"): at_most(100),
    ("ws_latency", "reader p99", "penstock-http"): at_most(20),
    ("ws_latency", "consumer p99", "penstock-http"): at_most(20),
    ("ws_slow_reader", "memory each", "penstock-http"): at_most(1),
    ("ws_slow_reader", "evicted after", "penstock-http"): at_most(30),
    ("longpoll_5k", "memory each", "penstock-http"): at_most(20),
    ("longpoll_5k", "woken by one message", "penstock-http"): at_most(1),
    # Reading a log is not much slower than reading Parquet files, and does not slow down publishers.
    ("spark_read_1m", "read ratio", "penstock-spark / parquet-spark"): at_least(0.5),
    ("spark_read_1m", "payload read ratio", "penstock-spark / parquet-spark"): at_least(0.5),
    ("spark_archive_1m", "to the lake ratio", "penstock-spark / parquet-spark"): at_least(0.5),
    ("spark_sink_500k", "write", "penstock-spark"): at_least(50_000),
    ("spark_disturbance", "publish during a read ratio", "penstock-spark"): at_least(0.7),
    # Finished messages are not read again: the cost of a step depends on new events.
    ("analytics_growth", "1,000,000 against 100,000", "penstock-spark"): at_most(1.2),
    ("analytics_growth", "5,000,000 against 100,000", "penstock-spark"): at_most(1.2),
}
