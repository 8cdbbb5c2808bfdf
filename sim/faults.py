"""Faults and their times. One fault starts at a time; faults with a duration may overlap."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import Protocol

from penstock.testing.clock import SimulatedMachine
from penstock.testing.files import Operation, SimFiles, Verdict
from sim.loop import VirtualLoop, later
from sim.plan import Plan
from sim.store import Link

CUT = "cut"
OPERATIONS: tuple[Operation, ...] = ("create", "write", "sync", "truncate", "rename", "remove", "sync_dir")
SOFT_FULL_BYTES = (0, 200, 4_000)
"""The free space of a filling disk before it is full for the first time."""


class Victim(Protocol):
    """The target of faults."""

    def kill(self, *, power: bool) -> None:
        """End the process, and with `power` the machine; it restarts by itself."""

    def drain_and_restart(self) -> None: ...

    def stand_still(self, seconds: float) -> None:
        """Stop the process for this long, without notice."""


class DiskFaults:
    """Errors and crashes at exact operations of the disk: a countdown each, over all or one kind."""

    def __init__(self) -> None:
        self._armed: dict[str, tuple[int, Operation | None]] = {}

    def arm(self, what: str, count: int, only: Operation | None = None) -> None:
        self._armed[what] = (count, only)

    def disarm(self) -> None:
        self._armed.clear()

    def __call__(self, operation: Operation, path: str) -> Verdict:  # noqa: ARG002  every path is as good
        verdict: Verdict = None
        for what, (count, only) in list(self._armed.items()):
            if only is not None and operation != only:
                continue
            if count > 1:
                self._armed[what] = (count - 1, only)
                continue
            del self._armed[what]
            if what == CUT:
                return "cut"
            verdict = OSError(errno.EIO, "the disk has failed")
        return verdict


class Faults:
    def __init__(
        self,
        loop: VirtualLoop,
        plan: Plan,
        files: SimFiles,
        disk: DiskFaults,
        link: Link,
        machine: SimulatedMachine,
        victim: Victim,
    ):
        self._loop = loop
        self._plan = plan
        self._files = files
        self._disk = disk
        self._link = link
        self._machine = machine
        self._rng = plan.rng("faults")
        self._latency_s = self._plan.latency_s
        self.cut_is_power = False
        """The scope of the next crash at a disk operation."""
        self._healed = False
        kinds: dict[str, Callable[[Random], None]] = {
            "kill": lambda _: victim.kill(power=False),
            "power": lambda _: victim.kill(power=True),
            "cuts": self._cut,
            "eio_write": lambda rng: disk.arm("eio_write", rng.randint(1, 20), "write"),
            "eio_sync": lambda rng: disk.arm("eio_sync", rng.randint(1, 12), rng.choice(("sync", "sync", "sync_dir"))),
            "full": self._full,
            "full_hard": self._full_hard,
            "slow": self._slow,
            "steps": self._step,
            "drift": lambda rng: machine.set_drift(rng.choice((-0.05, -0.0005, 0.0, 0.0005, 0.05))),
            "restarts": lambda _: victim.drain_and_restart(),
            "remote_store": lambda rng: link.break_for(rng.choice((1, 1, 2, 5))),
            "standstills": lambda rng: victim.stand_still(rng.choice((0.03, 0.3, 1.5, 5, 12)) * (0.5 + rng.random())),
        }
        self._kinds = [begin for name, begin in kinds.items() if plan.has(name)]

    async def run(self, until_s: float) -> None:
        rng = self._rng
        while self._kinds:
            await asyncio.sleep(rng.expovariate(1 / self._plan.fault_every_s))
            if self._loop.time() >= until_s:
                return
            self.strike()

    def strike(self) -> None:
        """Start a fault now."""
        if self._kinds and not self._healed:
            self._rng.choice(self._kinds)(self._rng)

    def heal(self) -> None:
        self._healed = True
        self._disk.disarm()
        self._link.heal()
        self._files.capacity = None
        self._latency_s = self._plan.latency_s
        self._machine.set_drift(0.0)

    def latency_s(self) -> float:
        return self._latency_s * (0.5 + self._rng.random())

    def _cut(self, rng: Random) -> None:
        """The process or the machine crashes at one of the next operations: between a write and its sync, inside a
        rename..."""
        self.cut_is_power = self._plan.has("power") and rng.random() < 0.7
        if rng.random() < 0.5:
            self._disk.arm(CUT, rng.randint(1, rng.choice((8, 60))))
        else:
            self._disk.arm(CUT, rng.randint(1, 3), rng.choice(OPERATIONS))

    def aftershock(self) -> None:
        """After a crash at an operation of the disk, another crash may follow soon: recovery must survive its own
        crashes."""
        if self._rng.random() < 0.4 and not self._healed:
            self.cut_is_power = self._plan.has("power") and self._rng.random() < 0.8
            self._disk.arm(CUT, self._rng.randint(1, 50))

    def _full(self, rng: Random) -> None:
        self._files.capacity = self._files.used() + rng.choice(SOFT_FULL_BYTES)
        later(self._loop, 2 + rng.random() * 15, self._unfill)

    def _full_hard(self, rng: Random) -> None:
        """Another program takes all space that becomes free: the reserve does not help."""
        self._files.capacity = 0
        later(self._loop, 1 + rng.random() * 6, self._unfill)

    def _unfill(self) -> None:
        self._files.capacity = None

    def _slow(self, rng: Random) -> None:
        self._latency_s = rng.choice((0.1, 0.5, 2.0))
        later(self._loop, 1 + rng.random() * 8, self._speed_up)

    def _speed_up(self) -> None:
        self._latency_s = self._plan.latency_s

    def _step(self, rng: Random) -> None:
        size_ms = rng.choice((900, 20_000, 3_600_000, 86_400_000, 31_536_000_000))
        self._machine.step(size_ms * rng.choice((-1, 1)))
