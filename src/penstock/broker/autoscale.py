"""How many workers a group needs: Little's law over what the last minute has shown. Guide: docs/operating/autoscale.md.

A worker that is busy all the time finishes `per_worker = finished / busy time` messages a second, whatever it does
inside: prefetching, batches, retries. To keep up with what arrives and to drain what waits within `target_drain_s`,
the group has to finish `arrival rate + ready / target_drain_s` a second; so many workers are suggested as that takes.
"""

from __future__ import annotations

import math
from typing import Any

from penstock import limits
from penstock.broker.stats import Stats
from penstock.ids import QueuePath
from penstock.runtime.view import ShardView
from penstock.runtime.workload import covered_ms

NEVER = -1
"""A time that does not come at these rates, or is not known. A number, because scalers read numbers."""


class Autoscale:
    def __init__(self, view: ShardView, stats: Stats):
        self._view = view
        self._stats = stats

    def signal(
        self,
        path: QueuePath,
        *,
        group: str = "default",
        target_drain_s: float = 60.0,
        min_workers: int = 0,
        max_workers: int = limits.WORKERS_MAX,
    ) -> dict[str, Any]:
        """How fast messages come and go, and how many workers would drain what waits in `target_drain_s`."""
        queue = self._view.queue(path)
        now_ms = self._view.advance()
        counters = self._view.counters
        seconds = covered_ms(now_ms, counters.began_ms) / 1000
        arrival = counters.rates(queue.number, now_ms)["published_per_s"]
        number = queue.groups.get(group)
        ready, in_flight, busy, finished, served_ms, busy_ms = queue.depth(), 0, 0, 0, 0, 0
        if number is None:
            ready -= sum(partition.scheduled.count for partition in queue.partitions)
        else:
            backlog = self._stats.backlog(queue, number)
            ready, in_flight = backlog["ready"], backlog["leased"]
            work = counters.work(queue.number, number, now_ms)
            finished, served_ms, busy_ms = work.recent(now_ms)
            busy = work.busy
        service = finished / seconds
        per_worker = finished / (busy_ms / 1000) if busy_ms else 0.0
        return {
            "queue": queue.path,
            "group": group,
            "at_ms": now_ms,
            "window_s": seconds,
            "arrival_rate": round(arrival, 3),
            "service_rate": round(service, 3),
            "service_rate_per_worker": round(per_worker, 3),
            "mean_service_time_s": round(served_ms / finished / 1000, 3) if finished else NEVER,
            "ready": ready,
            "in_flight": in_flight,
            "backlog": ready + in_flight,
            "busy_workers": busy,
            "waiting_consumers": self._view.waiting_in(queue, group),
            "time_to_drain_s": round(time_to_drain_s(ready, arrival, service), 3),
            "target_drain_s": target_drain_s,
            "suggested_workers": suggested(
                arrival + ready / target_drain_s, per_worker, busy, ready + in_flight, min_workers, max_workers
            ),
        }


def time_to_drain_s(ready: int, arrival: float, service: float) -> float:
    """Until nothing is ready any more, if it goes on like this; NEVER if it does not get less."""
    if not ready:
        return 0.0
    return ready / (service - arrival) if service > arrival else NEVER


def suggested(required: float, per_worker: float, busy: int, backlog: int, least: int, most: int) -> int:
    """Workers for a required rate. As long as nothing has been finished there is no rate to go by: then those that
    are busy are suggested, and one if there is anything to do."""
    if per_worker > 0:
        # Rates are measured, so a value slightly above a whole number does not add a worker. `min` bounds the quotient
        # where the target time is close to 0.
        wanted = math.ceil(min(required / per_worker - 1e-6, most))
    else:
        wanted = max(busy, 1 if backlog or required > 0 else 0)
    # Leased messages are part of the backlog: at least one worker is needed to finish them.
    return min(max(wanted, 1 if backlog else 0, least), most)
