"""One broker process: the real engine, shard, loop, upkeep and facade, on simulated files and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from random import Random
from typing import Any

from penstock.broker.service import Broker
from penstock.clock import SystemClock
from penstock.core import invariants, snapshot
from penstock.engines.local.engine import LocalEngine
from penstock.errors import PenstockError
from penstock.journal.port import Engine, EngineError
from penstock.pending import PendingReply
from penstock.runtime.far import read_chunk
from penstock.runtime.host import ShardHost, open_shard
from penstock.runtime.node_memory import NodeMemory
from penstock.security.credentials import KeyTable
from penstock.testing.clock import SimulatedMachine
from penstock.testing.files import SimFiles
from sim.checkers import Checkers
from sim.keys import HASH_KEY
from sim.loop import VirtualLoop, process_context
from sim.network import Call, Network
from sim.nonces import MASTERS, weak_random
from sim.observed import History, ObservedEngine
from sim.plan import Plan
from sim.store import Link, RemoteEngine
from sim.users import PlainPasswords
from sim.violation import Violation

ROOT = "/data"
CHECK_INVARIANTS_EVERY = 25
"""The number of requests between two checks of the whole state."""
INLINE_SHARE = 0.5
"""The share of requests that ask for an inline commit."""


class Process:
    """Use `start`; end it by `VirtualLoop.end_process`. All of its tasks run in `context`."""

    def __init__(
        self, loop: VirtualLoop, plan: Plan, files: SimFiles, link: Link, machine: SimulatedMachine, history: History,
        checkers: Checkers, network: Network, entropy: Random, report: Callable[[Violation], None],
        on_failure: Callable[[Process], None],
    ):  # fmt: skip
        self.context = process_context(self)
        self.calls: dict[Call, None] = {}
        self.broker: Broker | None = None
        self.host: ShardHost | None = None
        self.served = 0
        self._loop = loop
        self._plan = plan
        self._edge = plan.rng("edge")
        self._files = files
        self._link = link
        self._machine = machine
        self._history = history
        self._checkers = checkers
        self._network = network
        self._entropy = entropy
        self._report = report
        self._on_failure = on_failure
        self._engine: ObservedEngine | None = None

    async def start(self) -> None:
        """Raises OSError or EngineError if the files cannot be opened now."""
        plan = self._plan
        local = LocalEngine(
            ROOT, fsync=plan.fsync, files=self._files, segment_bytes=plan.segment_bytes,
            zero_ahead_bytes=plan.zero_ahead_bytes, page_bytes=plan.page_bytes,
        )  # fmt: skip
        clock = SystemClock(self._machine)
        store: Engine = RemoteEngine(local, self._link, clock) if plan.has("remote_store") else local
        self._engine = engine = ObservedEngine(store, self._history)
        node = engine.node_id(self._entropy.randbytes(16)[:15].rjust(16, b"\0"))
        self.host = host = await open_shard(
            engine, 0, clock, node, on_failure=self._fail, on_problem=self._on_trouble,
            segment_bytes=plan.round_bytes, segments_kept=plan.segments_kept, memory=NodeMemory(plan.hot_bytes),
            far_entries=plan.far_entries,
            stored_ids=plan.stored_ids,
            stored_letters=plan.stored_letters,
            slice_queues=plan.slice_queues,
            masters=MASTERS if plan.has("encryption") else None, random=weak_random(self._entropy),
        )  # fmt: skip
        self._history.nonces.reads_by(host.loop.encryption)
        self.broker = Broker(host, self._entropy.getrandbits)
        self.broker.keys.attach(KeyTable(HASH_KEY), lambda _: None)
        self.broker.users.attach(PlainPasswords(), lambda _: None)
        await self.check_state()

    async def stop(self) -> None:
        """As on SIGTERM."""
        assert self.broker is not None and self._engine is not None
        await self.broker.close()
        await self._engine.close()

    async def check_state(self) -> None:
        """The live state must equal the state of the applied records, and its invariants must hold (I9).

        The live state is copied now; a cut reports when all its records are durable, and then the history must have the
        same state, whatever snapshots and restarts the live state has been through.
        """
        assert self.host is not None
        loop = self.host.loop
        if loop.failed is not None:
            return
        shard = loop.shard
        self.check_invariants()
        live = snapshot.digest(shard, partial(read_chunk, self.host.journal))
        by_ms = max(shard.now_ms, shard.advanced_ms)

        def compare(index: int, chain: bytes, locator: int) -> None:  # noqa: ARG001  the shape of a cut
            if index != self._history.ledger.index:
                self._report(Violation("I9", f"a cut behind frame {index}, the history is at another"))
            elif self._history.digest_at(by_ms) != live:
                self._report(Violation("I9", f"the state after frame {index} is not what the journal adds up to"))

        try:
            await loop.cut(compare)
        except (EngineError, PenstockError):
            return

    def check_invariants(self) -> None:
        assert self.host is not None
        try:
            invariants.check(self.host.loop.shard)
        except AssertionError as error:
            self._report(Violation("I9", f"the state does not hold together: {error}"))

    def check_housekeeper(self) -> None:
        """Upkeep must run as long as the shard, or the journal grows without bound (I11)."""
        if self.host is not None and self.host.loop.failed is None and not self.host.loop.closing:
            task = self.host.upkeep._task
            # After an error of the disk, upkeep waits for the next commit, which meets the same error and ends the
            # process.
            failing = self._plan.has("eio_write") or self._plan.has("eio_sync")
            if task.done() and not failing:
                self._report(Violation("I11", f"the housekeeper is gone: {task!r}"))

    def _fail(self, reason: str) -> None:  # noqa: ARG002  the reason is for people
        self._on_failure(self)

    def _on_trouble(self, trouble: str) -> None:
        """Problems that the broker survives: all but a full disk, and a hold that spans too much, are bugs."""
        if (
            "disk full" not in trouble
            and not trouble.startswith(("hold ", "upkeep waits for the store"))
            and ("the store cannot be read now" not in trouble)
        ):
            self._report(Violation("I11", trouble))

    # -- requests -----------------------------------------------------------------------------------------------------

    def serve(self, call: Call) -> bool:
        if self.broker is None:
            return False
        self.calls[call] = None
        call.task = self._loop.create_task(self._answer(call, self.broker), context=self.context)
        return True

    async def _reply(self, pending: PendingReply[Any], broker: Broker) -> Any:
        """As in the HTTP transport: an inline commit for a share of requests, and a callback that is called once."""
        outcomes: list[PendingReply[Any]] = []
        if self._edge.random() < INLINE_SHARE:
            pending.deliver(outcomes.append)
            broker.commit_now()
        try:
            return await pending
        finally:
            if len(outcomes) > 1:
                self._report(Violation("I8", "a reply was delivered twice"))

    async def _answer(self, call: Call, broker: Broker) -> None:
        result: Any = None
        refusal: PenstockError | None = None
        try:
            result = attrgetter(call.method)(broker)(*call.arguments, **call.options)
            if isinstance(result, PendingReply):
                result = await self._reply(result, broker)
            elif asyncio.iscoroutine(result):
                result = await result
            self._checkers.answer(call, result)
        except PenstockError as error:
            refusal = error
            try:
                self._checkers.refusal(call, error)
            except Violation as violation:
                self._report(violation)
        except Violation as violation:
            self._report(violation)
        except asyncio.CancelledError:
            self.calls.pop(call, None)
            raise
        except Exception as error:
            # An exception that is no PenstockError would be a 500: it is a bug.
            self._report(Violation("I8", f"{call.method}{call.options} failed inside the broker: {error!r}"))
        self.calls.pop(call, None)
        self.served += 1
        if self.served % CHECK_INVARIANTS_EVERY == 0:
            self.check_invariants()
        self._network.answer(call, result, refusal)
