"""Tenants take turns; weights, caps, idle tenants."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.order.fair_share import FairShare
from penstock.core.order.fifo import Line
from penstock.core.order.heap import Heap


def everything(_place: int) -> bool:
    return True


def taken(shares: FairShare, count: int) -> list[int | None]:
    shares.begin()
    return [shares.pop(everything, 0) for _ in range(count)]


def test_tenants_take_turns_regardless_of_backlog():
    shares = FairShare(Line, {}, None)
    for place in range(100):
        shares.push(1, place, 0, fresh=True)
    shares.push(2, 200, 0, fresh=True)
    shares.push(3, 300, 0, fresh=True)
    assert taken(shares, 5) == [0, 200, 300, 1, 2]


def test_a_weight_is_so_many_messages_a_turn():
    shares = FairShare(Line, {1: 3}, None)
    for place in range(10):
        shares.push(1, place, 0, fresh=True)
        shares.push(2, 100 + place, 0, fresh=True)
    assert taken(shares, 8) == [0, 1, 2, 100, 3, 4, 5, 101]


def test_a_tenant_at_its_cap_rests_until_something_of_it_is_let_go():
    shares = FairShare(Line, {}, 2)
    for place in range(5):
        shares.push(1, place, 0, fresh=True)
    assert taken(shares, 3) == [0, 1, None]
    shares.leased(1, 2)
    assert taken(shares, 1) == [None]
    shares.let_go(1, 1)
    assert taken(shares, 2) == [2, None]
    assert shares.waiting == 1


@settings(max_examples=60)
@given(
    st.integers(0, 2**32), st.dictionaries(st.integers(0, 4), st.integers(1, 4)), st.sampled_from([None, 1, 2, 5])
)  # fmt: skip
def test_turns_are_those_of_a_row_of_lists(seed, weights, cap):
    """Against lists: the row of tenants, what each has waiting, what each has in flight. No entry is stale here."""
    dice, shares = Random(seed), FairShare(Line, weights, cap)
    row: deque[int] = deque()
    resting, queues, flying, left, number = set(), {tenant: [] for tenant in range(5)}, Counter(), 0, 0
    for _ in range(200):
        act = dice.random()
        if act < 0.45:
            tenant, number = dice.randrange(5), number + 1
            shares.push(tenant, number, 0, fresh=True)
            queues[tenant].append(number)
            if tenant in resting:
                resting.remove(tenant)
                row.append(tenant)
            elif tenant not in row:
                row.append(tenant)
        elif act < 0.8:
            expected = None
            while row and expected is None:
                tenant = row[0]
                left = left or weights.get(tenant, 1)
                if queues[tenant] and cap is not None and flying[tenant] >= cap:
                    resting.add(row.popleft())
                    left = 0
                elif not queues[tenant]:
                    row.popleft()
                    left = 0
                else:
                    expected = queues[tenant].pop(0)
                    flying[tenant] += 1
                    left -= 1
                    if not left:
                        row.rotate(-1)
            assert taken(shares, 1) == [expected]
            if expected is not None:
                shares.leased(tenant, 1)
        elif flying:
            tenant = dice.choice(sorted(flying))
            shares.let_go(tenant, 1)
            flying[tenant] -= 1
            flying += Counter()
            if tenant in resting:
                resting.remove(tenant)
                row.append(tenant)
        assert shares.in_flight == dict(flying)
        assert len(shares) == sum(map(len, queues.values()))


def test_swept_and_stale_entries_leave_the_count():
    shares = FairShare(lambda: Heap("min", 1, 1), {}, None)
    for tenant in range(3):
        shares.push_all(tenant, [place << 8 for place in range(100 * tenant, 100 * tenant + 100)], [0] * 100)
    alive = {150 << 8}
    for _ in range(9):
        shares.sweep(alive.__contains__)
    assert len(shares) == sum(len(order) for order in shares.orders()) == sum(1 for _ in shares) < 10
    assert shares.pop(alive.__contains__, 0) == 150 << 8
    assert shares.pop(alive.__contains__, 0) is None and len(shares) == 0
