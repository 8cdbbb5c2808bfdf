"""The checks at the end of a run: the broker's replies equal the ledger, before and after a restart, and no changed bit
of the stored files is accepted."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from penstock.core import snapshot
from penstock.engines.local.engine import LocalEngine
from penstock.journal.port import Damaged
from penstock.runtime.far import read_chunk
from penstock.runtime.recovery import recover
from penstock.runtime.stored import DamagedMessages
from sim.checkers import is_wanted
from sim.ledger import Ledger
from sim.loop import VirtualLoop
from sim.machine import Machine
from sim.network import Network
from sim.observed import History
from sim.plan import Plan
from sim.process import ROOT, Process
from sim.violation import Violation

PAGE = 500
ROT_SHARE = 0.5
"""The share of runs with these checks."""


class FinalChecks:
    def __init__(
        self, loop: VirtualLoop, plan: Plan, machine: Machine, network: Network, ledger: Ledger, history: History
    ):
        self._loop = loop
        self._machine = machine
        self._network = network
        self._ledger = ledger
        self._history = history
        self._rng = plan.rng("ending")

    async def check(self) -> None:
        """Raises Violation."""
        process = await self._machine.running()
        await self._inside(process, process.check_state())
        await self._check_figures()
        self._machine.drain_and_restart()
        process = await self._machine.running(after=self._machine.starts)
        await self._inside(process, process.check_state())
        await self._check_figures()
        if self._rng.random() < ROT_SHARE:
            await self._check_rot(process)

    async def _check_figures(self) -> None:
        if self._ledger.keys.seen:
            self._ledger.keys.check_list(await self._network.call("keys.list"))
        if self._ledger.users.states:
            self._ledger.users.check_list(await self._network.call("users.list"))
        for queue in list(self._ledger.queues.values()):
            before = sum(len(partition.dead) for partition in queue.partitions)
            reply = await self._network.call("dead_letters.page", queue.path, limit=PAGE)
            after = sum(len(partition.dead) for partition in queue.partitions)
            # Upkeep may have pruned some meanwhile.
            if reply["total"] not in (before, after) or len(reply["dead_letters"]) != min(PAGE, reply["total"]):
                raise Violation("I8", f"{queue.path} has {after} dead letters, the broker shows {reply['total']}")
            told = await self._network.call("redrives.list", queue.path)
            for redrive in told["redrives"]:
                known = queue.redrives[redrive["redrive_id"]]
                if (redrive["status"], redrive["redriven"]) != (known.ended, known.moved):
                    raise Violation("I8", f"{redrive} of {queue.path} moved {known.moved} and is {known.ended}")
            stats = await self._network.call("stats.queue", queue.path)
            if stats["depth"] and queue.groups:
                raise Violation("I12", f"{queue.path} is finished, and has a depth of {stats['depth']}")

    async def _check_rot(self, process: Process) -> None:
        """One bit of the files changes while the broker is down. The broker must refuse to start, or the bit must not
        matter (I10)."""
        await self._inside(process, process.stop())
        self._machine.halt()
        files = self._machine.files
        paths = [path for path in files.paths() if "/shard-0/" in path and not path.endswith("/durable")]
        path = self._rng.choice([path for path in paths if files.length(path)])
        at = self._rng.randrange(files.length(path))
        files.damage(path, at, 1 << self._rng.randrange(8))
        try:
            await self._read_everything(LocalEngine(ROOT, files=files))
        except (Damaged, DamagedMessages):
            return
        except (Violation, Exception) as problem:
            raise Violation("I10", f"a bit of {path} turned over at {at}, and then: {problem!r}") from problem

    async def _read_everything(self, engine: LocalEngine) -> None:
        """Raises Damaged or DamagedMessages, or Violation if the state is not the same as before."""
        journal = await engine.acquire(0, bytes(16))
        recovered = await recover(journal, bytes(16))
        if journal.tail.index != self._ledger.index:
            raise Violation("I10", f"the journal ends with frame {journal.tail.index} of {self._ledger.index}")
        shard = recovered.shard
        if snapshot.digest(shard, partial(read_chunk, journal)) != self._history.digest_at(
            max(shard.now_ms, shard.advanced_ms)
        ):
            raise Violation("I10", "the state is another")
        for queue in self._ledger.queues.values():
            for number, partition in enumerate(queue.partitions):
                found = set()
                for record, first, stop in recovered.log.runs(queue.number, number, 0, len(partition.messages)):
                    for offset in range(first, stop):
                        payload = record.batch.payload(offset - record.offset)
                        if payload != partition.messages[offset].sent.payload:
                            raise Violation("I10", f"{partition.messages[offset]} holds other bytes")
                        found.add(offset)
                for message in partition.messages:
                    if is_wanted(message) and message.offset not in found:
                        raise Violation("I10", f"{message} is gone")

    async def _inside(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the context of the process."""
        await self._loop.create_task(work, context=process.context)
