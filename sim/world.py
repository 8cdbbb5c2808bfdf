"""One run: a machine, a broker process that crashes and restarts, clients, a network, and the invariants of all."""

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
from penstock.core.offsets import ranges
from penstock.core.state import sorted_pairs
from penstock.runtime import sealing, upkeep
from sim.checkers import Checkers
from sim.final_checks import FinalChecks
from sim.ledger import Ledger
from sim.loop import Standstill, VirtualLoop, later
from sim.machine import Machine
from sim.network import Network
from sim.observed import History
from sim.plan import Plan
from sim.sent_messages import Sent
from sim.violation import Violation
from sim.workload import Workload

DRAIN_S = 30.0
"""After the last fault and the last due time, all messages are finished within this time (I12)."""
WIRE_EMPTY_S = 18.0
"""The longest delay of a request."""
FAR_S = 5 * 3600.0
"""Longer than the furthest delay that a client asks for."""
STATE_CHECK_EVERY_S = 25.0


class Result(NamedTuple):
    seed: int
    seconds: float
    """Simulated seconds."""
    violation: str | None
    """The invariant, and the violation."""
    starts: int
    requests: int
    frames: int
    deliveries: int
    published: int
    digest: str
    """A digest of the final state: equal on every machine and for every hash seed."""


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
        self.history.nonces.watch()
        try:
            main = self.loop.create_task(self._main())
            main.add_done_callback(lambda _: self.loop.stop())
            try:
                self.loop.run_forever()
            except Standstill:
                self.report(Violation("I12", "each actor waits for another one"))
            if self.violation is None and main.done() and (error := main.exception()) is not None:
                raise error
        finally:
            asyncio.set_event_loop(None)
            self.history.nonces.stop()
            restore()
            self._abandon()
        return Result(
            self.plan.seed, min(self.loop.time() - self.began_s, self.plan.seconds),
            None if self.violation is None else str(self.violation), self.machine.starts, self.machine.requests,
            self.history.frames, self.checkers.deliveries, len(self.workload.sent),
            self.history.digest_at(self.ledger.now_ms) if self.violation is None else "",
        )  # fmt: skip

    def _scale_down(self) -> Callable[[], None]:
        """Set limits that are made for millions of messages to small values; returns a function that restores them."""
        sizes = {
            (ranges, "CRUMBS"): self.plan.crumbs,
            (sorted_pairs, "CHUNK_PAIRS"): self.plan.chunk_pairs,
            (sealing, "WEIGH_PIECES"): self.plan.portion,
            (sealing, "CHANGE_PIECES"): self.plan.portion,
            (sealing, "SEGMENT_PIECES_MAX"): 4 * self.plan.portion,
            (sealing, "SEGMENT_BYTES_MAX"): self.plan.shared_bytes,
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
        """The run is over: waiting tasks are cancelled, and their errors ignored."""
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.close()

    def report(self, violation: Violation) -> None:
        """Only the first violation counts."""
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
            await FinalChecks(self.loop, self.plan, self.machine, self.network, self.ledger, self.history).check()
        except Violation as violation:
            self.report(violation)

    def _fall_asleep(self, length_s: float) -> None:
        """Hours without requests. There are no faults either, except for one in the middle."""
        self.loop.lull(length_s)
        if self._lulls.random() < 0.5:
            later(self.loop, length_s * self._lulls.random(), self.machine.faults.strike)

    def _check_process(self) -> None:
        process = self.machine.process
        if process is not None and process.broker is not None:
            process.check_housekeeper()
            self.loop.create_task(process.check_state(), context=process.context)

    async def _drain(self) -> None:
        """I12: without faults and with correct consumers, all messages are finished."""
        healed_s = waiting_s = self.loop.time()
        left = redriven = 0
        while True:
            # A message that is unfinished after a minute waits for a far due time.
            await asyncio.sleep(1.0 if self.loop.time() < healed_s + 60 else 20.0)
            unfinished = self.ledger.unfinished()
            now_s, now_ms = self.loop.time(), self.machine.now_ms()
            under_way = self.ledger.under_way()
            if not unfinished and not under_way and now_ms is not None and now_s > healed_s + WIRE_EMPTY_S:
                return
            if now_ms is not None and any(max(f.message.due, f.due, f.deadline) > now_ms for f in unfinished):
                waiting_s = now_s
            # One message of a key at a time, or a share per tenant, takes longer, but makes progress.
            if len(unfinished) < left and any(fate.message.queue.one_by_one for fate in unfinished):
                waiting_s = now_s
            # A redrive with a rate takes longer too.
            if under_way and self.ledger.redriven() > redriven:
                waiting_s = now_s
            left, redriven = len(unfinished), self.ledger.redriven()
            if now_s > waiting_s + DRAIN_S or now_s > healed_s + FAR_S:
                what = f"{len(unfinished)} unfinished, first {unfinished[0].message}" if unfinished else "no broker"
                if under_way:
                    what = f"redrives {under_way} are still under way"
                raise Violation("I12", f"{now_s - healed_s:.0f} s after the last fault: {what}")


def run(seed: int, minutes: float) -> Result:
    """Nothing is collected before the end, so that no object is finalized at a time that the seed does not decide."""
    gc.disable()
    gc.freeze()
    try:
        with warnings.catch_warnings():
            # Coroutines of ended processes are never awaited, and warn about it when they are collected.
            warnings.simplefilter("ignore", RuntimeWarning)
            world = World(Plan(seed, minutes))
            result = world.run()
            with _in_silence():
                del world
                # Twice: coroutines that are finalized in the first round release their run in the second.
                gc.collect()
                gc.collect()
        return result
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def _in_silence() -> Iterator[None]:
    """Messages of coroutines that are closed after the run are ignored."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook
