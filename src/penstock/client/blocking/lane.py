"""Publishing of the blocking client: one request per call, made by the thread that calls."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.client.calls.publish import ProducerSeq, publish
from penstock.client.publish.frames import EncodedFrame, Row, frame_of_rows
from penstock.client.publish.published import PublishedMessage, messages_of
from penstock.client.publish.sequences import Sequencer
from penstock.client.transport.carrier import Carrier
from penstock.ids import QueuePath
from penstock.wire.replies import PublishRunsReply


class DirectLane:
    """A `Publisher` that sends at once: order is kept per thread, and a blocked call is its own backpressure."""

    def __init__(self, carrier: Carrier, queue: QueuePath, producer: str):
        self._carrier = carrier
        self._queue = queue
        self._sequencer = Sequencer(producer)

    async def publish(self, row: Row) -> PublishedMessage:
        return messages_of(await self._send(frame_of_rows([row]), None))[0]

    async def publish_frames(
        self, frames: Iterator[EncodedFrame], sequence: ProducerSeq | None
    ) -> list[PublishRunsReply]:
        replies = []
        number = None if sequence is None else ProducerSeq(*sequence)
        for frame in frames:
            self._carrier.kept = frame.kept
            replies.append(await self._send(frame, number))
            if number is not None:
                number = number._replace(seq=number.seq + frame.rows)
        return replies

    async def drain(self) -> None:
        """Nothing is under way that no thread waits for."""

    async def _send(self, frame: EncodedFrame, sequence: ProducerSeq | None) -> PublishRunsReply:
        call = publish(self._queue, frame.data, sequence or self._sequencer.take(frame.rows))
        return await self._carrier.request(call)
