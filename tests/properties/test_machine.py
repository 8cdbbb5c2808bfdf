"""The machine against the dumb one: any commands in any order, time passing, restarts in between.

Drives `decide`, `apply` and `advance` as the shard's loop does, without any I/O. Before a command is decided the naive
model (naive.py) says what must come out; after each step both must agree on the state of every message in every group.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from naive import Message, Naive, NaiveQueue

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.decide.groups import kept_alone
from penstock.core.decide.leasing import Fit
from penstock.core.lifecycle import State
from penstock.core.rebuild import end_replay
from penstock.core.records import Record
from penstock.core.slices import encoded
from penstock.core.state import Shard
from penstock.errors import InvalidRequest, PenstockError, QueueFull, QueueNotFound
from penstock.journal.codec import decode, encode

START_MS = 1_760_000_000_000
HOUR_MS = 3_600_000

CONFIGS = [
    parse_config(values)
    for values in (
        {},
        {"lease_ms": 1000, "max_retries": 1, "backoff": {"kind": "fixed", "base_ms": 500, "jitter": 0}},
        {"partitions": 3, "backoff": {"jitter": 0.5}},
        {"max_retries": 0, "dead_letter": False, "lease_ms": 200},
        {"delay_ms": 700, "ttl_ms": 3000, "backoff": {"kind": "none"}},
        {"retention": {"mode": "keep"}, "max_retries": 2, "backoff": {"kind": "none"}},
        {"retention": {"mode": "keep"}, "partitions": 2, "ttl_ms": 5000},
        {"max_messages": 5},
        {"delivery": "at_most_once", "delay_ms": 50},
        {"exclusive": True, "partitions": 2, "lease_ms": 1000},
    )
]
GROUPS = ["default", "billing", "audit"]
configs = st.sampled_from(CONFIGS)
waits = st.one_of(
    st.sampled_from([0, 1, 49, 50, 200, 500, 700, 1000, 3000, 60_000, HOUR_MS, 25 * HOUR_MS]), st.integers(0, 5000)
)
sometimes = st.integers(0, 3).map(lambda n: n == 0)


def column(draw, count: int, each) -> list | None:
    """One value per message, or no column at all."""
    return draw(st.lists(each, min_size=count, max_size=count)) if draw(sometimes) else None


@st.composite
def batches(draw, now_ms: int) -> Batch:
    count = draw(st.integers(1, 5))
    columns = {
        layout.DELAY_MS: column(draw, count, st.sampled_from([0, 0, 1, 300, 5000, 40 * HOUR_MS])),
        layout.DELIVER_AT_MS: column(draw, count, st.sampled_from([0, 1, now_ms, now_ms + 400, now_ms + 2 * HOUR_MS])),
        layout.TTL_MS: column(draw, count, st.sampled_from([0, 1, 900, 6000])),
        layout.MAX_RETRIES: column(draw, count, st.sampled_from([-1, 0, 1, 5])),
        layout.KEY: column(draw, count, st.sampled_from([b"", b"a", b"b", b"c", b"d"])),
        layout.ID: column(draw, count, st.sampled_from([b"", b"x", b"y", b"z"])),
    }
    present = {name: values for name, values in columns.items() if values is not None}
    return Batch.open(build([b"%d" % row for row in range(count)], columns=present))


def reloaded(shard: Shard) -> Shard:
    """Through bytes and back, as a snapshot does it."""
    return snapshot.load(msgspec.msgpack.decode(b"".join(encoded(snapshot.capture(shard)))))


PUBLISHING = rule(
    data=st.data(),
    producer=st.sampled_from(["", "", "p", "q"]),
    epoch=st.sampled_from([1, 1, 1, 2]),
    seq=st.integers(0, 12),
)
LEASING = rule(
    data=st.data(),
    group=st.sampled_from(GROUPS),
    wanted=st.sampled_from([1, 1, 2, 3, 100]),
    lease_ms=st.sampled_from([None, None, 100, 2000]),
)


def four_fit(_queue: int, _partition: int, first: int, stop: int, room: int) -> tuple[int, int]:
    """As if every message took a quarter of what one reply can hold."""
    each = limits.LEASE_REPLY_BYTES_MAX // 4
    fitting = min(stop, first + room // each)
    return fitting, (fitting - first) * each


def has_leases(machine: MachineAgainstModel) -> bool:
    return bool(machine.model.leases)


def has_letters(machine: MachineAgainstModel) -> bool:
    return any(queue.dead for queue in machine.model.queues.values())


def has_groups(machine: MachineAgainstModel) -> bool:
    return any(queue.groups for queue in machine.model.queues.values())


def finished(queue: NaiveQueue, message: Message) -> bool:
    """True if no group, present or future, can be given the message any more."""
    if any(life.end is None for life in message.lives.values()):
        return False
    if message.gone is not None or message.offset < queue.starts[message.partition]:
        return True
    return queue.config.retention.mode == "until_acked" and bool(queue.groups)


def has_messages(machine: MachineAgainstModel) -> bool:
    return any(queue.messages() for queue in machine.model.queues.values())


def given_up(queue: NaiveQueue) -> str:
    """The outcome of a message that a group gives up."""
    return "dead_lettered" if queue.config.dead_letter else "dropped"


class MachineAgainstModel(RuleBasedStateMachine):
    steps = 0
    configs = configs
    batches = staticmethod(batches)
    looks_for_changes_every = 1
    """Commands between two looks at whether deciding alone has changed hard state."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard()
        self.model = Naive()
        self.now = START_MS
        self.ticked_at = START_MS
        self.records: list[bytes] = []
        self.claimable: list[tuple[int, int, int, int]] = []
        """(lease, nonce, first, stop) of everything that was ever leased."""
        self.entropy = 0
        self.redrives = 0
        self.decisions = 0
        self.fit: Fit | None = None
        self.reply_messages_max = 10**6

    # -- the loop ------------------------------------------------------------------------------------------------------

    def submit(self, command: commands.Command) -> object:
        """Time first, then the decision; as `runtime/loop.py` does it."""
        self.let_time_work()
        return self.decided(command)

    def decided(self, command: commands.Command) -> object:
        self.decisions += 1
        looks = self.decisions % self.looks_for_changes_every == 0
        before = snapshot.digest(self.shard) if looks else ""
        try:
            decision = decide(self.shard, command, self.now, self.fit)
        except PenstockError as error:
            assert not looks or snapshot.digest(self.shard) == before, f"{command} was refused and changed something"
            return error
        # A tick takes what time has made due off the list it stands on; every other decision only looks.
        if looks and type(command) is not commands.Tick:
            assert snapshot.digest(self.shard) == before, f"deciding {command} changed hard state"
        self.check_decision(command, decision.reply)
        for record in decision.records:
            self.applied(record)
        return decision.reply

    def check_decision(self, command: commands.Command, reply: object) -> None:
        """Before the model learns of it."""

    def applied(self, record: Record) -> None:
        head, attached = encode(record)
        self.records.append(head + (attached or b""))
        self.model.note(record)
        apply(self.shard, record)

    def let_time_work(self) -> None:
        for _ in range(10):
            if self.shard.next_deadline_ms() > self.now:
                self.check_nothing_is_late()
                return
            advance(self.shard, self.now)
            if self.shard.needs_tick():
                self.decided(commands.Tick())
        raise AssertionError("time has done its work ten times over, and still has something to do")

    def check_nothing_is_late(self) -> None:
        """No lease past its deadline; no message past its time to live, unless it is leased."""
        for queue in self.model.queues.values():
            for message in queue.messages():
                lives = message.lives.values()
                for life in lives:
                    assert life.lease is None or life.deadline > self.now, "a lease outlived its deadline"
                if message.expires is None or message.expires > self.now or message.gone is not None:
                    continue
                kept = queue.config.retention.mode == "keep"
                finished = not kept and bool(lives) and all(life.end is not None for life in lives)
                trimmed = message.offset < queue.starts[message.partition]
                leased = any(life.lease is not None for life in lives)
                assert finished or trimmed or leased, f"offset {message.offset} outlived its time"

    # -- rules: queues -------------------------------------------------------------------------------------------------

    @initialize(data=st.data(), large_messages=sometimes)
    def first_queue(self, data: st.DataObject, large_messages: bool) -> None:
        config = data.draw(self.configs, label="config")
        if large_messages:
            self.fit, self.reply_messages_max = four_fit, 4
        assert self.submit(commands.ConfigureQueue("a/b/first", config)) == 1

    @rule(data=st.data(), what=st.sampled_from(["create", "configure", "configure", "repartition", "delete", "purge"]))
    def an_operator_acts(self, data: st.DataObject, what: str) -> None:
        number, queue = self.pick_queue(data)
        path = self.shard.queues[number].path
        if what == "create" and len(self.model.queues) < 2:
            config = data.draw(self.configs, label="config")
            number = self.submit(commands.ConfigureQueue(f"a/b/q{self.shard.next_queue}", config))
            assert number in self.model.queues
        elif what == "configure":
            config = data.draw(self.configs, label="config")
            config = msgspec.structs.replace(config, partitions=queue.config.partitions)
            assert self.submit(commands.ConfigureQueue(path, config)) == number
        elif what == "repartition":
            more = data.draw(st.sampled_from([-1, 1, 2]), label="more")
            config = msgspec.structs.replace(queue.config, partitions=queue.config.partitions + more)
            if more < 0:
                assert isinstance(self.submit(commands.ConfigureQueue(path, config)), InvalidRequest)
            elif config.partitions < 6:
                assert self.submit(commands.ConfigureQueue(path, config)) == number
        elif what == "delete" and len(self.model.queues) > 1 and data.draw(sometimes, label="sure"):
            self.submit(commands.DeleteQueue(number))
            assert isinstance(self.submit(commands.PurgeQueue(number)), QueueNotFound)
        elif what == "purge" and data.draw(sometimes, label="sure"):
            self.submit(commands.PurgeQueue(number))

    @precondition(lambda self: any(queue.config.retention.mode == "keep" for queue in self.model.queues.values()))
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        kept = [number for number, queue in self.model.queues.items() if queue.config.retention.mode == "keep"]
        number = data.draw(st.sampled_from(kept), label="queue")
        queue = self.model.queues[number]
        partition = data.draw(st.integers(0, queue.config.partitions - 1), label="partition")
        end = len(queue.logs[partition])
        start = data.draw(st.integers(queue.starts[partition], end + 2), label="start")
        self.let_time_work()
        expected = max(queue.starts[partition], min(start, end))
        assert self.submit(commands.TrimPartition(number, partition, start)) == expected

    # -- rules: messages -----------------------------------------------------------------------------------------------

    def do_publish(self, data: st.DataObject, producer: str, epoch: int, seq: int) -> None:
        self.let_time_work()
        parts = [
            commands.Part(self.pick_queue(data)[0], data.draw(self.batches(self.now), label="batch"))
            for _ in range(data.draw(st.sampled_from([1, 1, 1, 2, 3]), label="parts"))
        ]
        self.publish_and_compare(parts, producer, epoch, seq)

    def publish_and_compare(self, parts: list[commands.Part], producer: str = "", epoch: int = 0, seq: int = 0) -> None:
        predicted = self.model.predict_publish([tuple(part) for part in parts], producer, epoch, seq, self.now)
        self.entropy += 1
        command = commands.Publish(
            parts, self.entropy << 40, producer, epoch if producer else 0, seq if producer else 0
        )
        reply = self.submit(command)
        if isinstance(predicted, str):
            assert type(reply).__name__ == predicted
            return
        assert isinstance(reply, list), reply
        answered = {}
        for run in reply:
            rows = range(run.count) if run.rows is None else run.rows
            assert len(rows) == run.count
            for place, row in enumerate(rows):
                assert (run.part, row) not in answered, "a row is answered once"
                answered[run.part, row] = (run.duplicate, run.partition, run.offset + place, run.id + place)
        assert set(answered) == set(predicted)
        for (part, row), (kind, earlier, place) in predicted.items():
            duplicate, partition, offset, message_id = answered[part, row]
            stored = self.model.queues[parts[part].queue].logs[place[0]][place[1]]
            assert (duplicate, partition, offset) == (kind == "duplicate", *place)
            assert message_id == (earlier or stored).id

    def do_lease(self, data: st.DataObject, group: str, wanted: int, lease_ms: int | None) -> None:
        self.lease_and_compare(self.pick_queue(data)[0], group, wanted, lease_ms)

    def lease_and_compare(self, number: int, group: str, wanted: int, lease_ms: int | None) -> None:
        queue = self.model.queues[number]
        self.entropy += 1
        command = commands.Lease(number, group, wanted, self.entropy, lease_ms, "worker")
        self.let_time_work()
        if group not in queue.groups:
            assert self.submit(command) is None, "the first lease makes the group"
        predicted = self.predict(number, queue.groups[group], min(wanted, self.reply_messages_max))
        reply = self.submit(command)
        assert predicted is None or expanded(reply) == predicted
        deadline = self.now + (lease_ms or queue.config.lease_ms)
        for run in reply:
            assert (run.queue, run.nonce, run.deadline) == (number, self.entropy, deadline)
            assert run.settled == (queue.config.delivery == "at_most_once")
            self.claimable.append((run.lease, run.nonce, run.first, run.first + run.count))

    def predict(self, number: int, group: int, wanted: int) -> list[tuple[int, int, int]] | None:
        """(partition, offset, attempt) of the messages that a lease must get, in order; None if the model does not
        decide it."""
        return self.model.predict_lease(number, group, wanted, self.shard.queues[number].turn, self.now)

    # Rules are drawn evenly; these are what brokers mostly do.
    publish, publish_again, publish_more = PUBLISHING(do_publish), PUBLISHING(do_publish), PUBLISHING(do_publish)
    lease, lease_again, lease_more = LEASING(do_lease), LEASING(do_lease), LEASING(do_lease)

    @precondition(has_leases)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        claims = self.pick_claims(data)
        self.check_outcomes(claims, commands.Ack(claims), lambda _q, _m, _l: ("acked", None))

    @precondition(has_leases)
    @rule(data=st.data(), delay_ms=st.sampled_from([None, None, 0, 10, 4000]))
    def nack(self, data: st.DataObject, delay_ms: int | None) -> None:
        claims = self.pick_claims(data)

        def expected(queue: NaiveQueue, message, life):
            budget = queue.config.max_retries if message.budget is None else message.budget
            if life.attempt > budget:
                return (given_up(queue), None)
            return ("retrying", self.bounds_of_due(queue, life.attempt, delay_ms))

        self.check_outcomes(claims, commands.Nack(claims, delay_ms, "it broke"), expected)

    @precondition(has_leases)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        claims = self.pick_claims(data)
        self.check_outcomes(claims, commands.Reject(claims, "no"), lambda queue, _m, _l: (given_up(queue), None))

    @precondition(has_leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claims = self.pick_claims(data)
        self.check_outcomes(claims, commands.Release(claims), lambda _q, _m, _l: ("released", None))

    @precondition(has_leases)
    @rule(data=st.data(), lease_ms=st.sampled_from([100, 1500, 50_000]))
    def extend(self, data: st.DataObject, lease_ms: int) -> None:
        claims = self.pick_claims(data)
        deadline = self.now + lease_ms
        self.check_outcomes(
            claims, commands.Extend(claims, lease_ms), lambda _q, _m, _l: ("extended", (deadline, deadline))
        )

    @precondition(has_messages)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number, places = self.pick_places(data)
        expected = [self.model.untouchable(number, *place, self.now) or "cancelled" for place in places]
        logs = self.model.queues[number].logs
        own = [logs[p][offset].own_id if offset < len(logs[p]) else b"" for p, offset in places]
        assert self.submit(commands.Cancel(number, places, own)) == expected
        self.model.check_handles(number, self.shard.queues[number].dedup.place_of)

    @precondition(has_messages)
    @rule(data=st.data(), wait=st.sampled_from([-100, 0, 1, 250, 6000, 3 * HOUR_MS]))
    def reschedule(self, data: st.DataObject, wait: int) -> None:
        number, places = self.pick_places(data)
        expected = [self.model.untouchable(number, *place, self.now) or "rescheduled" for place in places]
        assert self.submit(commands.Reschedule(number, places, self.now + wait)) == expected

    # -- rules: groups -------------------------------------------------------------------------------------------------

    def pick_offsets(self, data: st.DataObject, queue: NaiveQueue) -> list[int]:
        """One per partition, also where nothing is retained or stored any more, or yet."""
        return [data.draw(st.integers(0, len(log) + 1), label="offset") for log in queue.logs]

    @rule(data=st.data(), group=st.sampled_from(GROUPS), may_let_go=st.booleans())
    def create_group(self, data: st.DataObject, group: str, may_let_go: bool) -> None:
        number, queue = self.pick_queue(data)
        starts = self.pick_offsets(data, queue)
        is_new, is_first = group not in queue.groups, not queue.groups
        assert self.submit(commands.CreateGroup(number, group, starts, may_let_go)) is is_new
        if is_new and is_first and not may_let_go and queue.config.retention.mode == "until_acked":
            for partition in self.shard.queues[number].partitions:
                floor = partition.progress[queue.groups[group]].floor
                assert floor == partition.gone.past(partition.start), "what the first group passes over would be gone"

    @precondition(has_groups)
    @rule(data=st.data())
    def seek_group(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([n for n, q in sorted(self.model.queues.items()) if q.groups]), label="of")
        queue = self.model.queues[number]
        name = data.draw(st.sampled_from(sorted(queue.groups)), label="group")
        offsets = [offset if data.draw(st.booleans()) else -1 for offset in self.pick_offsets(data, queue)]
        self.let_time_work()
        group = queue.groups[name]
        before = {
            (number, message.offset): message.lives[group].end is None
            for number, log in enumerate(queue.logs)
            for message in log
        }
        leased = {
            number: sum(message.lives[group].lease is not None for message in log)
            for number, log in enumerate(queue.logs)
        }
        moved = self.submit(commands.SeekGroup(number, name, offsets))
        assert [each.partition for each in moved] == [n for n, offset in enumerate(offsets) if offset >= 0]
        for each in moved:
            after = {message.offset: message.lives[group].end is None for message in queue.logs[each.partition]}
            changed = [(before[each.partition, offset], undone) for offset, undone in after.items()]
            assert (each.again, each.skipped) == (changed.count((False, True)), changed.count((True, False)))
            assert each.leased == leased[each.partition]

    @precondition(has_groups)
    @rule(data=st.data(), stale=sometimes)
    def delete_group(self, data: st.DataObject, stale: bool) -> None:
        number = data.draw(st.sampled_from([n for n, q in sorted(self.model.queues.items()) if q.groups]), label="of")
        queue = self.model.queues[number]
        name = data.draw(st.sampled_from(sorted(queue.groups)), label="group")
        self.let_time_work()
        group = queue.groups[name] - stale
        alone = kept_alone(self.shard.queues[number], queue.groups[name])
        stored = {message.id for message in queue.messages() if not finished(queue, message)}
        assert self.submit(commands.DeleteGroup(number, name, group)) is not stale
        left = {message.id for message in queue.messages() if not finished(queue, message)}
        assert stale or len(stored - left) == alone

    # -- rules: dead letters, transactions -----------------------------------------------------------------------------

    @precondition(has_letters)
    @rule(data=st.data(), delay_ms=st.sampled_from([0, 0, 300]), copies=sometimes)
    def redrive(self, data: st.DataObject, delay_ms: int, copies: bool) -> None:
        number, letters = self.pick_letters(data)
        target, path = self.pick_queue(data)[0], ""
        if copies and target != number:
            path = self.shard.queues[target].path
        self.redrives += 1
        name = f"r{self.redrives}"
        self.submit(commands.StartRedrive(number, name, filter="", target=path, delay_ms=delay_ms, rate_per_s=1))
        part = None
        if path:
            part = commands.Part(target, Batch.open(build([b"copy"] * len(letters))))
        there = {letter for letter in letters if self.is_letter(number, letter)}
        moved = self.submit(commands.RedriveLetters(number, name, letters, part, self.redrives << 20))
        if isinstance(moved, PenstockError):
            assert path and isinstance(moved, QueueFull)
            assert all(self.is_letter(number, letter) for letter in there), "refused, and still moved"
        else:
            assert moved == len(there)
            assert self.submit(commands.RedriveLetters(number, name, letters, part, 1)) == 0, "moved twice"
        self.submit(commands.EndRedrive(number, name, "finished"))

    @precondition(has_letters)
    @rule(data=st.data())
    def delete_letters(self, data: st.DataObject) -> None:
        number, letters = self.pick_letters(data)
        there = {letter for letter in letters if self.is_letter(number, letter)}
        assert self.submit(commands.DeleteLetters(number, letters)) == len(there)

    @precondition(has_leases)
    @rule(data=st.data())
    def transact(self, data: st.DataObject) -> None:
        claims = self.pick_claims(data)
        shown = [(claim.lease, claim.nonce, offset) for claim in claims for offset in range(claim.first, claim.stop)]
        good = len(set(shown)) == len(shown) and all(self.model.held(*each) for each in shown)
        target = self.pick_queue(data)[0]
        self.entropy += 1
        # A payload of its own, or it would be the same transaction as an earlier one.
        parts = [commands.Part(target, Batch.open(build([b"%d" % self.entropy])))]
        done = self.submit(commands.Transact(claims, parts, self.entropy << 20))
        if isinstance(done, PenstockError):
            assert good and isinstance(done, QueueFull)
            assert all(self.model.held(*each) for each in shown), "refused, and still acked"
            return
        assert (done.runs is not None) == good
        if good:
            assert not any(self.model.held(*each) for each in shown)
            again = self.submit(commands.Transact(claims, parts, 1))
            assert [(run.id, run.duplicate) for run in again.runs] == [(run.id, True) for run in done.runs]

    # -- rules: time and restarts --------------------------------------------------------------------------------------

    @rule(wait=waits)
    def time_passes(self, wait: int) -> None:
        self.now += wait
        self.let_time_work()

    @rule(early=st.sampled_from([0, 0, 1]))
    def sleep_until_something_is_due(self, early: int) -> None:
        due = self.shard.next_deadline_ms()
        if self.now < due - early < self.now + 100 * HOUR_MS:
            self.now = due - early
            self.let_time_work()

    @rule(how=st.sampled_from(["snapshot", "journal"]), takeover=st.booleans(), downtime=waits)
    def restart(self, how: str, takeover: bool, downtime: int) -> None:
        """Read the state again; or another node takes the shard, perhaps long after the first one fell silent."""
        turns = {number: queue.turn for number, queue in self.shard.queues.items()}
        if how == "snapshot":
            self.shard = reloaded(self.shard)
        else:
            self.shard = self.replayed()
        self.restarted(how)
        if takeover:
            self.now += downtime
            self.decided(commands.Open(self.shard.term + 1, "01JP0000000000000000000000"))
        for number, turn in turns.items():
            self.shard.queues[number].turn = turn
        self.let_time_work()

    def restarted(self, how: str) -> None:
        """The caches were built anew."""

    # -- what must hold after each step --------------------------------------------------------------------------------

    @invariant()
    def the_rules_of_the_state_hold(self) -> None:
        type(self).steps += 1
        invariants.check(self.shard)

    @invariant()
    def machine_and_model_agree_on_every_message(self) -> None:
        self.let_time_work()
        assert set(self.shard.leases) == set(self.model.leases)
        for number, queue in self.model.queues.items():
            theirs = self.shard.queues[number]
            assert theirs.groups == queue.groups
            assert theirs.depth() == queue.depth()
            for place, log in enumerate(queue.logs):
                partition = theirs.partitions[place]
                assert (partition.start, partition.end) == (queue.starts[place], len(log))
                for group, progress in partition.progress.items():
                    for message in log:
                        state = seen_state(partition, progress, message.offset, self.now)
                        expected = message.lives[group].state(self.now)
                        where = f"queue {number}, partition {place}, group {group}, offset {message.offset}"
                        assert state == (expected if message.lives[group].end is None else None), where

    @invariant()
    def journal_and_snapshot_lead_to_the_same_state(self) -> None:
        if len(self.records) % 7:
            return
        self.let_time_work()
        expected = snapshot.digest(self.shard)
        loaded = reloaded(self.shard)
        assert snapshot.digest(loaded) == expected, "a snapshot is not the state it was taken of"
        replayed = self.replayed()
        assert snapshot.digest(replayed) == expected, "the journal does not add up to the state"
        for twin in (loaded, replayed):
            advance(twin, self.now)
        for number, queue in self.model.queues.items():
            for group in queue.groups.values():
                name = self.shard.queues[number].group_names[group]
                for twin in (loaded, replayed):
                    twin.queues[number].turn = 0
                    reply = decide(twin, commands.Lease(number, name, 10_000, 0), self.now).reply
                    self.check_after_restart(number, group, expanded(reply))

    def check_after_restart(self, number: int, group: int, leased: list[tuple[int, int, int]]) -> None:
        predicted = self.model.predict_lease(number, group, 10_000, 0, self.now)
        assert leased == predicted, "after a restart the next lease would differ"

    def replayed(self) -> Shard:
        """The sum of the records, brought to the present."""
        shard = Shard()
        shard.replaying = True
        for data in self.records:
            for _, record in decode(memoryview(data)):
                apply(shard, record)
        end_replay(shard)
        advance(shard, max(self.shard.now_ms, self.shard.advanced_ms))
        return shard

    # -- drawing and comparing -----------------------------------------------------------------------------------------

    def pick_queue(self, data: st.DataObject) -> tuple[int, NaiveQueue]:
        number = data.draw(st.sampled_from(sorted(self.model.queues)), label="queue")
        return number, self.model.queues[number]

    def pick_letters(self, data: st.DataObject) -> tuple[int, list[commands.Letter]]:
        """Some dead letters of a queue, also twice, also as they were before they died anew."""
        self.let_time_work()
        number = data.draw(
            st.sampled_from([n for n, q in sorted(self.model.queues.items()) if q.dead] or [0]), label="of"
        )
        dead = [
            commands.Letter(partition, group, offset, at)
            for (partition, group, offset), at in sorted(self.model.queues[number].dead.items())
        ]
        letters = data.draw(st.lists(st.sampled_from(dead), min_size=1, max_size=4), label="letters")
        if data.draw(sometimes, label="stale"):
            letters.append(letters[0]._replace(dead_at=letters[0].dead_at - 1))
        return number, letters

    def is_letter(self, queue: int, letter: commands.Letter) -> bool:
        return self.model.queues[queue].dead.get((letter.partition, letter.group, letter.offset)) == letter.dead_at

    def pick_places(self, data: st.DataObject) -> tuple[int, list[tuple[int, int]]]:
        """A queue and some (partition, offset) of it, past the end too, none twice."""
        number, queue = self.pick_queue(data)
        partition = data.draw(st.integers(0, queue.config.partitions - 1), label="partition")
        end = len(queue.logs[partition])
        offsets = data.draw(st.lists(st.integers(max(0, end - 8), end + 1), max_size=4, unique=True), label="offsets")
        self.let_time_work()
        return number, [(partition, offset) for offset in offsets]

    def pick_claims(self, data: st.DataObject) -> list[commands.Claim]:
        """Parts of what was leased recently, also twice, also what is not theirs, also with a wrong nonce."""
        self.let_time_work()
        recent = self.claimable[-4:] + [entry for entry in self.claimable if entry[0] in self.model.leases]
        claims = []
        for _ in range(data.draw(st.sampled_from([1, 1, 2, 3]), label="claims")):
            lease, nonce, first, stop = data.draw(st.sampled_from(recent), label="lease")
            cut = data.draw(st.sampled_from(["whole", "whole", "one", "beyond", "forged"]), label="cut")
            if cut == "one":
                first = data.draw(st.integers(first, stop - 1), label="offset")
                stop = first + 1
            elif cut == "beyond":
                first, stop = max(0, first - 1), stop + 2
            claims.append(commands.Claim(lease, nonce + (cut == "forged"), first, stop))
        return claims

    def check_outcomes(self, claims: list[commands.Claim], command: commands.Command, expected) -> None:
        """Per claim and offset: what the model says of a message that the claim really holds, and stale otherwise."""
        predicted, shown = [], set()
        for claim in claims:
            row = []
            for offset in range(claim.first, claim.stop):
                holder = self.model.held(claim.lease, claim.nonce, offset)
                if holder is None or (claim.lease, offset) in shown:
                    row.append((offset, "stale", None))
                else:
                    shown.add((claim.lease, offset))
                    row.append((offset, *expected(*holder)))
            predicted.append(row)
        reply = self.submit(command)
        assert len(reply) == len(claims)
        for row, outcomes in zip(predicted, reply, strict=True):
            answered = [(offset, part.status, part.at) for part in outcomes for offset in range(part.first, part.stop)]
            assert [entry[:2] for entry in answered] == [entry[:2] for entry in row]
            for (_, _, at), (_, _, bounds) in zip(answered, row, strict=True):
                assert (at is None) == (bounds is None)
                assert bounds is None or bounds[0] <= at <= bounds[1]

    def bounds_of_due(self, queue: NaiveQueue, attempt: int, delay_ms: int | None) -> tuple[int, int]:
        policy = queue.config.backoff
        if delay_ms is not None:
            return self.now + delay_ms, self.now + delay_ms
        wait = 0.0 if policy.kind == "none" else float(policy.base_ms)
        for _ in range(attempt - 1):
            if policy.kind == "exponential":
                wait *= policy.factor
        wait = min(wait, policy.cap_ms)
        spread = wait * policy.jitter + 1 if policy.jitter else 0
        return round(self.now + wait - spread), round(self.now + wait + spread)


def expanded(reply: list[commands.LeasedRun]) -> list[tuple[int, int, int]]:
    return [(run.partition, offset, run.attempt) for run in reply for offset in range(run.first, run.first + run.count)]


def seen_state(partition, progress, offset: int, now: int) -> State | None:
    """The state of a message as `state.py` says it is to be read; None for whatever is over."""
    if progress.is_done(offset):
        return None
    if offset in progress.leased:
        return State.LEASED
    retry = progress.retries.get(offset)
    if retry is not None:
        return State.WAITING if retry.due > now else State.READY
    return State.SCHEDULED if offset in partition.scheduled else State.READY


def test_machine_and_model_agree_over_ten_thousand_steps():
    MachineAgainstModel.steps = 0
    run_state_machine_as_test(MachineAgainstModel, settings=settings(max_examples=300, stateful_step_count=50))
    assert MachineAgainstModel.steps >= 10_000
