"""A snapshot taken behind any record, and the records after it, lead to where the journal leads.

One long history of a busy shard. Behind every single record the state is written, read again, and carried on with the
records that followed; its digest must then be that of the state that never stopped. An independent list of what was
published and not finished says at the end which messages must still be there.
"""

from __future__ import annotations

from collections import deque
from random import Random

import msgspec
import pytest

from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants, records, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.records import Record, WebhookSpec
from penstock.core.slices import encoded
from penstock.core.state import Shard
from penstock.errors import PenstockError
from penstock.journal.codec import decode, encode

START_MS = 1_760_000_000_000
CARRIED_ON = 12
"""Records that each snapshot is carried on with before it is compared."""
GROUPS = ("one", "two")


class History:
    """Commands by chance against one shard, as the loop would pass them on."""

    def __init__(self, seed: int):
        self.chance = Random(seed)
        self.shard = Shard()
        self.now = START_MS
        self.records: list[tuple[Record, int]] = []
        """Each with the time to which the shard had been brought when it was applied."""
        self.claims: list[commands.Claim] = []
        self.published: set[tuple[int, int, int]] = set()
        self.finished: dict[str, set[tuple[int, int, int]]] = {group: set() for group in GROUPS}
        self.begun: dict[int, list[str]] = {1: [], 2: [], 3: []}
        """Groups of each queue."""
        for number, values in enumerate(
            (
                {"lease_ms": 500, "max_retries": 2, "dead_letter": False, "backoff": {"kind": "fixed", "base_ms": 100}},
                {"partitions": 2, "ttl_ms": 4000, "lease_ms": 2000, "backoff": {"kind": "none"}},
                {"retention": {"mode": "keep"}, "delay_ms": 50, "max_retries": 0, "dead_letter": False},
            ),
            1,
        ):
            self.submit(commands.ConfigureQueue(f"a/b/q{number}", parse_config(values)))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.chance.choice((0, 0, 1, 5, 20, 120))
            step = self.chance.choices(
                (self.publish, self.lease, self.settle, self.touch, self.trim, self.hook), (22, 30, 40, 6, 2, 3)
            )[0]
            step()

    def publish(self) -> None:
        count = self.chance.randint(1, 4)
        columns = {}
        if self.chance.random() < 0.3:
            columns[layout.DELAY_MS] = [self.chance.choice((0, 10, 400, 5000)) for _ in range(count)]
        if self.chance.random() < 0.2:
            columns[layout.ID] = [b"id-%d" % self.chance.randint(0, 50) for _ in range(count)]
        if self.chance.random() < 0.2:
            columns[layout.MAX_RETRIES] = [self.chance.choice((-1, 0, 5)) for _ in range(count)]
        if self.chance.random() < 0.5:
            columns[layout.KEY] = [b"%d" % self.chance.randint(0, 9) for _ in range(count)]
        batch = Batch.open(build([b"x"] * count, columns=columns))
        producer = self.chance.choice(("", "", "p"))
        seq = self.chance.randint(0, 300) if producer else 0
        self.submit(
            commands.Publish([commands.Part(self.queue(), batch)], self.chance.getrandbits(79), producer, 1, seq)
        )

    def lease(self) -> None:
        group = self.chance.choice(GROUPS)
        command = commands.Lease(self.queue(), group, self.chance.randint(1, 9), self.chance.getrandbits(64))
        reply = self.submit(command) or self.submit(command)
        self.claims += [commands.Claim(run.lease, run.nonce, run.first, run.first + run.count) for run in reply or []]

    def settle(self) -> None:
        if not self.claims:
            return
        claim = self.claims.pop(self.chance.randrange(-min(8, len(self.claims)), 0))
        if self.chance.random() < 0.3:
            claim = claim._replace(stop=claim.first + 1)
        self.submit(
            self.chance.choices(
                (
                    commands.Ack([claim]),
                    commands.Nack([claim], self.chance.choice((None, 0, 50)), "no"),
                    commands.Reject([claim]),
                    commands.Release([claim]),
                    commands.Extend([claim], 400),
                ),
                (70, 12, 4, 8, 6),
            )[0]
        )

    def touch(self) -> None:
        queue = self.queue()
        partition = self.chance.randrange(len(self.shard.queues[queue].partitions))
        end = self.shard.queues[queue].partitions[partition].end
        places = [(partition, max(0, end - self.chance.randint(1, 10)))]
        if self.chance.random() < 0.5:
            self.submit(commands.Cancel(queue, places))
        else:
            self.submit(commands.Reschedule(queue, places, self.now + self.chance.choice((0, 30, 700))))

    def trim(self) -> None:
        partition = self.shard.queues[3].partitions[0]
        self.submit(commands.TrimPartition(3, 0, self.chance.randint(partition.start, partition.end)))

    def hook(self) -> None:
        name = self.chance.choice(("a", "b"))
        queue = self.shard.queues[self.queue()].path
        delays = [10] * self.chance.randint(0, 4)
        secret = b"" if name in self.shard.webhooks else b"sealed"
        step: commands.Command = self.chance.choice(
            (
                commands.SetWebhook(
                    name, WebhookSpec(queue, self.chance.choice(GROUPS), "https://x.example", delays), secret
                ),
                commands.RotateWebhook(name, b"%d" % self.now, self.chance.choice((0, 500, 5_000))),
                commands.SwitchWebhook(name, self.chance.choice(("active", "paused", "disabled")), "why"),
                commands.RemoveWebhook(name),
            )
        )
        self.submit(step)

    def queue(self) -> int:
        return self.chance.randint(1, 3)

    def submit(self, command: commands.Command) -> object:
        while self.shard.next_deadline_ms() <= self.now:
            advance(self.shard, self.now)
            if self.shard.needs_tick():
                self.applied(decide(self.shard, commands.Tick(), self.now).records)
        try:
            decision = decide(self.shard, command, self.now)
        except PenstockError:
            return None
        self.applied(decision.records)
        return decision.reply

    def applied(self, made: list[Record]) -> None:
        for record in made:
            apply(self.shard, record)
            self.records.append((record, self.shard.advanced_ms))
            self.note(record)

    def note(self, record: Record) -> None:
        """The finished messages of each group, from the records alone."""
        if isinstance(record, records.Published):
            self.published |= {
                (record.queue, record.partition, record.offset + row) for row in range(record.batch.count)
            }
        elif isinstance(record, records.GroupCreated):
            others = [self.finished[group] for group in self.begun[record.queue]]
            self.finished[record.name] |= {
                place
                for place in self.published
                if place[0] == record.queue and others and all(place in finished for finished in others)
            }
            self.begun[record.queue].append(record.name)
        elif isinstance(record, records.Acked | records.DeadLettered):
            group = self.shard.queues[record.queue].group_names[record.group]
            self.finished[group] |= places(record)
        elif isinstance(record, records.Expired | records.Cancelled):
            for group in GROUPS:
                self.finished[group] |= places(record)


def places(record) -> set[tuple[int, int, int]]:
    flat = record.ranges
    return {
        (record.queue, record.partition, offset)
        for first, stop in zip(flat[::2], flat[1::2], strict=True)
        for offset in range(first, stop)
    }


def reloaded(shard: Shard) -> Shard:
    """Through the bytes of a snapshot."""
    return snapshot.load(msgspec.msgpack.decode(b"".join(encoded(snapshot.capture(shard)))))


def stored(record: Record) -> Record:
    """Through bytes and back."""
    ((_, again),) = decode(memoryview(b"".join(part or b"" for part in encode(record))))
    return again


def differ(one: Shard, other: Shard, which: str) -> None:
    """Digests are fast; the digested values locate a difference."""
    assert snapshot.dump(one) == snapshot.dump(other), which
    pytest.fail(f"{which}: its digest is another one")


@pytest.mark.slow
def test_a_snapshot_behind_every_record_leads_to_the_same_state():
    history = History(seed=1)
    history.run(3_000)
    assert len(history.records) > 3_000
    assert {type(record) for record, _ in history.records} >= {
        records.Published, records.Leased, records.Acked, records.Retried, records.DeadLettered, records.Released,
        records.Expired, records.Cancelled, records.Rescheduled, records.Extended, records.Trimmed,
        records.WebhookSet, records.WebhookRotated, records.WebhookState, records.WebhookRemoved,
    }  # fmt: skip
    live = Shard()
    following: deque[Shard] = deque()
    for number, (record, advanced_ms) in enumerate(history.records):
        record = stored(record)
        advance(live, advanced_ms)
        apply(live, record)
        for twin in following:
            apply(twin, record)
        written = snapshot.digest(live)
        if len(following) == CARRIED_ON:
            twin = following.popleft()
            advance(twin, advanced_ms)
            if snapshot.digest(twin) != written:
                differ(twin, live, f"the snapshot {CARRIED_ON} records before {number}, carried on")
        following.append(reloaded(live))
        if snapshot.digest(following[-1]) != written:
            differ(following[-1], live, f"the snapshot behind record {number}")
    invariants.check(live)
    advance(live, history.shard.advanced_ms)
    assert snapshot.digest(live) == snapshot.digest(history.shard)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_finished_is_still_there(seed):
    """Only for queues without retention `keep`: there the groups alone decide which messages are finished."""
    history = History(seed)
    history.run(1500)
    shard = reloaded(history.shard)
    for number in (1, 2):
        queue = shard.queues[number]
        for group in GROUPS:
            if group not in queue.groups:
                continue
            for position, partition in enumerate(queue.partitions):
                progress = partition.progress[queue.groups[group]]
                left = {offset for offset in range(partition.end) if not progress.is_done(offset)}
                expected = {
                    offset
                    for place, at, offset in history.published - history.finished[group]
                    if (place, at) == (number, position)
                }
                assert left == expected
