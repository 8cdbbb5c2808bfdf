"""The fence of an engine: contenders that race for a shard, and owners that are stopped, replaced and continued.

Every frame that was acknowledged must be in the journal, once, and no frame may follow one of a higher term.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from penstock.engines import open_engine
from penstock.errors import Unavailable
from penstock.journal.port import Ambiguous, Engine, Fenced, ShardJournal, StoreUnavailable
from penstock.testing.check_engine import NODE, Owner

CONTENDERS = 3
APPENDS = 3
SHARDS = 8
"""Of a store, raced for at the same time."""
CHECK_EVERY = 50
"""Races between two checks of the journal."""
ANSWER_S = 60.0


class Verdict:
    """All that owners of one shard were told, held against the journal."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter({"acked": 0, "refused": 0, "unknown": 0})
        self.violations: list[str] = []
        self._acked: set[bytes] = set()
        self._seen: set[bytes] = set()
        self._upto = 0
        self._term = 0

    def acked(self, body: bytes) -> None:
        self.counts["acked"] += 1
        self._acked.add(body)

    async def check(self, journal: ShardJournal) -> None:
        """Everything behind what was checked before."""
        async for _, frame in journal.replay(self._upto):
            if frame.term < self._term:
                self.violations.append(f"frame {frame.index} of term {frame.term} lies behind term {self._term}")
            body = bytes(frame.body)
            if body and body in self._seen:
                self.violations.append(f"{body!r} was accepted twice")
            self._seen |= {body}
            self._upto, self._term = frame.index, max(self._term, frame.term)
        lost = self._acked - self._seen
        self.violations += [f"{body!r} was acknowledged and is not in the journal" for body in sorted(lost)[:10]]
        self._acked.clear()


async def _races(engines: list[Engine], shard: int, count: int, deadline: float, seed: int, verdict: Verdict) -> int:
    rng = random.Random(seed)

    async def contend(engine: Engine, name: bytes) -> None:
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        owner = Owner(await engine.acquire(shard, NODE))
        try:
            for number in range(APPENDS):
                body = b"%s-%d" % (name, number)
                await owner.append([body])
                verdict.acked(body)
                await asyncio.sleep(0)
        except Fenced:
            verdict.counts["refused"] += 1
        except Ambiguous:
            verdict.counts["unknown"] += 1
        finally:
            await owner.journal.close()

    done = 0
    while done < count and time.monotonic() < deadline and not verdict.violations:
        order = rng.sample(engines, len(engines))
        outcomes = await asyncio.gather(
            *(contend(engine, b"%d-%d" % (done, at)) for at, engine in enumerate(order)), return_exceptions=True
        )
        for error in outcomes:
            # An owner that was replaced before its first append, in the middle of acquiring.
            if isinstance(error, Fenced | StoreUnavailable | Ambiguous):
                verdict.counts["refused"] += 1
            elif error is not None:
                raise error
        done += 1
        if done % CHECK_EVERY == 0:
            await _check(engines[0], shard, verdict)
    await _check(engines[0], shard, verdict)
    return done


async def _check(engine: Engine, shard: int, verdict: Verdict) -> None:
    journal = await engine.acquire(shard, NODE)
    await verdict.check(journal)
    await journal.close()


def race(store: Callable[[], Engine], *, shared: bool, count: int, seconds: float, seed: int) -> dict[str, object]:
    """Contenders of a shared store have an engine each, as on machines of their own."""

    async def run() -> dict[str, object]:
        one = store()
        engines = [one, store(), store()] if shared else [one] * CONTENDERS
        verdicts = [Verdict() for _ in range(SHARDS)]
        deadline = time.monotonic() + seconds
        try:
            done = await asyncio.gather(
                *(
                    _races(engines, shard, -(-count // SHARDS), deadline, seed + shard, verdict)
                    for shard, verdict in enumerate(verdicts)
                )
            )
        finally:
            for each in {id(each): each for each in engines}.values():
                await each.close()
        counts = {name: sum(each.counts[name] for each in verdicts) for name in verdicts[0].counts}
        violations = [text for each in verdicts for text in each.violations]
        return {"races": sum(done), "contenders": CONTENDERS, **counts, "violations": violations}

    return asyncio.run(run())


# -- zombies -----------------------------------------------------------------------------------------------------------


async def _be_owner(store: str, data_dir: str) -> None:
    """The process that is stopped: for each line of its input it takes the shard and appends until it is fenced. It
    says what was acknowledged."""
    events = asyncio.get_running_loop()
    engine = open_engine(store, data_dir=data_dir, fsync="always")
    await engine.check()
    turn = 0
    while await events.run_in_executor(None, sys.stdin.readline):
        owner = Owner(await engine.acquire(0, NODE))
        number, turn = 0, turn + 1
        try:
            while True:
                body = f"zombie-{os.getpid()}-{turn}-{number}"
                await owner.append([body.encode()])
                print(body, flush=True)
                number += 1
        except Fenced:
            print("fenced", flush=True)
        except Ambiguous:
            # Its session was ended: only `resolve` knows, and that must not succeed behind the new owner.
            await _resolve(owner)
        finally:
            await owner.journal.close()


async def _resolve(owner: Owner) -> None:
    try:
        while True:
            with contextlib.suppress(Ambiguous, StoreUnavailable):
                await owner.journal.resolve()  # type: ignore[attr-defined]
                print("resolved", flush=True)
                return
            await asyncio.sleep(0.05)
    except Fenced:
        print("fenced after an unknown outcome", flush=True)


class _Zombie:
    def __init__(self, store: str, data_dir: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torture.fences", store, data_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._rest = b""

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"own\n")
        self.process.stdin.flush()

    def lines(self, timeout_s: float) -> Iterator[bytes]:
        """Those that come until the time is over, the first of them awaited."""
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], timeout_s)[0]:
            *whole, self._rest = (self._rest + (self.process.stdout.read() or b"")).split(b"\n")
            yield from whole

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


def zombies(store: str, data_dir: Path, *, count: int, seconds: float, seed: int) -> dict[str, object]:
    """An owner in a process of its own is stopped at any moment; another one takes the shard and appends; the first one
    goes on. On local files the second one is refused instead, because the first one holds the lock."""
    rng = random.Random(seed)
    verdict = Verdict()

    async def run() -> int:
        zombie = _Zombie(store, str(data_dir))
        engine = None
        deadline = time.monotonic() + seconds
        done = 0
        try:
            zombie.begin()
            while done < count and time.monotonic() < deadline and not verdict.violations:
                await _collect(zombie, verdict, 5 + rng.randrange(20))
                await asyncio.sleep(rng.uniform(0, 0.005))
                zombie.process.send_signal(signal.SIGSTOP)
                if store == "local:":
                    _check_locked(str(data_dir), verdict)
                    zombie.process.send_signal(signal.SIGCONT)
                else:
                    engine = engine or open_engine(store, data_dir=str(data_dir), fsync="always")
                    owner = Owner(await engine.acquire(0, NODE))
                    for number in range(APPENDS):
                        body = b"owner-%d-%d" % (done, number)
                        await owner.append([body])
                        verdict.acked(body)
                    zombie.process.send_signal(signal.SIGCONT)
                    await _collect(zombie, verdict, None)
                    for number in range(APPENDS):
                        body = b"owner-%d-again-%d" % (done, number)
                        await owner.append([body])
                        verdict.acked(body)
                    await verdict.check(owner.journal)
                    await owner.journal.close()
                    zombie.begin()
                done += 1
        finally:
            zombie.close()
            for line in zombie.lines(0):
                verdict.acked(line)
            if engine is not None:
                await engine.close()
        last = open_engine(store, data_dir=str(data_dir), fsync="always")
        await _check(last, 0, verdict)
        await last.close()
        return done

    done = asyncio.run(run())
    return {"zombies": done, **verdict.counts, "violations": verdict.violations}


async def _collect(zombie: _Zombie, verdict: Verdict, most: int | None) -> None:
    """What the other process says: so many acknowledged frames, or all until it is fenced."""
    found, deadline = 0, time.monotonic() + ANSWER_S
    while (most is None or found < most) and time.monotonic() < deadline:
        for line in zombie.lines(1.0):
            if line.startswith(b"zombie-"):
                verdict.acked(line)
                found += 1
            elif line.startswith(b"fenced"):
                verdict.counts["refused"] += 1
                verdict.counts["unknown"] += line != b"fenced"
                if most is None:
                    return
            else:
                verdict.violations.append(f"the former owner goes on: {line.decode()}")
                return
        if zombie.process.poll() is not None:
            break
        await asyncio.sleep(0)
    if most is None or found < most:
        verdict.violations.append("the former owner said nothing")


def _check_locked(data_dir: str, verdict: Verdict) -> None:
    try:
        open_engine("local:", data_dir=data_dir, fsync="always")
    except Unavailable:
        verdict.counts["refused"] += 1
    else:
        verdict.violations.append("a second process opened the data directory")


@contextlib.contextmanager
def stores(root: Path) -> Iterator[dict[str, tuple[str, Path]]]:
    """Name -> (store, data directory). PostgreSQL only if its package is installed."""
    found = {"memory": ("memory:", root), "local": ("local:", root / "data")}
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            from tests.contract.postgres_server import PostgresServer

            server = PostgresServer()
            stack.callback(server.close)
            server.start()
            found["postgres"] = (server.url(), root)
        yield found


def measure(kind: str, *, count: int, seconds: float, seed: int) -> list[dict[str, object]]:
    """`race` or `zombie`, on each engine. A stopped process that owns nothing outside itself is no zombie, so memory is
    left out there."""
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="torture-") as folder, stores(Path(folder)) as found:
        for name, (store, data_dir) in found.items():
            began = time.monotonic()
            if kind == "zombie" and name == "memory":
                continue
            if kind == "zombie":
                result = zombies(store, data_dir, count=count, seconds=seconds, seed=seed)
            else:
                reopen = partial(open_engine, store, data_dir=str(data_dir), fsync="always")
                shared = name == "postgres"
                result = race(reopen, shared=shared, count=count, seconds=seconds, seed=seed)
            took_s = round(time.monotonic() - began)
            results.append({"kind": kind, "engine": name, "seed": seed, **result, "took_s": took_s})
    return results


if __name__ == "__main__":
    asyncio.run(_be_owner(*sys.argv[1:3]))
