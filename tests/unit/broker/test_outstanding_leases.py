"""Outstanding leases of a stream: exact counts, bounded memory; and the split of gRPC replies by size."""

from __future__ import annotations

from penstock import limits
from penstock.batch import Batch, build
from penstock.broker.metering import HeldMessages
from penstock.broker.outstanding import OutstandingLeases
from penstock.broker.types import DeliveredRun
from penstock.pending import PendingReply
from penstock.transports.grpc.delivery import messages_of, part_of, receipts_of, replies
from penstock.wire.delivery import Settled, UniformResults

PREFIX = "r1.0.7.00000000000000ff."


def run_of(count, *, offset=0, receipt=PREFIX, deadline=1_000, size=1, first=0):
    batch = Batch.open(build([b"%0*d" % (size, first + row) for row in range(count)], kind=0))
    return DeliveredRun("a/b/c", 0, offset, count, 5 << 80, 1, batch, 1, receipt, deadline)


def test_settled_messages_are_not_outstanding():
    held = OutstandingLeases()
    held.add([run_of(10), run_of(5, offset=10)], 0)
    assert len(held) == 15 and held.receipts() == [f"{PREFIX}0-14"]
    held.settle([Settled(f"{PREFIX}0-4", "acked"), Settled(f"{PREFIX}7", "retrying"), Settled(f"{PREFIX}8", "stale")])
    assert len(held) == 9
    held.settle([Settled(f"{PREFIX}9", "extended", deadline_at_ms=9_000), Settled("garbage", "stale")])
    assert len(held) == 9
    held.settle([Settled(f"{PREFIX}{offset}", "dead_lettered") for offset in (5, 6, 8, 9, 10, 11, 12, 13, 14)])
    assert len(held) == 0 and held.receipts() == []


def test_at_most_once_deliveries_are_not_outstanding():
    held = OutstandingLeases()
    held.add([run_of(10, receipt=None, deadline=None)], 0)
    assert held.receipts() == []


def test_expired_leases_are_dropped():
    held = OutstandingLeases()
    for number in range(5_000):
        held.add([run_of(1, receipt=f"r1.0.{number}.00000000000000ff.", deadline=number)], number)
    assert len(held) <= 2_001


def test_extended_lease_stays_outstanding_until_its_new_deadline():
    held = OutstandingLeases()
    held.add([run_of(1, deadline=10)], 0)
    held.settle([Settled(f"{PREFIX}0", "extended", deadline_at_ms=10**9)])
    for number in range(3_000):
        held.add([run_of(1, receipt=f"r1.0.{number + 100}.00000000000000ff.", deadline=number)], number)
    assert f"{PREFIX}0-0" in held.receipts()


def test_messages_of_expired_leases_are_not_counted():
    held = OutstandingLeases()
    for number in range(10):
        held.add([run_of(number + 1, receipt=f"r1.0.{number}.00000000000000ff.", deadline=100 * number)], 0)
    held.settle([Settled("r1.0.2.00000000000000ff.0", "extended", deadline_at_ms=5_000)])
    held.drop_expired(500)
    assert len(held) == 3 + sum(range(6, 11)) and len(held.receipts()) == 6
    held.drop_expired(4_999)
    assert len(held) == 3
    held.drop_expired(5_001)
    assert len(held) == 0 and not held


def test_principals_and_queues_without_leases_are_forgotten(monkeypatch):
    monkeypatch.setattr(limits, "ADDRESSES_TRACKED_MAX", 20)
    held = HeldMessages(lambda receipts: [0] * len(receipts))
    for number in range(500):
        waiting = PendingReply()
        held.promise(waiting, 5, f"jwt:{number}", "queue a/b/c")
        held.end_promise(waiting, f"jwt:{number}", "queue a/b/c")
        held.add(f"jwt:{number}", [run_of(1)])
    assert not held._promised and len(held._leases) <= 40


# -- sizes of replies ---------------------------------------------------------------------------------------------


def test_large_reply_is_split():
    runs = [run_of(100, size=1_000), run_of(3, offset=100, size=50_000), run_of(1, offset=103, size=90_000)]
    pieces = list(replies(runs, 80_000))
    assert [message.offset for piece in pieces for message in messages_of(piece)] == list(range(104))
    payloads = [message.payload for piece in pieces for message in messages_of(piece)]
    assert payloads == [message.payload for message in messages_of(runs)]
    assert all(sum(len(run.batch.frame) for run in piece) <= 80_000 for piece in pieces[:-1])
    assert [run.offset for run in pieces[-1]] == [103], "one message is never split"


def test_small_runs_share_a_reply():
    runs = [run_of(10, offset=10 * number) for number in range(20)]
    assert [len(piece) for piece in replies(runs)] == [20]
    assert list(replies([])) == []


def test_part_of_run_has_own_offset_id_and_receipt():
    part = part_of(run_of(10, offset=50), 3, 7)
    assert (part.offset, part.count, part.id - (5 << 80)) == (53, 4, 3)
    assert part.batch.payloads() == [b"3", b"4", b"5", b"6"]
    assert receipts_of([part]) == [f"{PREFIX}53-56"]


def test_settle_counts_the_messages_that_it_ends():
    held = OutstandingLeases()
    held.add([run_of(10, deadline=100)], 0)
    ones = [f"{PREFIX}{offset}" for offset in range(3)]
    assert held.settle(UniformResults(ones, "acked", None, None)) == 3
    assert held.settle(UniformResults(ones, "stale", None, None), 50) == 0  # settled before
    assert held.settle([Settled(f"{PREFIX}3", "stale")], 101) == 1  # its lease has expired
    assert held.settle([Settled(f"{PREFIX}4-9", "released"), Settled(f"{PREFIX}9", "acked")]) == 6
    assert not held
