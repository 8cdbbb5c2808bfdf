"""Journal time on top of clocks that misbehave."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import clock

SECOND_NS = 10**9
EPOCH_NS = 1_760_000_000 * SECOND_NS


class Machine:
    """The two clocks of a machine: a monotonic one, and the wall clock, which can be set."""

    def __init__(self) -> None:
        self.real_ns = 77 * SECOND_NS
        self.wall_ns = EPOCH_NS

    def monotonic_ns(self) -> int:
        return self.real_ns

    def time_ns(self) -> int:
        return self.wall_ns

    def monotonic(self) -> float:
        return self.real_ns / 1e9

    def run(self, elapsed_ns: int, *, drift: float = 0.0) -> None:
        self.real_ns += elapsed_ns
        self.wall_ns += round(elapsed_ns * (1 + drift))


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(clock, "time", made)
    return made


def run_until_agreed(machine: Machine, subject: clock.SystemClock, *, limit_s: int) -> int:
    """Seconds until journal time and the wall clock are within a few milliseconds; asks every second."""
    for second in range(limit_s):
        machine.run(SECOND_NS)
        if abs(subject.now_ms() - machine.wall_ns // 10**6) <= 5:
            return second + 1
    raise AssertionError(f"still {subject.now_ms() - machine.wall_ns // 10**6} ms apart after {limit_s} s")


def test_it_starts_at_the_wall_clock_and_follows_it(machine):
    subject = clock.SystemClock()
    for _ in range(100):
        machine.run(SECOND_NS // 7)
        assert subject.now_ms() == machine.wall_ns // 10**6


@pytest.mark.parametrize("step_s", [-3600, -60, -1, 1, 60, 3600])
def test_a_step_is_closed_at_a_tenth_of_real_time_without_going_back_or_jumping(machine, step_s):
    subject = clock.SystemClock()
    before = subject.now_ms()
    machine.wall_ns += step_s * SECOND_NS
    assert subject.now_ms() == before, "setting the wall clock alone does nothing"
    for _ in range(1000):
        machine.run(SECOND_NS // 100)
        now = subject.now_ms()
        assert before <= now <= before + 12, "ten milliseconds of real time are nine to eleven of journal time"
        before = now
    took = run_until_agreed(machine, subject, limit_s=40_000 if abs(step_s) > 60 else 700)
    assert took >= abs(step_s) * 10 - 20


def test_after_slewing_back_it_is_never_ahead_of_the_wall_clock(machine):
    """A message that is due by this clock must be due by all clocks."""
    subject = clock.SystemClock()
    machine.wall_ns -= 2 * SECOND_NS
    run_until_agreed(machine, subject, limit_s=60)
    for _ in range(1000):
        machine.run(SECOND_NS // 50)
        assert subject.now_ms() <= machine.wall_ns // 10**6 + 1


def test_a_suspended_machine_catches_up_slowly(machine):
    """During suspend the wall clock runs and the monotonic clock does not: leases do not end by it."""
    subject = clock.SystemClock()
    before = subject.now_ms()
    machine.wall_ns += 3600 * SECOND_NS
    machine.run(SECOND_NS)
    assert subject.now_ms() - before <= 1100


@pytest.mark.parametrize("drift", [-0.05, -0.0001, 0.0001, 0.05])
def test_a_drifting_wall_clock_is_followed(machine, drift):
    subject = clock.SystemClock()
    for _ in range(5000):
        machine.run(SECOND_NS // 10, drift=drift)
        assert abs(subject.now_ms() - machine.wall_ns // 10**6) <= 20


def test_a_journal_from_the_future_is_continued_not_contradicted(machine):
    subject = clock.SystemClock()
    later = subject.now_ms() + 86_400_000
    subject.advance_to_ms(later)
    assert subject.now_ms() == later
    machine.run(10 * SECOND_NS)
    assert later + 9_000 <= subject.now_ms() <= later + 10_000
    subject.advance_to_ms(5)
    assert subject.now_ms() >= later + 9_000


@given(st.data())
def test_never_backwards_and_a_lease_never_ends_early(data):
    """Whatever is done to the wall clock: a lease of L ms lasts at least L / 1.1 ms of real time."""
    machine = Machine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "time", machine)
        subject = clock.SystemClock()
        history = [(machine.real_ns, subject.now_ms())]
        for _ in range(data.draw(st.integers(1, 40))):
            step_s = data.draw(st.sampled_from([0, 0, 0, -31_536_000, -86_400, -3600, -1, 1, 3600, 86_400, 31_536_000]))
            machine.wall_ns = max(0, machine.wall_ns + step_s * SECOND_NS)
            machine.run(data.draw(st.integers(0, 60 * SECOND_NS)))
            history.append((machine.real_ns, subject.now_ms()))
        for (real, journal), (later_real, later_journal) in pairwise(history):
            assert journal <= later_journal
            elapsed_ms = (later_real - real) / 10**6
            assert later_journal - journal <= elapsed_ms * 1.1 + 1
            assert later_journal - journal >= elapsed_ms * 0.9 - 1
