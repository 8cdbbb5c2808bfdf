"""The machine of the broker: its disk, its clocks, and the starts and crashes of the process."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from penstock.core.state import Shard
from penstock.errors import PenstockError
from penstock.journal.port import Ambiguous, Damaged, EngineError, OutOfSpace, StoreUnavailable
from penstock.testing.clock import SimulatedMachine
from penstock.testing.files import SimFiles
from sim.checkers import Checkers
from sim.faults import DiskFaults, Faults
from sim.loop import VirtualLoop, later
from sim.network import Call, Network
from sim.observed import History
from sim.plan import Plan
from sim.process import ROOT, Process
from sim.store import Link
from sim.violation import Violation

RESERVE = f"{ROOT}/reserve"


class Machine:
    """Implements `network.Server` and `faults.Victim`."""

    def __init__(
        self, loop: VirtualLoop, plan: Plan, history: History, checkers: Checkers, report: Callable[[Violation], None]
    ):
        self.network: Network
        self.starts = 0
        self.requests = 0
        self.process: Process | None = None
        """The current process; it may still be starting."""
        disk = DiskFaults()
        self.files = SimFiles(faults=disk, on_stop=self._stopped_inside)
        self.clocks = SimulatedMachine(loop.time)
        self._link = Link(plan.rng("link"))
        self.faults = Faults(loop, plan, self.files, disk, self._link, self.clocks, self)
        self.files.latency = self.faults.latency_s
        self._loop = loop
        self._plan = plan
        self._history = history
        self._checkers = checkers
        self._report = report
        self._rng = plan.rng("machine")
        self._entropy = plan.rng("entropy")
        self._disk_rng = plan.rng("disk")
        self._starting = False
        self._reserve_there = False
        self._graveyard: list[Process] = []
        """Ended processes are kept to the end of the run: their objects must not be finalized before."""
        self._changed = asyncio.Event()

    # -- questions ----------------------------------------------------------------------------------------------------

    def state(self) -> Shard:
        """The state of the current process: ahead of the history by the records that are not durable yet."""
        assert self.process is not None and self.process.host is not None
        return self.process.host.loop.shard

    def now_ms(self) -> int | None:
        """Journal time, if a process runs."""
        process = self.process
        if process is None or process.broker is None or process.host is None or process.host.loop.failed is not None:
            return None
        return process.host.loop.now_ms()

    async def running(self, *, after: int = 0) -> Process:
        """Await a process that serves, with a number above `after`."""
        while self.starts <= after or self.process is None or self.process.broker is None:
            self._changed.clear()
            await self._changed.wait()
        return self.process

    # -- life and death -----------------------------------------------------------------------------------------------

    def serve(self, call: Call) -> bool:
        self.requests += 1
        return self.process is not None and self.process.serve(call)

    def start(self) -> None:
        self._starting = False
        self.starts += 1
        self.process = process = Process(
            self._loop, self._plan, self.files, self._link, self.clocks, self._history, self._checkers, self.network,
            self._entropy, self._report, self._failed,
        )  # fmt: skip
        self._reserve_there = self.files.exists(RESERVE) and self.files.length(RESERVE) > 0
        task = self._loop.create_task(process.start(), context=process.context)
        task.add_done_callback(lambda done: self._started(process, done), context=self._loop.outside)

    def kill(self, *, power: bool) -> None:
        if self.process is not None:
            self._bury(self.process)
        if power:
            self.files.crash(self._disk_rng)
        else:
            self.files.kill()
        if not self._starting:
            self._starting = True
            later(self._loop, 0.02 + self._rng.random() * self._rng.choice((0.1, 3)), self.start)

    def halt(self) -> None:
        """The process ends and is not restarted."""
        if self.process is not None:
            self._bury(self.process)
        self.files.kill()

    def drain_and_restart(self) -> None:
        process = self.process
        if process is not None and process.broker is not None:
            task = self._loop.create_task(process.stop(), context=process.context)
            task.add_done_callback(lambda done: self._stopped(process, done), context=self._loop.outside)

    def stand_still(self, seconds: float) -> None:
        if self.process is not None:
            self._loop.stand_still(self.process, seconds)

    def _started(self, process: Process, task: asyncio.Task[None]) -> None:
        self._changed.set()
        if self.process is not process or task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Violation):
            self._report(error)
        elif isinstance(error, Damaged):
            self._report(Violation("I10", f"recovery refuses what this disk can do: {error}"))
        elif self._reserve_there and self.files.capacity and _is_full(error):
            self._report(Violation("I12", f"a full disk keeps the broker from starting: {error}"))
        elif error is not None and self._explained(error):
            self.kill(power=False)
        elif error is not None:
            self._report(Violation("I10", f"the broker does not start: {error!r}"))

    def _stopped(self, process: Process, task: asyncio.Task[None]) -> None:
        if self.process is process and not task.cancelled():
            error = task.exception()
            if error is not None and not self._explained(error):
                self._report(Violation("I12", f"the broker could not be stopped: {error!r}"))
            self.kill(power=False)

    def _explained(self, error: BaseException) -> bool:
        """Errors of a start or a stop are expected while the disk fails, or the store cannot be reached."""
        if self._plan.has("remote_store") and isinstance(error, StoreUnavailable | Ambiguous):
            return True
        failing = any(map(self._plan.has, ("full", "full_hard", "eio_write", "eio_sync")))
        return failing and isinstance(error, OSError | EngineError | PenstockError)

    def _stopped_inside(self) -> None:
        """The process crashed at an operation of the disk. The stack of the operation unwinds first; the rest follows
        at once."""
        if self.process is not None:
            self._bury(self.process)
        later(self._loop, 0, self._finish_off, self.faults.cut_is_power)
        self.faults.aftershock()

    def _finish_off(self, power: bool) -> None:
        self.kill(power=power)

    def _failed(self, process: Process) -> None:
        """The journal has failed for good: a real process ends now."""
        later(self._loop, 0.01, self._end_failed, process)

    def _end_failed(self, process: Process) -> None:
        if self.process is process:
            self.kill(power=False)

    def _bury(self, process: Process) -> None:
        self._loop.end_process(process)
        self._graveyard.append(process)
        self.process = None
        for call in process.calls:
            self.network.reset(call)


def _is_full(error: BaseException | None) -> bool:
    return isinstance(error, OutOfSpace) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)
