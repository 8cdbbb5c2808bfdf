"""Receipts and claims: whatever is shown, exactly what was said is claimed, and every receipt gets its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.receipts import Claims
from penstock.core.commands import Outcome
from penstock.ids import receipt_prefix
from penstock.wire.delivery import Settled, results_json

LEASES = [receipt_prefix(0, lease, nonce) for lease, nonce in ((1, 0xA), (2, 0xB), (12, 0xA))]

ODD_NUMBERS = (
    "", "07", " 7", "7 ", "7\n", "+7", "-0", "-1", "7.0", "7e0", "7,8", ",", "1_0", "9" * 18, "9" * 30, "\ud800",
)  # fmt: skip
"""Written in another way, or several, or none."""

offsets = st.integers(0, 12)
honest = st.tuples(st.sampled_from(LEASES), offsets).map(lambda pair: f"{pair[0]}{pair[1]}")
spans = st.tuples(st.sampled_from(LEASES), offsets, st.integers(0, 9)).map(lambda t: f"{t[0]}{t[1]}-{t[1] + t[2]}")
forged = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", ".", "-", "r1.0.1.a", "r1.0.1.a.", "r1.0.1.a.-1", "r1.0.1.a.9-2", "r1.0.x.a.1", "r9.0.1.a.1"]),
    st.tuples(honest, st.text(min_size=1, max_size=3)).map("".join).filter(lambda text: not text[-1].isdigit()),
    # Receipts glued together by what might separate them.
    st.tuples(honest, st.sampled_from(["\n", ".", ",", "-"]), honest).map("".join),
    st.tuples(st.sampled_from(LEASES), st.sampled_from(ODD_NUMBERS)).map("".join),
)
counting_up = st.tuples(st.sampled_from(LEASES), offsets, st.integers(1, 9)).map(
    lambda t: [f"{t[0]}{offset}" for offset in range(t[1], t[1] + t[2])]
)
with_gaps = st.tuples(st.sampled_from(LEASES), st.lists(offsets, min_size=2, max_size=12)).map(
    lambda t: [f"{t[0]}{offset}" for offset in t[1]]
)
mixed_up = counting_up.flatmap(st.permutations)
with_strangers = st.tuples(
    st.sampled_from(LEASES), st.lists(st.sampled_from(["1", "2", "8", *ODD_NUMBERS]), min_size=2, max_size=6)
).map(lambda t: [f"{t[0]}{text}" for text in t[1]])
lists = st.one_of(
    with_strangers,
    counting_up,
    mixed_up,
    with_gaps,
    st.lists(st.one_of(honest, spans, forged), max_size=12),
    st.tuples(counting_up, st.lists(st.one_of(honest, forged), max_size=2), counting_up).map(
        lambda parts: [*parts[0], *parts[1], *parts[2]]
    ),
)


def meant(text: str) -> tuple[int, int, list[int]] | None:
    """(lease, nonce, offsets) of one receipt, by the grammar and nothing else."""
    parts = text.split(".")
    if len(parts) != 5 or parts[0] != "r1":
        return None
    try:
        _, lease, nonce = int(parts[1]), int(parts[2]), int(parts[3], 16)
    except ValueError:
        return None
    first, dash, last = parts[4].partition("-")
    numbers = [first, last] if dash else [first, first]
    if not all(number.isascii() and number.isdigit() for number in numbers) or int(numbers[0]) > int(numbers[1]):
        return None
    return lease, nonce, list(range(int(numbers[0]), int(numbers[1]) + 1))


@given(lists)
def test_claims_say_what_the_receipts_say_in_their_order(receipts):
    claimed = [
        (claim.lease, claim.nonce, offset) for claim in Claims(receipts).claims for offset in range(claim[2], claim[3])
    ]
    expected = []
    for text in receipts:
        said = meant(text)
        expected += [(0, 0, 0)] if said is None else [(said[0], said[1], offset) for offset in said[2]]
    assert claimed == expected


@given(lists, st.data())
def test_every_receipt_gets_its_own_outcome(receipts, data):
    """Outcomes are drawn per offset; a receipt of one offset must get exactly its own, a range one per equal part."""
    claims = Claims(receipts)
    fate = {}
    outcomes = []
    for claim in claims.claims:
        parts: list[Outcome] = []
        for offset in range(claim.first, claim.stop):
            status = data.draw(st.sampled_from(["acked", "stale"]))
            fate.setdefault((claim.lease, claim.nonce, offset), []).append(status)
            if parts and parts[-1].status == status:
                parts[-1] = parts[-1]._replace(stop=offset + 1)
            else:
                parts.append(Outcome(offset, offset + 1, status))
        outcomes.append(parts)
    results = claims.results(outcomes)
    answered = iter(results)
    for text in receipts:
        said = meant(text)
        if said is None or len(said[2]) == 1:
            result = next(answered)
            assert result.receipt == text
            key = (0, 0, 0) if said is None else (said[0], said[1], said[2][0])
            assert result.status == fate[key].pop(0)
            continue
        lease, nonce, wanted = said
        while wanted:
            result = next(answered)
            part = meant(result.receipt)
            assert part is not None
            assert part[:2] == (lease, nonce)
            assert wanted[: len(part[2])] == part[2]
            assert {fate[lease, nonce, offset].pop(0) for offset in part[2]} == {result.status}
            wanted = wanted[len(part[2]) :]
    assert next(answered, None) is None


@pytest.mark.parametrize("middle", [[7, 6], [6, 6], [6, 8], [60, 7]])
def test_a_batch_that_only_begins_and_ends_in_order_is_read_one_by_one(middle):
    claims = Claims([f"{LEASES[0]}{offset}" for offset in (4, 5, *middle, 8)]).claims
    assert [offset for claim in claims for offset in range(claim.first, claim.stop)] == [4, 5, *middle, 8]


def test_a_batch_of_one_lease_is_one_claim():
    receipts = [f"{LEASES[0]}{offset}" for offset in range(95, 10_095)]
    assert [tuple(claim) for claim in Claims(receipts).claims] == [(1, 0xA, 95, 10_095)]


@pytest.mark.parametrize("status", ["retrying", "extended"])
def test_the_time_of_an_outcome_goes_into_the_field_of_its_kind(status):
    result = Claims([f"{LEASES[0]}5"]).results([[Outcome(5, 6, status, 1234)]])[0]
    assert (result.due_at_ms, result.deadline_at_ms) == ((1234, None) if status == "retrying" else (None, 1234))


@pytest.mark.parametrize("outcome", [("acked", None), ("retrying", 5), ("extended", 6)])
def test_the_results_of_a_whole_lease_are_like_any_others(outcome):
    receipts = [f"{LEASES[0]}{offset}" for offset in range(8, 12)]
    status, at = outcome
    results = Claims(receipts).results([[Outcome(8, 12, status, at)]])
    times = {"extended": {"deadline_at_ms": at}, "retrying": {"due_at_ms": at}}.get(status, {})
    one_by_one = [Settled(receipt, status, **times) for receipt in receipts]
    assert list(results) == one_by_one
    assert (len(results), results[-1], results[1:3]) == (4, one_by_one[3], one_by_one[1:3])
    assert results_json(results) == results_json(one_by_one)
