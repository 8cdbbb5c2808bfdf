"""The workloads by name. A name has the parameters: bN batch, NB payload bytes, cN concurrent callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from benchmarks.report import Row
from benchmarks.workloads.analytics import analytics_growth
from benchmarks.workloads.backlog import backlog_1m
from benchmarks.workloads.delays import delays_200k
from benchmarks.workloads.growth import growth
from benchmarks.workloads.grpc_streams import grpc_lease_stream, grpc_publish_stream
from benchmarks.workloads.latency import latency_e2e
from benchmarks.workloads.lease_ack import bulk_b1000_200B, cpu_b100, lease_ack_b100_200B
from benchmarks.workloads.longpolls import longpoll_5k
from benchmarks.workloads.many_delays import delays_1m
from benchmarks.workloads.orders import fair_share, heap_2m, lanes_shares, ordered_keys
from benchmarks.workloads.postgres_store import postgres_store
from benchmarks.workloads.publish import publish_b1_c64, publish_b1_c256, publish_b100_200B
from benchmarks.workloads.rebalance import rebalance_storm
from benchmarks.workloads.run import Run
from benchmarks.workloads.spark import spark_archive_1m, spark_disturbance, spark_read_1m, spark_sink_500k
from benchmarks.workloads.websockets import ws_fanout_1k, ws_idle_10k, ws_latency, ws_slow_reader

__all__ = ["WORKLOADS", "Run", "Workload"]

Workload = Callable[[Run], Awaitable[list[Row]]]

WORKLOADS: dict[str, Workload] = {
    workload.__name__: workload
    for workload in (
        publish_b100_200B, lease_ack_b100_200B, bulk_b1000_200B, publish_b1_c64, publish_b1_c256, cpu_b100, backlog_1m,
        delays_200k, delays_1m, latency_e2e, rebalance_storm, lanes_shares, heap_2m, ordered_keys, fair_share,
        grpc_lease_stream, grpc_publish_stream,
        ws_idle_10k, ws_fanout_1k, ws_latency, ws_slow_reader, longpoll_5k,
        spark_read_1m, spark_archive_1m, spark_sink_500k, spark_disturbance, analytics_growth,
        growth, postgres_store,
    )
}  # fmt: skip
