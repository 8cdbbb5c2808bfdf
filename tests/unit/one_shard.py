"""Methods of the facade that are for one shard alone."""

from __future__ import annotations

OF_ONE_SHARD = {
    "redrives.close", "redrives.go_on", "redrives.resume", "readers.position", "readers.stored_end",
    "webhooks.rest_of", "stats.groups", "stats.holders", "stats.backlog", "stats.brief", "stats.row", "series.start",
    "series.sample", "series.close", "queues.place", "queues.demand_unused", "queues.placement", "queues.unplace",
    "schedules.has", "messages.scope_head", "holds.check", "dead_letters.count",
}  # fmt: skip
"""Methods that other rooms of the same shard and the routes call."""
