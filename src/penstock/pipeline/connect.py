"""Connections of this process to brokers. Spark uses a worker for many tasks, so they are kept."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple, TypeVar

from penstock.client.lowlevel import BlockingCalls, Call, Unreachable
from penstock.errors import PenstockError, QueueNotFound
from penstock.pipeline.options import Options, PipelineError

T = TypeVar("T")

TIMEOUT_S = 60.0


class Broker(NamedTuple):
    """Where the broker is, and how patient to be. Goes from the driver to its tasks."""

    url: str
    token: str | None
    retry_for_s: float

    @classmethod
    def of(cls, options: Options) -> Broker:
        return cls(options.url, options.token, options.retry_for_s)

    def ask(self, call: Call[T]) -> T:
        """The answer. A broker that was never there is reported at once, for the driver: it is likely a wrong url."""
        return self._ask(call, patient=False)

    def ask_patiently(self, call: Call[T]) -> T:
        """The answer, for tasks: the driver has had an answer before, so a broker that is not there is restarting."""
        return self._ask(call, patient=True)

    def ask_raw(self, call: Call[T], *, patient: bool = True) -> T:
        """The same with the errors of the SDK, for those who know what to make of them."""
        return _calls(self, os.getpid()).request(call, patient=patient)

    def _ask(self, call: Call[T], *, patient: bool) -> T:
        try:
            return self.ask_raw(call, patient=patient)
        except Unreachable as error:
            raise PipelineError(f"{error.message} (option `url`)") from None
        except QueueNotFound as error:
            raise PipelineError(f"{error.message} at {self.url}; `penstock queues` lists what is there") from None
        except PenstockError as error:
            raise PipelineError(f"the broker at {self.url} says: {error.message} ({error.code})") from None


@lru_cache(maxsize=16)
def _calls(broker: Broker, _process: int) -> BlockingCalls:
    """One per process: a forked worker must not share its parent's sockets."""
    return BlockingCalls(broker.url, token=broker.token, timeout_s=TIMEOUT_S, retry_for_s=broker.retry_for_s)
