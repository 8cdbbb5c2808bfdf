"""What keeps the broker from letting go of what is not in the lake yet."""

from __future__ import annotations

from penstock.client.lowlevel import bulk
from penstock.errors import Conflict, InvalidRequest, NotFound, PenstockError, QueueNotFound
from penstock.pipeline.connect import Broker
from penstock.pipeline.lake.spans import frame_of
from penstock.pipeline.lake.tables import EVENTS, Lake
from penstock.pipeline.options import PipelineError
from penstock.wire.holds import HoldReply


class NoSuchQueue(PipelineError):
    """A queue that should be held is not there, or not any more."""


class LakeHold:
    """One hold for all that a lake has, or is about to have. Moved by one process at a time."""

    def __init__(self, broker: Broker, lake: Lake, max_bytes: int | None):
        self._broker = broker
        self._lake = lake
        self._max_bytes = max_bytes
        self.name = f"lake-{lake.id[:16]}"
        self._durable = {"messages": -1, "events": -1}
        self._told: tuple[int, dict[str, dict[str, int]]] | None = None

    def check(self, *, adopt: bool) -> None:
        """Raises PipelineError if this is not the broker that the lake was filled from, or if the hold was lost."""
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
                    f"hold {self.name!r} was let go, because it spanned more than {known.max_bytes} bytes: the broker "
                    "may have removed what is not in the lake. --adopt goes on, and fails with an exact account if "
                    "it has"
                )
            self._broker.ask(bulk.remove_hold(self.name))

    def move(self, queues: list[str]) -> HoldReply | None:
        """To what is in the lake, and on its disk. Queues that have nothing in it yet are held from their start."""
        messages, events = self._lake.table("messages"), self._lake.table("events")
        for table in (messages, events):
            name = table.layout.table
            self._durable[name] = table.make_durable(self._durable[name])
        place = events.positions(EVENTS).get(0, 0)
        frame = frame_of(place - 1) if place else 0
        held = {
            queue: {str(lane): offset for lane, offset in messages.positions(queue).items()} or {"0": 0}
            for queue in queues
        }
        if self._told == (frame, held):
            return None
        try:
            reply = self._broker.ask_raw(bulk.set_hold(self.name, events=frame, queues=held, max_bytes=self._max_bytes))
        except QueueNotFound as error:
            raise NoSuchQueue(f"{error.message} at {self._broker.url}; `penstock queues` lists what is there") from None
        except InvalidRequest as error:
            raise PipelineError(
                f"the broker at {self._broker.url} does not have what the lake in {self._lake.directory} has: "
                f"{error.message}. It is another broker, or the queue was deleted and made again"
            ) from None
        except Conflict as error:
            raise PipelineError(error.message) from None
        except PenstockError as error:
            raise PipelineError(f"the broker at {self._broker.url} says: {error.message} ({error.code})") from None
        self._told = (frame, held)
        return reply
