"""Queues and their dead letters: the calls that the pipeline makes too. Others are in `admin`."""

from __future__ import annotations

from typing import Any

from penstock.client.calls.call import Call, delete, get, put
from penstock.ids import QueuePath


def list_queues(*, prefix: str = "", page: int = 1, limit: int = 50) -> Call[dict[str, Any]]:
    return get("/v1/queues", prefix=prefix, page=page, limit=limit)


def put_queue(queue: QueuePath, config: dict[str, Any], *, confirm: str | None = None) -> Call[dict[str, Any]]:
    return put(f"/v1/queues/{queue}", config, confirm=confirm)


def delete_queue(queue: QueuePath, *, confirm: str | None) -> Call[dict[str, Any]]:
    return delete(f"/v1/queues/{queue}", confirm=confirm)


def stats(queue: QueuePath) -> Call[dict[str, Any]]:
    return get("/v1/stats", queue=queue)


def dead_letters(
    queue: QueuePath, *, filter: str | None, group: str | None, page: int, limit: int, after: str | None
) -> Call[dict[str, Any]]:
    return get("/v1/dlq", queue=queue, filter=filter, group=group, page=page, limit=limit, after=after)
