"""Connections of this process to brokers. They are kept, because Spark uses a worker for many tasks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from penstock.client import lowlevel as calls
from penstock.client.lowlevel import BlockingCalls, Call, Unreachable
from penstock.errors import Conflict, PenstockError, QueueNotFound
from penstock.pipeline import bulk
from penstock.pipeline.options import Options, OtherIncarnation, PipelineError

T = TypeVar("T")

TIMEOUT_S = 60.0
_PAGE = 500
_log = logging.getLogger("penstock.pipeline")


class BrokerUnreachable(PipelineError):
    """No connection to the broker was made for as long as the call may be repeated."""


class BrokerCalls(NamedTuple):
    """The address of a broker, and how long calls are repeated. Goes from the driver to its tasks."""

    url: str
    token: str | None
    retry_for_s: float
    waits: bool = False
    """`ask` waits for a broker that cannot be reached, also if it never was: for streams."""

    @classmethod
    def of(cls, options: Options) -> BrokerCalls:
        return cls(options.url, options.token, options.retry_for_s)

    def ask(self, call: Call[T]) -> T:
        """The reply. A broker that was never reached is reported at once, for the driver: it is likely a wrong url."""
        try:
            return self._ask(call, patient=False)
        except BrokerUnreachable as error:
            if not self.waits:
                raise
            _log.warning("broker_unreachable: %s; waiting for up to %d s", error, self.retry_for_s)
            return self._ask(call, patient=True)

    def ask_patiently(self, call: Call[T]) -> T:
        """The reply, for tasks: the driver has reached the broker before, so one that is away is restarting."""
        return self._ask(call, patient=True)

    def ask_raw(self, call: Call[T], *, patient: bool = True) -> T:
        """The same, with the errors of the SDK."""
        return _calls(self, os.getpid()).request(call, patient=patient)

    def _ask(self, call: Call[T], *, patient: bool) -> T:
        try:
            return self.ask_raw(call, patient=patient)
        except Unreachable as error:
            raise BrokerUnreachable(f"{error.message} (option `url`)") from None
        except QueueNotFound as error:
            raise PipelineError(f"{error.message} at {self.url}; `penstock queues` lists what is there") from None
        except Conflict as error:
            if error.details.get("field") == "uuid":
                raise OtherIncarnation(error.message) from None
            raise PipelineError(f"the broker at {self.url} says: {error.message} ({error.code})") from None
        except PenstockError as error:
            raise PipelineError(f"the broker at {self.url} says: {error.message} ({error.code})") from None


def broker_id(broker: BrokerCalls) -> str:
    """The id of the broker's storage; empty if the broker is too old to have one."""
    return broker.ask(bulk.event_ranges("latest", until=0, each=1)).broker


def listed_queues(broker: BrokerCalls, prefix: str = "") -> Iterator[dict[str, Any]]:
    """All queues of the broker, as `GET /v1/queues` shows them."""
    page = 1
    while True:
        listed = broker.ask_patiently(
            calls.operation("list_queues", dict[str, Any], prefix=prefix, page=page, limit=_PAGE)
        )
        yield from listed["queues"]
        if page * _PAGE >= listed["total"]:
            return
        page += 1


@lru_cache(maxsize=16)
def _calls(broker: BrokerCalls, _process: int) -> BlockingCalls:
    """One per process: a forked worker must not share its parent's sockets."""
    return BlockingCalls(broker.url, token=broker.token, timeout_s=TIMEOUT_S, retry_for_s=broker.retry_for_s)
