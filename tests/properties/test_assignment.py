"""The assignment of partitions: balanced, sticky, the same every time; and no cheaper one exists."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.state.assignment import NO_MEMBER, assign

NAMES = [f"m{number}" for number in range(40)]


@st.composite
def situations(draw, members_max: int = 40, partitions_max: int = 64):
    members = draw(st.lists(st.sampled_from(NAMES[:members_max]), unique=True))
    owners = draw(st.lists(st.sampled_from([NO_MEMBER, *NAMES[:members_max]]), min_size=1, max_size=partitions_max))
    return members, owners


def moves(owners, assigned):
    return sum(before != after for before, after in zip(owners, assigned, strict=True))


@given(situations())
def test_everything_is_assigned_and_shares_differ_by_one_at_most(situation):
    members, owners = situation
    assigned = assign(members, owners)
    assert len(assigned) == len(owners)
    if not members:
        assert assigned == [NO_MEMBER] * len(owners)
        return
    assert set(assigned) <= set(members)
    loads = [assigned.count(member) for member in members]
    assert max(loads) - min(loads) <= 1


@given(situations())
def test_it_is_the_same_every_time_and_stays_once_reached(situation):
    members, owners = situation
    assigned = assign(members, owners)
    assert assign(list(members), list(owners)) == assigned
    assert assign(members, assigned) == assigned


@given(situations())
def test_only_members_above_their_share_give_up_partitions(situation):
    members, owners = situation
    assigned = assign(members, owners)
    for member in members:
        had = {partition for partition, owner in enumerate(owners) if owner == member}
        has = {partition for partition, owner in enumerate(assigned) if owner == member}
        assert had <= has or has <= had, "a member that gives a partition up gets no new one"
        if had - has:
            assert len(has) >= len(owners) // len(members)


@given(situations(members_max=3, partitions_max=5))
def test_no_balanced_assignment_has_fewer_moves(situation):
    members, owners = situation
    if not members:
        return
    cheapest = min(
        moves(owners, other)
        for other in product(members, repeat=len(owners))
        if max(map(other.count, members)) - min(map(other.count, members)) <= 1
    )
    assert moves(owners, assign(members, owners)) == cheapest


@given(st.integers(1, 64), st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES[:12])), max_size=40))
def test_join_or_leave_moves_at_most_one_share(partitions, steps):
    members: list[str] = []
    owners = [NO_MEMBER] * partitions
    for joins, name in steps:
        if joins == (name in members):
            continue
        members = [*members, name] if joins else [member for member in members if member != name]
        after = assign(members, owners)
        # The share of the new member; or of the one that left, which may be larger by one than a share afterwards.
        share = -(-partitions // len(members)) if joins else owners.count(name)
        assert moves(owners, after) <= share
        owners = after
