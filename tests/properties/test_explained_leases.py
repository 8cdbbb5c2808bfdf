"""What is explained is what a lease would do, in any order, after any commands.

A message is called deliverable exactly if a lease of everything would contain it; and what stands in a line is
counted as a lease would hand it out.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.core import commands, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.explain import Behind, Explainer, Explanation
from penstock.core.lifecycle import State
from penstock.core.state import Shard
from penstock.errors import PenstockError

START_MS = 1_760_000_000_000
EVERYTHING = 10**6
ORDERS = {
    "fifo": {},
    "partitions": {"partitions": 3},
    "kept": {"retention": {"mode": "keep"}, "ttl_ms": 3000},
    "lanes": {"order": "lanes", "lane_weights": [3, 2, 1, 1, 1]},
    "heap": {"order": "heap", "heap_mode": "max", "partitions": 2, "top_k": 3},
    "keys": {"ordered_keys": True, "partitions": 2},
    "parked": {"ordered_keys": True, "park_dead_keys": True, "max_retries": 1},
    "fair": {"fair_share": {"enabled": True, "weights": {"a": 2}, "max_in_flight": 3}},
    "fair lanes": {"order": "lanes", "fair_share": {"enabled": True, "max_in_flight": 2}},
    "fair keys": {"order": "heap", "ordered_keys": True, "fair_share": {"enabled": True, "max_in_flight": 2}},
    "window": {"window_ms": 400, "window_max_wait_ms": 1000},
    "window keys": {"window_ms": 400, "ordered_keys": True},
    "at most once": {"delivery": "at_most_once", "fair_share": {"enabled": True, "max_in_flight": 1}},
}
names = st.sampled_from([b"", b"a", b"b", b"c"])


class Story:
    """One queue, driven as the shard's loop does it."""

    def __init__(self, values: dict):
        self.shard, self.now = Shard(), START_MS
        self.entropy = 0
        self.config = parse_config({"backoff": {"kind": "fixed", "base_ms": 700, "jitter": 0}, **values})
        self.submit(commands.ConfigureQueue("a/b/c", self.config))
        self.held: list[tuple[int, int, int, int]] = []

    @property
    def queue(self):
        return self.shard.queues[1]

    def let_time_work(self) -> None:
        while self.shard.next_deadline_ms() <= self.now:
            advance(self.shard, self.now)
            if self.shard.needs_tick():
                self.decided(commands.Tick())

    def decided(self, command):
        decision = decide(self.shard, command, self.now)
        for record in decision.records:
            apply(self.shard, record)
        return decision.reply

    def submit(self, command):
        self.let_time_work()
        try:
            return self.decided(command)
        except PenstockError as error:
            return error

    def lease(self, wanted: int, group: str) -> list[tuple[int, int]]:
        self.entropy += 1
        command = commands.Lease(1, group, wanted, self.entropy, 2000, f"worker-{self.entropy % 3}")
        if group not in self.queue.groups:
            self.submit(command)
        reply = self.submit(command)
        self.held += [(run.lease, run.nonce, run.first, run.first + run.count) for run in reply if not run.settled]
        return [(run.partition, offset) for run in reply for offset in range(run.first, run.first + run.count)]

    def step(self, data: st.DataObject) -> None:
        what = data.draw(
            st.sampled_from(["publish", "publish", "lease", "lease", "settle", "settle", "time", "touch", "more"])
        )
        if what == "publish":
            count = data.draw(st.integers(1, 6))

            def column(each):
                return data.draw(st.lists(each, min_size=count, max_size=count))

            columns = {
                layout.KEY: column(names),
                layout.TENANT: column(names),
                layout.PRIORITY: column(st.integers(0, 4)),
                layout.DELAY_MS: column(st.sampled_from([0, 0, 0, 400])),
                layout.TTL_MS: column(st.sampled_from([0, 0, 0, 2500])),
            }
            self.entropy += 1
            batch = Batch.open(build([b"x"] * count, columns=columns))
            self.submit(commands.Publish([commands.Part(1, batch)], self.entropy << 40))
        elif what == "lease":
            self.lease(data.draw(st.integers(1, 5)), "default")
        elif what == "settle" and self.held:
            lease, nonce, first, stop = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            claims = [commands.Claim(lease, nonce, first, data.draw(st.integers(first + 1, stop)))]
            kind = data.draw(st.sampled_from(["ack", "ack", "nack", "reject", "release"]))
            self.submit(
                {
                    "ack": commands.Ack(claims),
                    "nack": commands.Nack(claims, data.draw(st.sampled_from([None, 0])), "it broke"),
                    "reject": commands.Reject(claims, "no"),
                    "release": commands.Release(claims),
                }[kind]
            )
        elif what == "time":
            self.now += data.draw(st.sampled_from([1, 300, 700, 2000, 31_000]))
        elif what == "touch":
            number = data.draw(st.integers(0, len(self.queue.partitions) - 1))
            place = (number, data.draw(st.integers(0, max(0, self.queue.partitions[number].end - 1))))
            late = commands.Reschedule(1, [place], self.now + data.draw(st.sampled_from([0, 500])))
            self.submit(data.draw(st.sampled_from([commands.Cancel(1, [place]), late])))
        elif what == "more" and len(self.queue.partitions) < 5 and data.draw(st.booleans()):
            values = {"partitions": len(self.queue.partitions) + 1}
            self.config = parse_config(values, self.config)
            self.submit(commands.ConfigureQueue("a/b/c", self.config))
        self.let_time_work()

    def explained(self, group: str = "default"):
        explainer = Explainer(self.shard, self.queue, group, self.now)
        return {
            (number, offset): explainer.explain(number, offset)
            for number, partition in enumerate(self.queue.partitions)
            for offset in range(partition.end)
        }


def is_deliverable(explanation: Explanation) -> bool:
    return not any(reason.blocks for reason in explanation.reasons)


@pytest.mark.parametrize("name", ORDERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_deliverable_is_what_a_lease_of_everything_would_give(name, data):
    story = Story(ORDERS[name])
    for _ in range(data.draw(st.integers(3, 30))):
        story.step(data)
    story.lease(1, "default")  # so that the group has begun
    before = snapshot.digest(story.shard)
    explained = story.explained()
    heads = {
        number: Explainer(story.shard, story.queue, "default", story.now).head(number)
        for number in range(len(story.queue.partitions))
    }
    assert snapshot.digest(story.shard) == before, "explaining changed something"
    for place, explanation in explained.items():
        assert (explanation.partition, explanation.offset) == place
        assert explanation.state == State.READY or not is_deliverable(explanation)
    for number, head in heads.items():
        waiting = [
            offset
            for (partition, offset), explanation in explained.items()
            if partition == number and explanation.state in (State.READY, State.WAITING, State.SCHEDULED)
        ]
        assert head == min(waiting, default=None)
    given_out = story.lease(EVERYTHING, "default")
    assert {place for place, explanation in explained.items() if is_deliverable(explanation)} == set(given_out)
    check_lines(story, explained, given_out)


def check_lines(story: Story, explained, given_out) -> None:
    """`behind` is the place in the line that it speaks of."""
    share = story.config.fair_share.enabled
    lines: dict[object, int] = {}
    for number, offset in given_out:
        partition = story.queue.partitions[number]
        tenant = partition.traits.tenant[offset] if share else None
        line = tenant if story.config.indexed else number
        counted = [reason for reason in explained[number, offset].reasons if isinstance(reason, Behind)]
        assert (counted[0].count if counted else 0) == lines.get(line, 0), (number, offset)
        assert all(reason.exact for reason in counted)
        lines[line] = lines.get(line, 0) + 1
