"""The simulator's own machinery: time that jumps, processes that end, a ledger that objects."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.core import records
from penstock.core.config import QueueConfig, Retention
from penstock.testing.clock import ManualClock, SimulatedMachine
from sim import planted
from sim.ledger import Ledger
from sim.loop import Standstill, VirtualLoop, process_context
from sim.plan import FAULTS, FEATURES, Plan
from sim.sent_messages import Sent
from sim.violation import Violation
from sim.workload import _batch
from sim.world import run

ROOT = Path(__file__).parents[3]


# -- time and processes -----------------------------------------------------------------------------------------------


def test_time_jumps_and_equal_moments_keep_their_order():
    loop = VirtualLoop()
    seen: list[tuple[float, str]] = []

    async def at(delay: float, name: str) -> None:
        await asyncio.sleep(delay)
        seen.append((loop.time(), name))

    async def story() -> None:
        await asyncio.gather(at(3600, "late"), at(1, "a"), at(1, "b"), at(0.5, "first"))

    loop.run_until_complete(story())
    loop.close()
    assert seen == [(1000.5, "first"), (1001.0, "a"), (1001.0, "b"), (4600.0, "late")]


def test_a_dead_process_runs_nothing_more_not_even_its_finally():
    loop = VirtualLoop()
    process = object()
    seen: list[str] = []

    async def inside() -> None:
        try:
            seen.append("began")
            await asyncio.sleep(5)
            seen.append("survived")
        finally:
            seen.append("finally")

    async def story() -> None:
        task = loop.create_task(inside(), context=process_context(process))
        await asyncio.sleep(1)
        loop.end_process(process)
        await asyncio.sleep(10)
        assert not task.done()
        seen.append("after")
        task._log_destroy_pending = False

    loop.run_until_complete(story())
    loop.close()
    assert seen == ["began", "after"]


def test_deadlock_of_the_loop_is_reported():
    loop = VirtualLoop()

    async def story() -> None:
        await loop.create_future()

    task = loop.create_task(story())
    with pytest.raises(Standstill):
        loop.run_forever()
    loop.close()
    task._log_destroy_pending = False


def test_the_machines_wall_clock_steps_and_drifts_and_journal_time_does_not():
    now = 50.0
    machine = SimulatedMachine(lambda: now)
    clock = SystemClock(machine)
    start = clock.now_ms()
    machine.step(-3_600_000)
    now += 10
    assert 9_000 <= clock.now_ms() - start <= 10_000
    machine.set_drift(0.5)
    before = machine.time_ns()
    now += 10
    assert machine.time_ns() - before == 15 * 10**9
    assert machine.monotonic() == now


def test_simulated_clock_moves_on_demand():
    clock = ManualClock(1_000)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic()) == (1_005, 0.005)
    clock.advance_to_ms(900)
    clock.advance_to_ms(2_000)
    assert clock.now_ms() == 2_000


# -- plans and runs ---------------------------------------------------------------------------------------------------


def test_every_seed_leaves_out_about_a_half_and_every_switch_is_used():
    plans = [Plan(seed, 1) for seed in range(200)]
    for name in (*FEATURES, *FAULTS):
        share = sum(plan.has(name) for plan in plans) / len(plans)
        assert 0.1 < share < 0.7, name


def test_a_run_is_a_function_of_its_seed_whatever_the_hash_seed():
    script = "from sim.world import run; print([tuple(run(seed, 1)) for seed in (3, 4)])"
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
        ).stdout
        for number in (0, 1)
    }
    assert len(answers) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_few_seeds(seed):
    result = run(seed, 2)
    assert result.violation is None
    assert result.frames > 10


# -- the ledger objects -----------------------------------------------------------------------------------------------


class Story:
    """A journal written by hand, fed to a ledger."""

    def __init__(self, **config):
        self.sent = [Sent(token, "q", 0) for token in range(9)]
        for sent in self.sent:
            sent.request = (sent,)
        self.ledger = Ledger(self.sent)
        self.offset = 0
        self.feed(records.QueueConfigured(1, 1, "q", QueueConfig(**config)), records.GroupCreated(1, 1, 0, "g", [0]))

    def feed(self, *facts):
        self.ledger.feed(self.ledger.index + 1, b"", facts)

    def published(self, at=2, *tokens):
        tokens = tokens or (self.offset,)
        batch = _batch([self.sent[token] for token in tokens])
        self.feed(records.Published(at, 1, 0, self.offset, 100 + self.offset, batch))
        self.offset += len(tokens)

    def leased(self, at=3, lease=1, offset=0, attempt=1, group=0):
        self.feed(records.Leased(at, 1, 0, group, lease, 7, 1000, [offset, 1, attempt]))


def expect(invariant):
    return pytest.raises(Violation, match=f"^{invariant}: ")


def test_a_message_is_under_one_lease():
    story = Story()
    story.published()
    story.leased()
    with expect("I3"):
        story.leased(at=4, lease=2, attempt=2)


def test_an_acked_message_does_not_come_back():
    story = Story()
    story.published()
    story.leased()
    story.feed(records.Acked(4, 1, 0, 0, 1, [0, 1]))
    with expect("I2"):
        story.leased(at=5, lease=2)


def test_attempts_count_up():
    story = Story()
    story.published()
    with expect("I8"):
        story.leased(attempt=2)


def test_order_is_that_of_offsets():
    story = Story()
    story.published()
    story.published()
    with expect("I5"):
        story.leased(offset=1)


def test_not_before_its_time():
    story = Story(delay_ms=100)
    story.published(at=2)
    with expect("I5"):
        story.leased(at=101)


def test_a_lease_does_not_end_early():
    story = Story()
    story.published()
    story.leased(at=3)
    with expect("I3"):
        story.feed(records.Retried(1002, 1, 0, 0, 1, [0, 1], 1002, "lease_expired"))


def test_given_up_only_beyond_the_budget():
    story = Story(max_retries=3)
    story.published()
    story.leased()
    with expect("I8"):
        story.feed(records.DeadLettered(4, 1, 0, 0, 1, [0, 1], "max_retries"))


def test_stored_once_if_it_can_be_recognised():
    story = Story()
    story.sent[0].client_id = b"c0"
    story.published(2, 0)
    with expect("I6"):
        story.published(3, 0)


def test_a_publish_is_whole():
    story = Story()
    story.sent[0].request = story.sent[1].request = (story.sent[0], story.sent[1])
    with expect("I7"):
        story.published(2, 0)


def test_cancelled_message_was_not_leased():
    story = Story()
    story.published()
    story.leased()
    with expect("I8"):
        story.feed(records.Cancelled(4, 1, 0, [0, 1]))


def test_nothing_expires_early():
    story = Story(ttl_ms=500)
    story.published(at=2)
    with expect("I8"):
        story.feed(records.Expired(501, 1, 0, [0, 1]))


def test_retention_keeps_what_is_young():
    story = Story(retention=Retention("keep", 1000))
    story.published(at=2)
    with expect("I8"):
        story.feed(records.Trimmed(900, 1, 0, 1))


def test_frames_follow_each_other():
    story = Story()
    with expect("I10"):
        story.ledger.feed(story.ledger.index + 2, b"", [])


# -- planted bugs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", planted.names())
def test_every_planted_bug_still_fits_the_source(name):
    texts = planted.changed(name)
    assert texts
    for path, text in texts.items():
        assert text != (ROOT / path).read_text()
        compile(text, path, "exec")


def test_a_bug_is_planted_beside_the_source_not_in_it(tmp_path):
    texts = planted.changed("double_lease")
    before = {path: (ROOT / path).read_text() for path in texts}
    planted.plant("double_lease", tmp_path)
    assert {path: (tmp_path / path).read_text() for path in texts} == texts
    assert {path: (ROOT / path).read_text() for path in texts} == before
    program = "import penstock.core.decide, sim.world; print(penstock.__file__, sim.__file__)"
    path = os.pathsep.join([str(tmp_path / "src"), str(tmp_path)])
    shown = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert shown.stdout.split() == [str(tmp_path / "src/penstock/__init__.py"), str(tmp_path / "sim/__init__.py")]
