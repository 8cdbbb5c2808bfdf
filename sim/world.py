"""One run: a machine, a broker process that dies and comes back, clients, a network, and what all of it must obey."""

from __future__ import annotations

import asyncio
import errno
import gc
from typing import NamedTuple

from penstock.core.state import Shard
from penstock.errors import PenstockError
from penstock.journal.port import Damaged, EngineError, OutOfSpace
from penstock.testing.clock import SimulatedMachine
from penstock.testing.files import SimFiles
from sim.checkers import Checkers
from sim.faults import DiskFaults, Faults
from sim.ledger import Ledger, Violation
from sim.loop import Standstill, VirtualLoop, later
from sim.network import Call, Network
from sim.observed import History
from sim.plan import Plan
from sim.process import ROOT, Process
from sim.workload import Workload

DRAIN_S = 30.0
"""After the last fault, and after the last message has come due, everything is finished within this time (I12)."""
WIRE_EMPTY_S = 18.0
"""No request is longer on its way than this."""
FAR_S = 5 * 3600.0
"""Later than the furthest delay that a client asks for."""
STATE_CHECK_EVERY_S = 25.0
RESERVE = f"{ROOT}/reserve"


class Result(NamedTuple):
    seed: int
    seconds: float
    """Simulated."""
    violation: str | None
    """The invariant and what broke it."""
    restarts: int
    frames: int
    requests: int
    deliveries: int
    published: int
    digest: str
    """Of the final state: equal on every machine and under every hash seed."""


class World:
    """Implements `network.Server` and `faults.Victim`."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.loop = VirtualLoop()
        self.began_s = self.loop.time()
        disk = DiskFaults()
        self.files = SimFiles(faults=disk, on_stop=self._stopped_inside)
        self.machine = SimulatedMachine(self.loop.time)
        self.workload = Workload(self.loop, plan)
        self.ledger = Ledger(self.workload.sent)
        self.history = History(self.ledger, self.loop.time, self.report)
        self.checkers = Checkers(plan, self.ledger, self._live_state)
        self.network = Network(self.loop, plan, self)
        self.workload.connect(self.network, self.ledger)
        self.faults = Faults(self.loop, plan, self.files, disk, self.machine, self)
        self.files.latency = self.faults.latency_s
        self.violation: Violation | None = None
        self.restarts = 0
        self.requests = 0
        self._rng = plan.rng("world")
        self._entropy = plan.rng("entropy")
        self._disk_rng = plan.rng("disk")
        self._process: Process | None = None
        self._starting = False
        self._reserve_there = False
        self._graveyard: list[Process] = []
        """Dead processes are kept to the end: nothing of them may be finalized within the run."""

    def run(self) -> Result:
        asyncio.set_event_loop(self.loop)
        gc.disable()
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
            gc.enable()
        assert self._process is None or self.history is not None
        return Result(
            self.plan.seed, min(self.loop.time() - self.began_s, self.plan.seconds),
            None if self.violation is None else str(self.violation), self.restarts, self.history.frames,
            self.requests, self.checkers.deliveries, len(self.workload.sent),
            self.history.digest_at(self.ledger.now_ms) if self.violation is None else "",
        )  # fmt: skip

    def report(self, violation: Violation) -> None:
        """The first one counts; nothing that follows from it is of interest."""
        if self.violation is None:
            self.violation = violation
        self.loop.stop()

    # -- the story ----------------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        plan = self.plan
        until_s = self.began_s + plan.faulty_seconds
        self._start()
        await self.workload.start(until_s)
        faults = asyncio.ensure_future(self.faults.run(until_s))
        while self.loop.time() < until_s:
            await asyncio.sleep(STATE_CHECK_EVERY_S * (0.5 + self._rng.random()))
            self._check_process()
        await faults
        self._heal()
        await self._drain()
        await self._check_the_end()

    def _heal(self) -> None:
        self.faults.heal()
        self.network.heal()
        self.workload.behave()

    async def _drain(self) -> None:
        """I12: with good weather and diligent consumers everything comes to rest."""
        healed_s = waiting_s = self.loop.time()
        while True:
            # Whoever still waits after a minute waits for something far away.
            await asyncio.sleep(1.0 if self.loop.time() < healed_s + 60 else 20.0)
            unfinished = self.ledger.unfinished()
            now_s = self.loop.time()
            if not unfinished and self._now_ms() is not None and now_s > healed_s + WIRE_EMPTY_S:
                return
            now_ms = self._now_ms()
            if now_ms is not None and any(max(f.message.due, f.due, f.deadline) > now_ms for f in unfinished):
                waiting_s = now_s
            if now_s > waiting_s + DRAIN_S or now_s > healed_s + FAR_S:
                what = f"{len(unfinished)} unfinished, the first is {unfinished[0].message}" if unfinished else "no rest"
                self.report(Violation("I12", f"{now_s - healed_s:.0f} s after the last fault: {what}"))
                await asyncio.Event().wait()

    def _live_state(self) -> Shard:
        assert self._process is not None and self._process.host is not None
        return self._process.host.loop.shard

    def _now_ms(self) -> int | None:
        """Journal time, if there is a process that knows it."""
        process = self._process
        if process is None or process.host is None or process.host.loop.failed is not None:
            return None
        return process.host.loop.now_ms()

    async def _check_the_end(self) -> None:
        """All is at rest: what the broker says now must be what the ledger knows, also after one more restart."""
        for restart in (False, True):
            if restart:
                lives = self.restarts
                self.drain_and_restart()
                while self.restarts == lives or self._process is None or self._process.broker is None:
                    await asyncio.sleep(0.5)
            assert self._process is not None
            await self.loop.create_task(self._process.check_state(), context=self._process.context)
            await self._check_dead_letters()

    async def _check_dead_letters(self) -> None:
        for queue in list(self.ledger.queues.values()):
            expected = sum(len(partition.dead) for partition in queue.partitions)
            reply = await self.network.call("dead_letters", queue.path, limit=500)
            if reply["total"] != expected or len(reply["dead_letters"]) != min(500, expected):
                self.report(
                    Violation("I8", f"{queue.path} has {expected} dead letters, the broker shows {reply['total']}")
                )
            stats = await self.network.call("stats", queue.path)
            if stats["depth"] and queue.groups:
                self.report(Violation("I12", f"{queue.path} is finished, and has a depth of {stats['depth']}"))

    def _check_process(self) -> None:
        process = self._process
        if process is not None and process.broker is not None:
            process.check_housekeeper()
            self.loop.create_task(process.check_state(), context=process.context)

    # -- the process --------------------------------------------------------------------------------------------------

    def serve(self, call: Call) -> bool:
        self.requests += 1
        return self._process is not None and self._process.serve(call)

    def kill(self, *, power: bool) -> None:
        if self._process is not None:
            self._bury(self._process)
        if power:
            self.files.crash(self._disk_rng)
        else:
            self.files.kill()
        self._start_later()

    def drain_and_restart(self) -> None:
        process = self._process
        if process is not None and process.broker is not None:
            task = self.loop.create_task(process.stop(), context=process.context)
            task.add_done_callback(lambda done: self._stopped(process, done), context=self.loop.outside)

    def _stopped(self, process: Process, task: asyncio.Task[None]) -> None:
        if self._process is process and not task.cancelled():
            error = task.exception()
            if error is not None and not self._explained(error):
                self.report(Violation("I12", f"the broker could not be stopped: {error!r}"))
            self.kill(power=False)

    def _explained(self, error: BaseException) -> bool:
        """Errors of a start or a stop are to be expected where the disk fails."""
        failing = any(map(self.plan.has, ("full", "full_hard", "eio_write", "eio_sync")))
        return failing and isinstance(error, OSError | EngineError | PenstockError)

    def _stopped_inside(self) -> None:
        """The process died at an operation of the disk. Its stack is still on the way out: the rest follows at once."""
        if self._process is not None:
            self._bury(self._process)
        later(self.loop, 0, self._finish_off, self.faults.cut_is_power)
        self.faults.aftershock()

    def _finish_off(self, power: bool) -> None:
        self.kill(power=power)

    def _bury(self, process: Process) -> None:
        self.loop.end_process(process)
        self._graveyard.append(process)
        self._process = None
        for call in process.calls:
            self.network.reset(call)

    def _start_later(self) -> None:
        if not self._starting:
            self._starting = True
            later(self.loop, 0.02 + self._rng.random() * self._rng.choice((0.1, 3)), self._start)

    def _start(self) -> None:
        self._starting = False
        self.restarts += 1
        process = Process(
            self.loop, self.plan, self.files, self.machine, self.history, self.checkers, self._entropy, self.report,
            self._failed,
        )  # fmt: skip
        process.network = self.network
        self._process = process
        self._reserve_there = self.files.exists(RESERVE)
        task = self.loop.create_task(process.start(), context=process.context)
        task.add_done_callback(lambda done: self._started(process, done), context=self.loop.outside)

    def _started(self, process: Process, task: asyncio.Task[None]) -> None:
        if self._process is not process or task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Violation):
            self.report(error)
        elif isinstance(error, Damaged):
            self.report(Violation("I10", f"recovery refuses what this disk can do: {error}"))
        elif self._reserve_there and self.files.capacity and _is_full(error):
            self.report(Violation("I12", f"a full disk keeps the broker from starting: {error}"))
        elif error is not None and self._explained(error):
            self.kill(power=False)
        elif error is not None:
            self.report(Violation("I10", f"the broker does not start: {error!r}"))

    def _failed(self, reason: str) -> None:  # noqa: ARG002  the reason is for people
        """The shard has stopped for good: a real process would end now."""
        process = self._process
        if process is not None:
            later(self.loop, 0.01, self._end_failed, process)

    def _end_failed(self, process: Process) -> None:
        if self._process is process:
            self.kill(power=False)


def _is_full(error: BaseException | None) -> bool:
    return isinstance(error, OutOfSpace) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


def run(seed: int, minutes: float) -> Result:
    return World(Plan(seed, minutes)).run()
