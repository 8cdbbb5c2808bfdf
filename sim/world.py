"""One run: a machine, a broker process that dies and comes back, clients, a network, and what all of it must obey."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import NamedTuple

from penstock import limits
from penstock.core import ranges
from penstock.runtime import sealing, upkeep
from sim.checkers import Checkers
from sim.ending import Ending
from sim.ledger import Ledger
from sim.loop import Standstill, VirtualLoop, later
from sim.machine import Machine
from sim.network import Network
from sim.observed import History
from sim.plan import Plan
from sim.sent import Sent
from sim.violation import Violation
from sim.workload import Workload

DRAIN_S = 30.0
"""After the last fault, and after the last message has come due, everything is finished within this time (I12)."""
WIRE_EMPTY_S = 18.0
"""No request is longer on its way than this."""
FAR_S = 5 * 3600.0
"""Later than the furthest delay that a client asks for."""
STATE_CHECK_EVERY_S = 25.0


class Result(NamedTuple):
    seed: int
    seconds: float
    """Simulated."""
    violation: str | None
    """The invariant and what broke it."""
    starts: int
    requests: int
    frames: int
    deliveries: int
    published: int
    digest: str
    """Of the final state: equal on every machine and under every hash seed."""


class World:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.loop = VirtualLoop()
        self.began_s = self.loop.time()
        self.violation: Violation | None = None
        sent: list[Sent] = []
        self.ledger = Ledger(sent)
        self.history = History(self.ledger, self.loop.time, self.report)
        self.checkers = Checkers(plan, self.ledger)
        self.machine = Machine(self.loop, plan, self.history, self.checkers, self.report)
        self.checkers.live_state = self.machine.state
        self.network = Network(self.loop, plan, self.machine)
        self.machine.network = self.network
        self.workload = Workload(self.loop, plan, self.network, self.ledger, sent)
        self._rng = plan.rng("world")
        self._lulls = plan.rng("asleep")

    def run(self) -> Result:
        asyncio.set_event_loop(self.loop)
        restore = self._scale_down()
        try:
            main = self.loop.create_task(self._main())
            main.add_done_callback(lambda _: self.loop.stop())
            try:
                self.loop.run_forever()
            except Standstill:
                self.report(Violation("I12", "everybody waits for somebody else"))
            if self.violation is None and main.done() and (error := main.exception()) is not None:
                raise error
        finally:
            asyncio.set_event_loop(None)
            restore()
            self._abandon()
        return Result(
            self.plan.seed, min(self.loop.time() - self.began_s, self.plan.seconds),
            None if self.violation is None else str(self.violation), self.machine.starts, self.machine.requests,
            self.history.frames, self.checkers.deliveries, len(self.workload.sent),
            self.history.digest_at(self.ledger.now_ms) if self.violation is None else "",
        )  # fmt: skip

    def _scale_down(self) -> Callable[[], None]:
        """Numbers that are made for millions, as small as this world; returns how to undo it."""
        sizes = {
            (ranges, "CRUMBS"): self.plan.crumbs,
            (sealing, "WEIGH_PIECES"): self.plan.portion,
            (sealing, "CHANGE_PIECES"): self.plan.portion,
            (sealing, "SEGMENT_PIECES_MAX"): 4 * self.plan.portion,
            (limits, "DISK_RESERVE_BYTES"): self.plan.reserve_bytes,
            (upkeep, "RECLAIM_BYTES"): self.plan.reclaim_bytes,
            (upkeep, "RECLAIM_WHEN_SHORT_BYTES"): self.plan.reclaim_bytes // 4,
            (upkeep, "ROLL_BYTES_MIN"): self.plan.reclaim_bytes // 4,
        }
        before = {place: getattr(*place) for place in sizes}

        def put(values: dict[tuple[ModuleType, str], int]) -> None:
            for (module, name), value in values.items():
                setattr(module, name, value)

        put(sizes)
        return partial(put, before)

    def _abandon(self) -> None:
        """The run is over. Whoever still waits for something does not get it, and is not to complain."""
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.close()

    def report(self, violation: Violation) -> None:
        """The first one counts; nothing that follows from it is of interest."""
        if self.violation is None:
            self.violation = violation
        self.loop.stop()

    # -- the story ----------------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        until_s = self.began_s + self.plan.faulty_seconds
        self.machine.start()
        await self.workload.start(until_s)
        faults = asyncio.ensure_future(self.machine.faults.run(until_s))
        for at_s, length_s in self.plan.lulls:
            later(self.loop, self.began_s + at_s - self.loop.time(), self._fall_asleep, length_s)
        while self.loop.time() < until_s:
            await asyncio.sleep(STATE_CHECK_EVERY_S * (0.5 + self._rng.random()))
            self._check_process()
        await faults
        self.machine.faults.heal()
        self.network.heal()
        self.workload.behave()
        try:
            await self._drain()
            await Ending(self.loop, self.plan, self.machine, self.network, self.ledger, self.history).check()
        except Violation as violation:
            self.report(violation)

    def _fall_asleep(self, length_s: float) -> None:
        """Nobody asks for anything for hours. Faults sleep as well, but for one in the middle of the night."""
        self.loop.lull(length_s)
        if self._lulls.random() < 0.5:
            later(self.loop, length_s * self._lulls.random(), self.machine.faults.strike)

    def _check_process(self) -> None:
        process = self.machine.process
        if process is not None and process.broker is not None:
            process.check_housekeeper()
            self.loop.create_task(process.check_state(), context=process.context)

    async def _drain(self) -> None:
        """I12: with good weather and diligent consumers everything comes to rest."""
        healed_s = waiting_s = self.loop.time()
        left = redriven = 0
        while True:
            # Whoever still waits after a minute waits for something far away.
            await asyncio.sleep(1.0 if self.loop.time() < healed_s + 60 else 20.0)
            unfinished = self.ledger.unfinished()
            now_s, now_ms = self.loop.time(), self.machine.now_ms()
            under_way = self.ledger.under_way()
            if not unfinished and not under_way and now_ms is not None and now_s > healed_s + WIRE_EMPTY_S:
                return
            if now_ms is not None and any(max(f.message.due, f.due, f.deadline) > now_ms for f in unfinished):
                waiting_s = now_s
            # One of a key at a time, or so many of a tenant: that takes as long as it takes, but it goes on.
            if len(unfinished) < left and any(fate.message.queue.one_by_one for fate in unfinished):
                waiting_s = now_s
            # So many a second, as they were asked for: the same.
            if under_way and self.ledger.redriven() > redriven:
                waiting_s = now_s
            left, redriven = len(unfinished), self.ledger.redriven()
            if now_s > waiting_s + DRAIN_S or now_s > healed_s + FAR_S:
                what = f"{len(unfinished)} unfinished, first {unfinished[0].message}" if unfinished else "no broker"
                if under_way:
                    what = f"redrives {under_way} are still under way"
                raise Violation("I12", f"{now_s - healed_s:.0f} s after the last fault: {what}")


def run(seed: int, minutes: float) -> Result:
    """Nothing is collected before the end, so that nothing is finalized at a moment that the seed does not decide."""
    gc.disable()
    gc.freeze()
    try:
        with warnings.catch_warnings():
            # Coroutines of dead processes are never awaited, and complain about it when they are collected.
            warnings.simplefilter("ignore", RuntimeWarning)
            world = World(Plan(seed, minutes))
            result = world.run()
            with _in_silence():
                del world
                # Twice: coroutines that are finalized in the first round let go of their world in the second.
                gc.collect()
                gc.collect()
        return result
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def _in_silence() -> Iterator[None]:
    """What the coroutines of a world that is over say while they are closed, in any order, means nothing."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook
