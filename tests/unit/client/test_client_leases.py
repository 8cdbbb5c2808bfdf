"""The leases of a consumer: spans, pending acks, renewal. No clock, no network."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.batch import Batch, build
from penstock.client.consume.messages import LeasedBatch, LeasedMessage
from penstock.client.consume.renewal import LeaseKeeper, renew_at
from penstock.client.consume.settling import PendingAcks
from penstock.client.messages.leased import LeasedRun, ReceiptSpan, common, error_text, merged, stale_error, stale_spans
from penstock.ids import ulid_text
from penstock.wire.delivery import Run, Settled

SPANS = st.lists(
    st.builds(
        lambda prefix, first, more: ReceiptSpan(prefix, first, first + more),
        st.sampled_from(["r1.0.1.a.", "r1.0.2.b."]),
        st.integers(0, 30),
        st.integers(0, 5),
    ),
    max_size=8,
)


def offsets(spans) -> set[tuple[str, int]]:
    return {(span.prefix, at) for span in spans for at in range(span.first, span.last + 1)}


NO_SESSION: Any = None
"""These tests settle nothing at a server."""


def run_of(
    count: int, *, offset: int = 100, receipt: str | None = "r1.0.1.a.", lease_ms: int = 8_000
) -> LeasedRun:  # fmt: skip
    frame = build([b"%d" % n for n in range(count)])
    meta = Run("q", 0, offset, count, ulid_text(1), 0, len(frame), 1, receipt, lease_ms=lease_ms)
    return LeasedRun(meta, Batch.open(frame))


@given(SPANS)
def test_merging_keeps_every_message_and_leaves_no_neighbours(spans):
    result = merged(spans)
    assert offsets(result) == offsets(spans)
    assert sum(span.size for span in result) == len(offsets(spans))
    for left, right in pairwise(result):
        assert left.prefix != right.prefix or left.last + 1 < right.first


@given(SPANS, SPANS)
def test_common_is_the_intersection(left, right):
    assert offsets(common(left, right)) == offsets(left) & offsets(right)


def test_receipts_name_one_message_or_a_range():
    assert [ReceiptSpan("r1.0.1.a.", 5, 5).receipt, ReceiptSpan("r1.0.1.a.", 5, 9).receipt] == [
        "r1.0.1.a.5",
        "r1.0.1.a.5-9",
    ]


def test_stale_results_become_spans_and_an_error_that_counts():
    results = [Settled("r1.0.1.a.5-9", "stale"), Settled("r1.0.1.a.4", "acked"), Settled("r1.0.1.a.1", "stale")]
    lost = stale_spans(results)
    assert lost == [ReceiptSpan("r1.0.1.a.", 5, 9), ReceiptSpan("r1.0.1.a.", 1, 1)]
    error = stale_error(lost, of=10)
    assert "6 of 10" in str(error) and error.details == {"receipts": ["r1.0.1.a.5-9", "r1.0.1.a.1"]}


def test_pending_acks_travel_together_as_few_receipts():
    acks: PendingAcks[str] = PendingAcks()
    assert not acks
    for at in (3, 1, 2, 9):
        acks.add([ReceiptSpan("p.", at, at)], f"caller {at}")
    batch = acks.take()
    assert batch.receipts == ["p.1-3", "p.9"] and len(batch.entries) == 4 and not acks


def test_acks_of_a_loop_grow_together():
    acks: PendingAcks[str] = PendingAcks()
    for offset in (1, 2, 3, 7, 8):
        acks.add_one("p.", offset)
    acks.add_one("q.", 9)
    acks.add([ReceiptSpan("p.", 4, 6)], "caller")
    assert acks
    batch = acks.take()
    assert batch.receipts == ["p.1-8", "q.9"] and not acks
    assert [waiter for _, waiter in batch.entries] == [None, None, "caller", None]


def test_one_call_carries_no_more_receipts_than_the_api_takes():
    acks: PendingAcks[None] = PendingAcks()
    for at in range(0, 2 * limits.RECEIPTS_MAX + 10, 2):
        acks.add([ReceiptSpan("p.", at, at)], None)
    assert len(acks.take().receipts) == limits.RECEIPTS_MAX
    assert len(acks.take().receipts) == 5 and not acks


def test_buffered_run_holds_messages_not_handed_out():
    run = run_of(5)
    assert run.spans() == [ReceiptSpan("r1.0.1.a.", 100, 104)]
    run.next_row = 3
    assert run.spans() == [ReceiptSpan("r1.0.1.a.", 103, 104)]
    run.lost([ReceiptSpan("r1.0.1.a.", 103, 103), ReceiptSpan("other.", 104, 104)])
    assert run.spans() == [ReceiptSpan("r1.0.1.a.", 104, 104)]
    run.next_row = 5
    assert run.spans() == []


def test_batch_and_its_messages_agree_on_settled_state():
    run = run_of(5)
    batch: LeasedBatch[LeasedMessage] = LeasedBatch([run], NO_SESSION)
    message = LeasedMessage(run, 2, NO_SESSION)
    message.mark(message.open_spans(), settled=True)
    assert message.settled and LeasedMessage(run, 2, NO_SESSION).settled and not message.open_spans()
    assert batch.open_spans() == [ReceiptSpan("r1.0.1.a.", 100, 101), ReceiptSpan("r1.0.1.a.", 103, 104)]
    batch.mark(batch.open_spans(), settled=True)
    assert batch.settled and LeasedMessage(run, 0, NO_SESSION).settled
    batch.mark([ReceiptSpan("r1.0.1.a.", 100, 100)], settled=False)
    assert not LeasedMessage(run, 0, NO_SESSION).settled and not batch.settled


@given(SPANS, st.lists(st.tuples(st.sampled_from(["r1.0.1.a.", "r1.0.2.b."]), st.integers(1, 4)), max_size=12))
def test_in_a_batch_of_many_runs_each_finds_its_own(spans, shapes):
    """Of two leases, with gaps between the runs, in the order in which they came."""
    runs, at = [], {"r1.0.1.a.": 0, "r1.0.2.b.": 3}
    for prefix, count in shapes:
        runs.append(run_of(count, offset=at[prefix], receipt=prefix))
        at[prefix] += count + count % 2
    batch: LeasedBatch[LeasedMessage] = LeasedBatch(runs[::-1], NO_SESSION)
    batch.mark(spans, settled=True)
    batch.lost(spans)
    for run in runs:
        wanted = {at - run.meta.offset for prefix, at in offsets(spans) if prefix == run.meta.receipt}
        assert run.settled_rows == run.lost_rows == wanted & set(range(run.batch.count))
    batch.mark(spans, settled=False)
    assert not any(run.settled_rows for run in runs)


def test_a_queue_that_delivers_at_most_once_has_nothing_to_settle():
    run = run_of(3, receipt=None)
    message = LeasedMessage(run, 0, NO_SESSION)
    assert message.settled and message.receipt is None and not message.open_spans() and not run.spans()
    assert LeasedBatch([run], NO_SESSION).settled


def test_the_keeper_renews_at_half_of_the_lease_and_shares_calls():
    keeper = LeaseKeeper()
    early, late = run_of(3), run_of(2, offset=103)
    early.renew_at, late.renew_at = renew_at(0.0, early.lease_ms), renew_at(0.5, late.lease_ms)
    assert keeper.next_at() is None
    keeper.add(early)
    keeper.add(late)
    assert keeper.next_at() == 4.0
    assert keeper.due(2.9) == []
    (due,) = keeper.due(4.0)
    assert due == (8_000, [early, late], [ReceiptSpan("r1.0.1.a.", 100, 104)])
    keeper.renewed(due, 4.0, [Settled("r1.0.1.a.100-104", "extended")])
    assert keeper.next_at() == 8.0
    keeper.not_renewed(due, 8.0)
    assert early.renew_at == 9.0


def test_leases_of_different_lengths_are_renewed_by_different_calls():
    keeper = LeaseKeeper()
    long, short = run_of(3), run_of(2, offset=103, lease_ms=400)
    for run in (long, short):
        run.renew_at = renew_at(0.0, run.lease_ms)
        keeper.add(run)
    assert keeper.next_at() == 0.2
    assert keeper.due(0.2) == [(400, [short], [ReceiptSpan("r1.0.1.a.", 103, 104)])]
    assert [due.lease_ms for due in keeper.due(4.0)] == [8_000, 400]
    assert LeasedBatch([long, short], NO_SESSION).lease_ms == 400


def test_renewal_marks_lost_rows_and_drops_empty_holders():
    keeper = LeaseKeeper()
    run = run_of(4)
    message = LeasedMessage(run, 0, NO_SESSION)
    run.next_row = 1
    for holder in (run, message):
        holder.renew_at = 0.0
        keeper.add(holder)
    (due,) = keeper.due(0.0)
    assert due.spans == [ReceiptSpan("r1.0.1.a.", 100, 103)]
    keeper.renewed(due, 0.0, [Settled("r1.0.1.a.100-101", "stale"), Settled("r1.0.1.a.102-103", "extended")])
    assert message.lease_lost and run.lost_rows == {0, 1}
    assert keeper.due(100.0) == [(8_000, [run], [ReceiptSpan("r1.0.1.a.", 102, 103)])]
    keeper.remove(run)
    assert keeper.next_at() is None


def test_an_error_is_described_briefly():
    assert error_text(ValueError("no")) == "ValueError: no"
    assert error_text(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(error_text(ValueError("x" * 5000))) == limits.ERROR_CHARS_MAX
