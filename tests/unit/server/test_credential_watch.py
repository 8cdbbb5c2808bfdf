"""The task that ends expired streams and reads the key set of the issuer."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

from patience import until

from penstock.clock import SystemClock
from penstock.security.key_set import KeySet
from penstock.server import auth


def test_issuer_that_does_not_answer_delays_no_end_of_a_stream(monkeypatch):
    monkeypatch.setattr(auth, "WATCH_S", 0.001)
    answer, fetches, ends = threading.Event(), [], []

    def fetch() -> bytes:
        fetches.append(1)
        answer.wait(60)
        raise OSError("no answer")

    async def story() -> None:
        tokens = SimpleNamespace(keys=KeySet(fetch))
        watched = SimpleNamespace(end_expired=lambda: ends.append(1), tokens=tokens)
        watching = asyncio.ensure_future(auth.watch_credentials(watched, SystemClock()))
        try:
            await until(lambda: len(fetches) == 1)
            before = len(ends)
            await until(lambda: len(ends) > before + 3)
            assert len(fetches) == 1
        finally:
            answer.set()
            watching.cancel()

    asyncio.run(asyncio.wait_for(story(), 60))
