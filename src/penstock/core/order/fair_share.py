"""Fair share: the tenants of a queue take turns, however many messages each has waiting.

Deficit round robin: in its turn a tenant may have as many messages as its weight says (1, unless the queue says
otherwise), then it goes to the back of the row. A tenant that has as many messages in flight as it may is passed over
until one of them is settled. Order and priority apply within a tenant's own messages: fairness comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from penstock.core.order.fifo import Valid


class Order(Protocol):
    """Ready messages in the order of a queue: `Line`, `Lanes` or `Heap`."""

    def push(self, place: int, priority: int, *, fresh: bool) -> None: ...

    def push_all(self, places: Sequence[int], priorities: Sequence[int]) -> None: ...

    def pop(self, valid: Valid, now_ms: int) -> int | None: ...

    def sweep(self, valid: Valid) -> None: ...

    def turns(self, valid: Valid, now_ms: int) -> Iterator[int]: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...


class FairShare:
    """Ready messages by tenant. A tenant is its hash; 0 are the messages without one, which share one turn."""

    __slots__ = (
        "_count", "_make", "_orders", "_ready", "_resting", "_swept", "_taken", "_turn", "_weights", "cap", "in_flight",
    )  # fmt: skip

    def __init__(self, make: Callable[[], Order], weights: Mapping[int, int], cap: int | None):
        self._make = make
        self._weights = weights
        self.cap = cap
        self._orders: dict[int, Order] = {}
        self._count = 0
        """Entries of all orders; kept as they change, because there may be a hundred thousand orders."""
        self._ready: deque[int] = deque()
        """Tenants that have something, next one first."""
        self._resting: set[int] = set()
        """Tenants that have something and were found at their cap."""
        self._turn = 0
        """Messages that the first tenant may still have in this turn."""
        self._taken: dict[int, int] = {}
        """Tenant -> messages that were popped for a decision that is not applied yet."""
        self._swept: list[int] = []
        """Tenants whose messages are yet to be swept in this round."""
        self.in_flight: dict[int, int] = {}

    def follow(self, weights: Mapping[int, int], cap: int | None) -> None:
        """Other weights and another cap from now on. Tenants that were found at the old cap are checked again."""
        self._weights = weights
        self.cap = cap
        self._ready.extend(self._resting)
        self._resting.clear()
        if self._ready:
            self._turn = min(self._turn, weights.get(self._ready[0], 1))

    def push(self, tenant: int, place: int, priority: int, *, fresh: bool) -> None:
        self._order(tenant).push(place, priority, fresh=fresh)
        self._count += 1
        self._wake(tenant)

    def push_all(self, tenant: int, places: Sequence[int], priorities: Sequence[int]) -> None:
        """Many of one tenant at once, all fresh."""
        self._order(tenant).push_all(places, priorities)
        self._count += len(places)
        self._wake(tenant)

    def _order(self, tenant: int) -> Order:
        order = self._orders.get(tenant)
        if order is None:
            order = self._orders[tenant] = self._make()
            self._ready.append(tenant)
        return order

    def begin(self) -> None:
        """A new decision: what was popped for the last one is counted as in flight by now."""
        self._taken.clear()

    def pop(self, valid: Valid, now_ms: int) -> int | None:
        while self._ready:
            tenant = self._ready[0]
            if self._turn <= 0:
                self._turn = self._weights.get(tenant, 1)
            order = self._orders[tenant]
            if self._at_cap(tenant) and len(order):
                self._resting.add(tenant)
                self._next()
                continue
            before = len(order)
            place = order.pop(valid, now_ms)
            self._count -= before - len(order)
            if place is None:
                del self._orders[tenant]
                self._next()
                continue
            self._taken[tenant] = self._taken.get(tenant, 0) + 1
            self._turn -= 1
            if self._turn <= 0:
                self._ready.rotate(-1)
            return place
        return None

    def turns(self, valid: Valid, now_ms: int) -> Iterator[int]:
        """The places that one decision would pop, in order, without popping them: `pop`, again and again, on copies."""
        ready, turn = deque(self._ready), self._turn
        rows: dict[int, Iterator[int]] = {}
        taken: dict[int, int] = {}
        while ready:
            tenant = ready[0]
            turn = turn if turn > 0 else self._weights.get(tenant, 1)
            room = self.cap is None or self.in_flight.get(tenant, 0) + taken.get(tenant, 0) < self.cap
            if room and tenant not in rows:
                rows[tenant] = self._orders[tenant].turns(valid, now_ms)
            place = next(rows[tenant], None) if room else None
            if place is None:
                ready.popleft()
                turn = 0
                continue
            taken[tenant] = taken.get(tenant, 0) + 1
            turn -= 1
            if turn <= 0:
                ready.rotate(-1)
            yield place

    def is_full(self, tenant: int) -> bool:
        """True if this tenant has as many in flight as it may."""
        return self.cap is not None and self.in_flight.get(tenant, 0) >= self.cap

    def _at_cap(self, tenant: int) -> bool:
        return self.cap is not None and self.in_flight.get(tenant, 0) + self._taken.get(tenant, 0) >= self.cap

    def _next(self) -> None:
        """The first tenant leaves the row: it has nothing, or may not have more."""
        self._ready.popleft()
        self._turn = 0

    def leased(self, tenant: int, count: int) -> None:
        self.in_flight[tenant] = self.in_flight.get(tenant, 0) + count

    def let_go(self, tenant: int, count: int) -> None:
        left = self.in_flight.get(tenant, 0) - count
        if left > 0:
            self.in_flight[tenant] = left
        else:
            self.in_flight.pop(tenant, None)
        self._wake(tenant)

    def _wake(self, tenant: int) -> None:
        if tenant in self._resting:
            self._resting.remove(tenant)
            self._ready.append(tenant)

    def sweep(self, valid: Valid) -> None:
        self._swept = self._swept or list(self._orders)
        order = self._orders.get(self._swept.pop()) if self._swept else None
        if order is not None:
            before = len(order)
            order.sweep(valid)
            self._count -= before - len(order)

    def __len__(self) -> int:
        return self._count

    def orders(self) -> Iterable[Order]:
        return self._orders.values()

    def order_of(self, tenant: int) -> Order | None:
        """The ready messages of this tenant, if it has any."""
        return self._orders.get(tenant)

    @property
    def waiting(self) -> int:
        """Tenants that have something ready, at their cap or not."""
        return len(self._orders)

    def __iter__(self) -> Iterator[int]:
        """Turn by turn, as if no tenant were at the cap."""
        rows = deque((tenant, iter(self._orders[tenant])) for tenant in [*self._ready, *self._resting])
        while rows:
            tenant, row = rows.popleft()
            given = list(islice(row, self._weights.get(tenant, 1)))
            yield from given
            if given:
                rows.append((tenant, row))
