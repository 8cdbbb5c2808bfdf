"""A simple model of a queue with random events, to check timelines against."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa

from penstock.pipeline.history import SCHEMA, History
from penstock.pipeline.lake.spans import place_of

QUEUE = 7
LIVE = ("pending", "leased")


class Model:
    """Keeps the state of every message in every group, and its events."""

    def __init__(self, seed: int, *, keeps: bool):
        self.dice = random.Random(seed)
        self.keeps = keeps
        self.frame = 0
        self.now_ms = 1_000_000
        self.rows: list[dict[str, Any]] = []
        self.about_queues: list[dict[str, Any]] = []
        self.start = self.end = 0
        self.gone: dict[int, str] = {}
        """The event that ended the messages for all groups."""
        self.cells: dict[str, dict[int, str]] = {}
        """Group -> offset -> what has become of it."""
        self.leases: dict[str, dict[int, int]] = {}
        self.redriven: dict[str, set[int]] = {}
        self._tell_queue(
            "queue_configured", config=json.dumps({"retention": {"mode": "keep" if keeps else "until_acked"}})
        )

    def run(self, steps: int) -> None:
        acts = [self.publish] * 4 + [self.lease] * 6 + [self.settle] * 8 + [self.redrive, self.remove, self.expire]
        acts += [self.cancel, self.reschedule, self.begin_group, self.trim, self.purge]
        for _ in range(steps):
            self.now_ms += self.dice.randrange(0, 30_000)
            act = self.dice.choice(acts)
            if act not in (self.purge, self.trim, self.begin_group) or self.dice.random() < 0.3:
                act()

    # -- what can happen --------------------------------------------------------------------------------------------

    def publish(self) -> None:
        count = self.dice.randrange(1, 6)
        due = self.now_ms + 500 if self.dice.random() < 0.2 else None
        offsets = list(range(self.end, self.end + count))
        self.end += count
        self._tell("published", offsets, due_ms=due, ids=[f"id-{offset}" for offset in offsets])
        for cells in self.cells.values():
            cells.update(dict.fromkeys(offsets, "pending"))

    def begin_group(self) -> None:
        if len(self.cells) >= 3:
            return
        name = f"group-{len(self.cells)}"
        others = list(self.cells.values())
        seen = [offset for offset in range(self.start, self.end) if offset not in self.gone]
        if others and not self.keeps:
            seen = [offset for offset in seen if any(cells.get(offset, "done") in LIVE for cells in others)]
        self._tell_queue("group_created", group=name, partition=0, until_offset=self.start)
        self.cells[name] = dict.fromkeys(seen, "pending")
        self.leases[name], self.redriven[name] = {}, set()

    def lease(self) -> None:
        group, offsets = self._some("pending", 4)
        if group is not None:
            self._tell(
                "leased", offsets, group=group, lease=self.frame + 1, consumer=self.dice.choice(["ada", "bob", None])
            )
            for offset in offsets:
                self.cells[group][offset], self.leases[group][offset] = "leased", self.frame

    def settle(self) -> None:
        group, offsets = self._some("leased", 4)
        if group is None:
            return
        lease = self.leases[group][offsets[0]]
        offsets = [offset for offset in offsets if self.leases[group][offset] == lease]
        kind = self.dice.choice(["acked"] * 4 + ["retried", "retried", "released", "dead_lettered", "extended"])
        more: dict[str, Any] = {}
        if kind == "retried":
            more = {"reason": self.dice.choice(["nack", "lease_expired"]), "due_ms": self.now_ms + 100, "error": "no 1"}
        if kind == "dead_lettered":
            more = {"reason": "rejected", "error": f"no {offsets[0]}", "kept": self.dice.random() < 0.7}
        self._tell(kind, offsets, group=group, lease=lease, **more)
        after = {"acked": "acked", "retried": "pending", "released": "pending", "extended": "leased"}
        for offset in offsets:
            self.cells[group][offset] = after.get(kind) or ("dead" if more["kept"] else "removed")

    def redrive(self) -> None:
        group, offsets = self._some("dead", 2)
        if group is not None:
            self._tell("redriven", offsets, group=group, due_ms=self.now_ms)
            self.redriven[group].update(offsets)
            self.cells[group].update(dict.fromkeys(offsets, "pending"))

    def remove(self) -> None:
        group, offsets = self._some("dead", 2)
        if group is not None:
            self._tell("dead_letters_removed", offsets, group=group, reason="deleted")
            self.cells[group].update(dict.fromkeys(offsets, "removed"))

    def expire(self) -> None:
        self._end("expired", self._nobodys(lambda fate: fate != "leased"))

    def cancel(self) -> None:
        self._end("cancelled", self._nobodys(lambda fate: fate == "pending"))

    def reschedule(self) -> None:
        offsets = self._nobodys(lambda fate: fate == "pending")
        if offsets:
            self._tell("rescheduled", offsets, due_ms=self.now_ms + 1_000)

    def trim(self) -> None:
        if self.keeps and self.start < self.end:
            until = self.dice.randrange(self.start, self.end) + 1
            self._tell_queue("trimmed", partition=0, until_offset=until)
            for group, cells in self.cells.items():
                for offset in range(self.start, until):
                    if cells.get(offset) == "pending" and offset not in self.redriven[group]:
                        cells[offset] = "trimmed"
            for offset in range(self.start, until):
                self.gone.setdefault(offset, "trimmed")
            self.start = until

    def purge(self) -> None:
        self._tell_queue("purged", partition=0, until_offset=self.end)
        for cells in self.cells.values():
            cells.update({offset: "purged" for offset, fate in cells.items() if fate in (*LIVE, "dead")})
        for offset in range(self.end):
            self.gone.setdefault(offset, "purged")
        self.start = self.end

    # -- telling ----------------------------------------------------------------------------------------------------

    def _end(self, kind: str, offsets: list[int]) -> None:
        if offsets:
            self._tell(kind, offsets)
            self.gone.update(dict.fromkeys(offsets, kind))
            for cells in self.cells.values():
                cells.update({offset: kind for offset in offsets if cells.get(offset) == "pending"})

    def _nobodys(self, allowed: Any) -> list[int]:
        there = [offset for offset in range(self.start, self.end) if offset not in self.gone]
        if not self.keeps and self.cells:
            there = [o for o in there if any(cells.get(o, "done") in LIVE for cells in self.cells.values())]
        free = [
            offset
            for offset in there
            if all(allowed(cells[offset]) for cells in self.cells.values() if offset in cells)
        ]
        return sorted(self.dice.sample(free, min(2, len(free))))

    def _some(self, fate: str, most: int) -> tuple[str | None, list[int]]:
        choices = [(group, [o for o, each in cells.items() if each == fate]) for group, cells in self.cells.items()]
        choices = [each for each in choices if each[1]]
        if not choices:
            return None, []
        group, offsets = self.dice.choice(choices)
        return group, sorted(self.dice.sample(offsets, min(most, len(offsets))))

    def _tell(self, kind: str, offsets: list[int], *, ids: list[str] | None = None, **values: Any) -> None:
        self.frame += 1
        empty = dict.fromkeys(SCHEMA.names)
        place = place_of(self.frame, 0)
        for at, offset in enumerate(offsets):
            row = empty | {"queue_id": QUEUE, "partition": 0, "offset": offset, "place": place, "kind": kind}
            self.rows.append(row | {"at_ms": self.now_ms, "id": ids[at] if ids else None} | values)

    def _tell_queue(self, kind: str, **values: Any) -> None:
        self.frame += 1
        empty = dict.fromkeys(("partition", "group", "until_offset", "config"))
        event = empty | {"kind": kind, "frame": self.frame, "record": 0, "at_ms": self.now_ms, "queue_id": QUEUE}
        self.about_queues.append(event | {"queue": "a/b/c"} | values)

    def history(self, after: int = 0, until: int = 2**40) -> History:
        """The events of these frames."""
        chosen = [row for row in self.rows if place_of(after + 1, 0) <= row["place"] < place_of(until + 1, 0)]
        return history_of(chosen)


def history_of(rows: list[dict[str, Any]]) -> History:
    return History.of(pa.Table.from_pylist(rows, schema=SCHEMA))
