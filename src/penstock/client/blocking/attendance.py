"""Staying a member without asyncio: the rules of `_attendance.py`. The consumer's helper thread calls `beat`."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection

from penstock.client.blocking.carrier import Carrier
from penstock.client.consume.membership import Change, Seat
from penstock.client.consume.options import RELEASE_WITHIN_S
from penstock.errors import PenstockError

log = logging.getLogger("penstock.client")


class Attendance:
    """One consumer's membership. `on_revoked` is told at once which partitions are no longer its own."""

    def __init__(self, carrier: Carrier, seat: Seat, on_revoked: Callable[[Collection[int]], None]):
        self.seat = seat
        self.beat_at: float | None = None
        """When to call `beat`; None while it is not a member."""
        self._carrier = carrier
        self._on_revoked = on_revoked
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Be a member. Raises what joining was refused with."""
        with self._lock:
            if not self.seat.joined:
                self._take_over(self.seat.adopt(self._carrier.request(self.seat.join())))

    def catch_up(self, generation: int | None) -> None:
        """The group is at this generation: hear what has changed, if anything has."""
        if self.seat.is_behind(generation):
            self.beat_quietly()

    def beat(self) -> None:
        """Be heard, and take over the answer. Raises what cannot be mended by joining again."""
        with self._lock:
            if not self.seat.joined:
                return
            self.beat_at = time.monotonic() + self.seat.heartbeat_s
            try:
                share = self._carrier.request(
                    self.seat.heartbeat(), self._carrier.new_retry(within_s=self.seat.heartbeat_s)
                )
            except PenstockError as error:
                if not self.seat.is_out(error):
                    raise
                self._take_over(self.seat.lose())
            else:
                self._take_over(self.seat.adopt(share))

    def beat_quietly(self) -> None:
        try:
            self.beat()
        except PenstockError as error:
            # The next lease call meets the same, and tells the consumer.
            log.warning("heartbeat of %s failed: %s", self.seat.member, error)

    def put_out(self, error: PenstockError) -> bool:
        """After a refusal: True if the place was lost and another may be taken."""
        if not self.seat.is_out(error):
            return False
        with self._lock:
            self._take_over(self.seat.lose())
        return True

    def leave(self) -> None:
        """The end. If the server cannot be told, the session runs out."""
        with self._lock:
            if self.seat.may_be_member:
                with contextlib.suppress(PenstockError):
                    self._carrier.request(self.seat.leave(), self._carrier.new_retry(within_s=RELEASE_WITHIN_S))
                self._take_over(self.seat.lose())

    def _take_over(self, change: Change) -> None:
        self.beat_at = time.monotonic() + self.seat.heartbeat_s if self.seat.joined else None
        if change.revoked:
            self._on_revoked(change.revoked)
        for hook, partitions in self.seat.hooks(change):
            try:
                hook(partitions)
            except Exception:
                log.exception("a hook for partitions %s failed", partitions)
