"""Limits of addresses, principals, namespaces and queues, and their use.

An address is limited before its credential is looked at; a principal by requests, messages and bytes; a namespace by
the writes to it, of all principals together. Settling a message is counted and never refused: consumers must be able to
finish what they have. The tables are bounded: an entry that is forgotten only allows more.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from penstock import limits
from penstock.errors import RateLimited
from penstock.security.addresses import counted_address
from penstock.security.buckets import Rate, TokenBucket
from penstock.security.principal import Principal


class AccessLimits(NamedTuple):
    """None or 0: no limit."""

    address_requests: Rate | None = None
    address_failures: int = limits.FAILURES_PER_MINUTE
    """Wrong credentials a minute."""
    key_requests: Rate | None = None
    key_messages: Rate | None = None
    key_bytes: Rate | None = None
    key_streams: int = 0
    key_in_flight: int = 0
    namespace_requests: Rate | None = None
    namespace_messages: Rate | None = None
    namespace_bytes: Rate | None = None
    queue_streams: int = 0
    queue_in_flight: int = 0


class WrittenAmount(NamedTuple):
    """Messages and bytes that a request writes to one namespace."""

    messages: int
    size: int


class Quotas:
    """The limits of a server, and their use. `now_s` is that of a monotonic clock."""

    def __init__(self, bounds: AccessLimits, now_s: Callable[[], float]):
        self.bounds = bounds
        self._now_s = now_s
        self._buckets: OrderedDict[tuple[str, str, Rate], TokenBucket] = OrderedDict()
        self._streams: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[str] = Counter()
        """Refusals by the name of the limit."""

    # -- rates --------------------------------------------------------------------------------------------------------

    def demand_address(self, address: str) -> None:
        if self.bounds.address_requests is not None:
            self._demand([("address_requests", counted_address(address), self.bounds.address_requests, 1)])

    def demand_request(self, principal: Principal, *, settles: bool = False) -> None:
        """Count a request. One that settles messages is not refused."""
        rate = principal.rate or self.bounds.key_requests
        if rate is None:
            return
        if settles:
            self._bucket("key_requests", principal_name(principal), rate).spend(self._now_s())
        else:
            self._demand([("key_requests", principal_name(principal), rate, 1)])

    @property
    def meters_writes(self) -> bool:
        bounds = self.bounds
        return any(
            (bounds.key_messages, bounds.key_bytes, bounds.namespace_requests, bounds.namespace_messages,
             bounds.namespace_bytes)
        )  # fmt: skip

    def demand_write(self, principal: Principal, written: Mapping[str, WrittenAmount]) -> None:
        """Count a write to namespaces, or refuse all of it."""
        bounds, name = self.bounds, principal_name(principal)
        messages = sum(each.messages for each in written.values())
        size = sum(each.size for each in written.values())
        wanted: list[tuple[str, str, Rate | None, int]] = [
            ("key_messages", name, bounds.key_messages, messages),
            ("key_bytes", name, bounds.key_bytes, size),
        ]
        for namespace, each in written.items():
            wanted += [
                ("namespace_requests", namespace, bounds.namespace_requests, 1),
                ("namespace_messages", namespace, bounds.namespace_messages, each.messages),
                ("namespace_bytes", namespace, bounds.namespace_bytes, each.size),
            ]
        self._demand([(limit, of, rate, count) for limit, of, rate, count in wanted if rate is not None and count])

    def _demand(self, wanted: list[tuple[str, str, Rate, int]]) -> None:
        now_s = self._now_s()
        found = [(self._bucket(limit, of, rate), limit, rate, count) for limit, of, rate, count in wanted]
        for bucket, limit, rate, count in found:
            wait_s = bucket.wait_s(now_s, count)
            if wait_s:
                raise self._refusal(limit, str(rate), int(wait_s * 1000) + 1)
        for bucket, _, _, count in found:
            bucket.spend(now_s, count)

    def _bucket(self, limit: str, of: str, rate: Rate) -> TokenBucket:
        name = limit, of, rate
        found = self._buckets.get(name)
        if found is None:
            found = self._buckets[name] = TokenBucket(rate)
            if len(self._buckets) > limits.ADDRESSES_TRACKED_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        return found

    # -- numbers ------------------------------------------------------------------------------------------------------

    def open_stream(self, principal: Principal, *queues: str) -> Callable[[], None]:
        """Count a stream of the principal, and of these queues: of all or of none. Returns the function that is called
        at its end."""
        with ExitStack() as opened:
            opened.callback(self._open("key_streams", principal_name(principal), self.bounds.key_streams))
            for queue in queues:
                opened.callback(self.open_queue_stream(queue))
            return opened.pop_all().close

    def open_queue_stream(self, queue: str) -> Callable[[], None]:
        return self._open("queue_streams", queue, self.bounds.queue_streams)

    def _open(self, limit: str, of: str, most: int) -> Callable[[], None]:
        name = limit, of
        if most and self._streams[name] >= most:
            raise self._refusal(limit, str(most))
        self._streams[name] += 1
        is_open = True

        def close() -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                self._streams[name] -= 1
                if not self._streams[name]:
                    del self._streams[name]

        return close

    def refusal(self, limit: str) -> RateLimited:
        """For one that has the limit already."""
        return self._refusal(limit, str(getattr(self.bounds, limit)))

    def _refusal(self, limit: str, allowed: str, retry_after_ms: int = 1_000) -> RateLimited:
        self.refused[limit] += 1
        return RateLimited(
            f"the limit {limit} of {allowed} is reached; retry later, or send less",
            details={"limit": limit}, retry_after_ms=retry_after_ms,
        )  # fmt: skip


def principal_name(principal: Principal) -> str:
    """Of all secrets of a key, and of all sessions of a person."""
    return f"{principal.kind}:{principal.id}"
