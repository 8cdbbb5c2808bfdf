"""The hold of a lake: the broker keeps everything that is not in the lake yet."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import Conflict, InvalidRequest, NotFound, PenstockError, QueueNotFound
from penstock.pipeline import bulk
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.spans import frame_of
from penstock.pipeline.lake.subject import EVENTS, Subject
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.options import PipelineError
from penstock.wire.holds import HoldReply


class NoSuchQueue(PipelineError):
    """A queue that should be held was deleted, or deleted and created again."""


class LakeHold:
    """One hold for everything that a lake has, or is about to have. Movement by one process at a time."""

    def __init__(self, broker: BrokerCalls, lake: Lake, max_bytes: int | None):
        self._broker = broker
        self._lake = lake
        self._max_bytes = max_bytes
        self.name = f"lake-{lake.id[:16]}"
        self._durable = {"messages": -1, "events": -1}
        self._moved_to: tuple[int, dict[str, dict[str, int]], dict[str, str]] | None = None

    def check(self, *, adopt: bool) -> None:
        """Raises PipelineError if the broker does not have the hold, or has dropped it; `adopt` sets it again."""
        try:
            known = self._broker.ask_raw(bulk.get_hold(self.name), patient=False)
        except NotFound:
            if self._lake.table("events").rows_committed(EVENTS) and not adopt:
                raise PipelineError(
                    f"the broker at {self._broker.url} has no hold {self.name!r}: the lake in {self._lake.directory} "
                    "was filled from another broker, or the hold was removed. If it is the same broker, --adopt sets "
                    "it again"
                ) from None
            return
        except PenstockError as error:
            raise PipelineError(f"{error.message} (--url)") from None
        if known.lost_at_ms is not None:
            if not adopt:
                raise PipelineError(
                    f"hold {self.name!r} was dropped, because it spanned more than {known.max_bytes} bytes: the broker "
                    "may have removed what is not in the lake. --adopt goes on, and fails with an exact account if "
                    "it has"
                )
            self._broker.ask(bulk.remove_hold(self.name))

    def move(self, queues: Iterable[Subject]) -> HoldReply | None:
        """Move the hold to what is durable in the lake. Queues of which nothing is in it are held from their start.

        Raises NoSuchQueue if one of the queues is not there, or is another incarnation; then the hold stays.
        """
        messages, events = self._lake.table("messages"), self._lake.table("events")
        for table in (messages, events):
            name = table.layout.table
            self._durable[name] = table.make_durable(self._durable[name])
        place = events.positions(EVENTS).get(0, 0)
        frame = frame_of(place - 1) if place else 0
        held, uuids = {}, {}
        for subject in queues:
            positions = {str(lane): offset for lane, offset in messages.positions(subject).items()}
            held[subject.queue] = positions or {"0": 0}
            if subject.uuid is not None:
                uuids[subject.queue] = subject.uuid
        if self._moved_to == (frame, held, uuids):
            return None
        try:
            reply = self._broker.ask_raw(
                bulk.set_hold(self.name, events=frame, queues=held, max_bytes=self._max_bytes, uuids=uuids)
            )
        except QueueNotFound as error:
            raise NoSuchQueue(f"{error.message} at {self._broker.url}; `penstock queues` lists what is there") from None
        except InvalidRequest as error:
            raise PipelineError(
                f"the broker at {self._broker.url} does not have what the lake in {self._lake.directory} has: "
                f"{error.message}. It is another broker, or it was restored from an older copy"
            ) from None
        except Conflict as error:
            kind = NoSuchQueue if error.details.get("field") == "uuid" else PipelineError
            raise kind(error.message) from None
        except PenstockError as error:
            raise PipelineError(f"the broker at {self._broker.url} says: {error.message} ({error.code})") from None
        self._moved_to = (frame, held, uuids)
        return reply
