"""The calls about a queue that move no messages: settings, numbers, explanations, scheduled messages, dead letters."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from penstock import limits
from penstock.client.calls import queues
from penstock.client.calls.call import get, patch, post
from penstock.client.transport.carrier import Carrier
from penstock.client.units import invalid, milliseconds, moment
from penstock.ids import QueuePath


class QueueAdmin:
    path: QueuePath
    _carrier: Carrier

    # -- the queue itself -------------------------------------------------------------------------------------------

    async def config(self) -> dict[str, Any]:
        return await self._carrier.request(get(f"/v1/queues/{self.path}"))

    async def configure(self, /, *, confirm: str | None = None, **changes: Any) -> dict[str, Any]:
        """Change some settings, keep the others. Raises QueueNotFound; to create one, `Client.create_queue`. A change
        that would let go of stored messages needs to be confirmed like `delete`."""
        return await self._carrier.request(patch(f"/v1/queues/{self.path}", changes, confirm=confirm))

    async def delete(self, *, confirm: str | None = None) -> dict[str, Any]:
        """Delete the queue and all it holds. Without `confirm` it raises Conflict, whose `details` have the token to
        confirm with and what would be lost."""
        return await self._carrier.request(queues.delete_queue(self.path, confirm=confirm))

    async def purge(self, *, confirm: str | None = None) -> dict[str, Any]:
        """Drop every message and keep the queue. Needs to be confirmed like `delete`."""
        return await self._carrier.request(post(f"/v1/queues/{self.path}/purge", confirm=confirm))

    async def stats(self) -> dict[str, Any]:
        return await self._carrier.request(queues.stats(self.path))

    async def groups(self) -> dict[str, Any]:
        return await self._carrier.request(get("/v1/groups", queue=self.path))

    # -- look closely -----------------------------------------------------------------------------------------------

    async def explain(self, id: str | None = None, *, group: str = "default") -> dict[str, Any]:
        """Why a message is not being delivered to a group now; without an id, the head of every partition.

        `{"messages": [{"state", "deliverable", "reasons": [{"kind", "blocks", …}], "text", …}], …}`
        """
        return await self._carrier.request(get("/v1/explain", queue=self.path, group=group, id=id))

    async def history(self, id: str) -> dict[str, Any]:
        """The events of a message, as far back as the journal goes: `{"events": […], "complete": bool, …}`."""
        return await self._carrier.request(get("/v1/history", queue=self.path, id=id))

    async def autoscale(
        self, *, group: str = "default", target_drain: float = 60.0, min_workers: int = 0,
        max_workers: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """How fast messages come and go, and how many workers would drain the queue in `target_drain` seconds."""
        return await self._carrier.request(
            get(
                "/v1/autoscale", queue=self.path, group=group, target_drain_s=target_drain, min_workers=min_workers,
                max_workers=max_workers,
            )
        )  # fmt: skip

    # -- scheduled messages -----------------------------------------------------------------------------------------

    async def cancel(self, *, ids: Iterable[str] | None = None, key: str | None = None) -> dict[str, Any]:
        """Cancel messages by ids or by key that were not delivered yet: `{"cancelled": n, "results": […]}`.

        A message whose result is `cancelled` will not be delivered.
        """
        return await self._carrier.request(post("/v1/cancel", {"queue": self.path, **_by_ids_or_key(ids, key)}))

    async def reschedule(
        self, *, ids: Iterable[str] | None = None, key: str | None = None, delay: float | None = None,
        deliver_at: datetime | float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Give scheduled messages, by ids or by key, another time: `delay` from now, or `deliver_at`."""
        if (delay is None) == (deliver_at is None):
            raise invalid("delay", "reschedule needs either delay or deliver_at")
        when = {"deliver_at_ms": moment(deliver_at)} if deliver_at is not None else {}
        if delay is not None:
            when = {"delay_ms": milliseconds("delay", delay, limits.DELAY_MS_MAX)}
        return await self._carrier.request(
            post("/v1/reschedule", {"queue": self.path, **_by_ids_or_key(ids, key), **when})
        )  # fmt: skip

    # -- dead letters -----------------------------------------------------------------------------------------------

    async def dead_letters(
        self, *, filter: str | None = None, group: str | None = None, page: int = 1, limit: int = 50,
        after: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One page of the messages that were given up, oldest first: `{"messages": […], "total", "next", …}`.

        `filter` chooses, in the language of docs/dead-letters.md. `after` is the `next` of an earlier page.
        """
        return await self._carrier.request(
            queues.dead_letters(self.path, filter=filter, group=group, page=page, limit=limit, after=after)
        )

    async def redrive(
        self, *, filter: str | None = None, ids: Iterable[str] | None = None, group: str | None = None,
        target: str | None = None, delay: float = 0.0, priority: int | None = None, rate: int = 100,
        dry_run: bool = True, redrive_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Bring dead letters back, chosen by `filter` (empty: all) or by message `ids`.

        A dry run, which is the default, answers `count` and a `sample`. With `dry_run=False` it begins, in the
        background and at `rate` messages a second; `redrives` answers how far it is. Without `target` the messages
        become ready again for the group that gave them up; with it, copies are published in that queue. The same
        `redrive_id` again starts nothing and answers what the first one did.
        """
        body = {
            "queue": self.path, **_by_filter_or_ids(filter, ids), "group": group, "target": target,
            "delay_ms": milliseconds("delay", delay, limits.DELAY_MS_MAX), "priority": priority, "rate_per_s": rate,
            "dry_run": dry_run,
            # Always with an id: if an answer is lost, the repetition must not be a second redrive.
            "redrive_id": redrive_id or f"sdk-{secrets.token_hex(12)}",
        }  # fmt: skip
        return await self._carrier.request(post("/v1/dlq/redrive", body))

    async def redrives(self, redrive_id: str | None = None) -> list[dict[str, Any]]:
        """Redrives under way and the latest that ended, newest first; or the one of this id (raises NotFound)."""
        call = get("/v1/dlq/redrives", queue=self.path, redrive_id=redrive_id)
        found: list[dict[str, Any]] = (await self._carrier.request(call))["redrives"]
        return found

    async def stop_redrive(self, redrive_id: str) -> dict[str, Any]:
        """End it. Messages that it has moved stay moved."""
        return await self._carrier.request(
            post("/v1/dlq/redrive/stop", {"queue": self.path, "redrive_id": redrive_id})
        )  # fmt: skip

    async def delete_dead_letters(
        self, *, filter: str | None = None, ids: Iterable[str] | None = None, group: str | None = None,
        confirm: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Delete dead letters, chosen as for `redrive`. Needs to be confirmed like `delete`."""
        body = {"queue": self.path, "group": group, **_by_filter_or_ids(filter, ids)}
        return await self._carrier.request(post("/v1/dlq/delete", body, confirm=confirm))


def _by_ids_or_key(ids: Iterable[str] | None, key: str | None) -> dict[str, Any]:
    if (ids is None) == (key is None):
        raise invalid("ids", "name the messages either by ids or by key")
    return {"key": key} if ids is None else {"ids": list(ids)}


def _by_filter_or_ids(filter: str | None, ids: Iterable[str] | None) -> dict[str, Any]:
    if (filter is None) == (ids is None):
        raise invalid("filter", "choose dead letters either by filter or by ids")
    return {"filter": filter} if ids is None else {"ids": list(ids)}
