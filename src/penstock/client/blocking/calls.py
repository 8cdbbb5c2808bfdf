"""Single calls to one server from any thread, for programs that need none of the client's objects."""

from __future__ import annotations

import weakref
from typing import TypeVar

from penstock.client.blocking.runtime import BlockingRuntime, run_to_end
from penstock.client.blocking.socket_pool import SocketPool
from penstock.client.calls.call import Call
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.endpoint import HTTP, ServerEndpoint
from penstock.client.transport.retry import RetryPolicy
from penstock.errors import InvalidRequest

T = TypeVar("T")


class BlockingCalls:
    """Over HTTP. Connections are kept until the object is dropped; a forked process must make its own."""

    def __init__(self, url: str, *, token: str | None, timeout_s: float, retry_for_s: float):
        """Raises InvalidRequest for a URL of no use."""
        runtime = BlockingRuntime()
        endpoint = ServerEndpoint(url, token=token, timeout_s=timeout_s)
        if endpoint.scheme != HTTP:
            raise InvalidRequest(f"{url!r} is not a http:// address", details={"field": "url"})
        self._pool = SocketPool(endpoint, runtime)
        self._carrier = Carrier(self._pool, RetryPolicy(retry_for_s), lambda: runtime)
        weakref.finalize(self, self._pool.close_idle)

    def request(self, call: Call[T], *, patient: bool) -> T:
        """The result. A server that was never reached is an error at once, unless the caller is `patient`."""
        self._pool.reached |= patient
        return run_to_end(self._carrier.request(call))
