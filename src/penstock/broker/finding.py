"""A message by its handle: the id that the broker gave it, or the one that its client chose."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.state import Queue
from penstock.errors import InvalidRequest
from penstock.ids import MessageId, ulid_value
from penstock.runtime.log import MessageLog


class Handle(NamedTuple):
    id: MessageId
    partition: int | None
    offset: int | None
    """None, both: no message with this id is stored."""
    client_id: bytes = b""
    """Set if it was found by the id that its client chose."""


def find_message(log: MessageLog, queue: Queue, text: str) -> Handle | None:
    """None for a text that is neither the form of a message id nor a client id that the queue knows.

    A text that could be either is the message id if a message with it is stored. The client id of a message is known
    for as long as the message is not finished, and at least for a day.
    """
    try:
        message_id = ulid_value(text)
    except InvalidRequest:
        message_id = None
    if message_id is not None:
        for number in range(len(queue.partitions)):
            offset = log.find(queue.number, number, message_id)
            if offset is not None:
                return Handle(message_id, number, offset)
    client_id = text.encode()
    place = queue.dedup.place_of(client_id)
    if place is not None:
        return Handle(MessageId(place.id), place.partition, place.offset, client_id)
    return None if message_id is None else Handle(message_id, None, None)
