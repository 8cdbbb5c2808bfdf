"""The network between clients and the broker: it delays, loses and repeats messages.

A call without an answer has an unknown outcome for its caller; the ledger has the real one.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from penstock.errors import PenstockError
from sim.loop import VirtualLoop, later
from sim.plan import Plan

TIMEOUT_S = 8.0


class NoAnswer(Exception):
    """The outcome of the call is unknown."""


class Call:
    """One request in the network."""

    __slots__ = ("about", "arguments", "future", "method", "options", "task")

    def __init__(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any], about: Any):
        self.method = method
        self.arguments = arguments
        self.options = options
        self.about = about
        """Data for the checkers."""
        self.future: asyncio.Future[Any] | None = None
        """The caller; a repeated request has none."""
        self.task: asyncio.Task[None] | None = None


class Server(Protocol):
    def serve(self, call: Call) -> bool:
        """Accept the request; False if no process listens."""


class Network:
    def __init__(self, loop: VirtualLoop, plan: Plan, server: Server):
        self._loop = loop
        self._rng = plan.rng("network")
        self._server = server
        self._lose_request = plan.chance("lost_requests", 0.04)
        self._lose_response = plan.chance("lost_responses", 0.04)
        self._repeat = plan.chance("duplicates", 0.04)
        self._straggle = plan.chance("stragglers", 0.03)
        self._impatient = plan.chance("impatience", 0.7)
        self._reliable = not (self._lose_request or self._lose_response or self._impatient)
        """Every call is answered, or its connection breaks: callers need no timeouts."""

    def heal(self) -> None:
        self._lose_request = self._lose_response = self._repeat = self._straggle = self._impatient = 0.0

    def now_s(self) -> float:
        return self._loop.time()

    async def call(self, method: str, *arguments: Any, about: Any = None, wait_s: float = 0.0, **options: Any) -> Any:
        """Await the broker's answer. Raises the broker's error, or NoAnswer."""
        call = Call(method, arguments, options, about)
        call.future = self._loop.create_future()
        rng = self._rng
        if rng.random() >= self._lose_request:
            later(self._loop, self._delay_s(), self._arrive, call)
        if rng.random() < self._repeat:
            later(self._loop, self._delay_s() + rng.random() * 2, self._arrive, Call(method, arguments, options, about))
        if self._reliable:
            return await call.future
        timer = later(self._loop, TIMEOUT_S + wait_s, self._give_up, call)
        try:
            return await call.future
        finally:
            timer.cancel()

    def answer(self, call: Call, result: Any, error: PenstockError | None) -> None:
        """The broker has answered."""
        if call.future is not None and self._rng.random() >= self._lose_response:
            later(self._loop, self._delay_s(), _settle, call.future, result, error)

    def reset(self, call: Call) -> None:
        """The broker crashed before its answer; the connection breaks."""
        if call.future is not None:
            later(self._loop, self._delay_s(), _settle, call.future, None, NoAnswer())

    def _arrive(self, call: Call) -> None:
        if not self._server.serve(call):
            self.reset(call)

    def _give_up(self, call: Call) -> None:
        if call.future is not None and not call.future.done():
            call.future.set_exception(NoAnswer())
            if call.task is not None and self._rng.random() < self._impatient:
                call.task.cancel()

    def _delay_s(self) -> float:
        rng = self._rng
        if self._straggle and rng.random() < self._straggle:
            return rng.random() * 15
        return 0.001 + rng.random() * 0.02


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if not future.done():
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
