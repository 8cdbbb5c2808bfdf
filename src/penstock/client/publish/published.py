"""The result of a publish: where each message is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, SupportsIndex, overload

from penstock.ids import ulid_texts, ulid_value
from penstock.wire.replies import PublishRunsReply


class PublishedMessage(NamedTuple):
    """One message after it was published."""

    id: str
    queue: str
    partition: int
    offset: int
    duplicate: bool
    """True if the server had this message already (same client id, or a repeated send); nothing was stored again."""
    durable: bool
    """False only if the server is configured not to wait for the disk."""


class Published(Sequence[PublishedMessage]):
    """The messages that `publish_many` stored, in the order given. Kept as runs; each is made when it is asked for."""

    __slots__ = ("_messages", "replies")

    def __init__(self, replies: list[PublishRunsReply]):
        self.replies = replies
        """One per frame that was sent."""
        self._messages: list[PublishedMessage] | None = None

    def __len__(self) -> int:
        return sum(run.count for reply in self.replies for run in reply.runs)

    @property
    def durable(self) -> bool:
        return all(reply.durable for reply in self.replies)

    @property
    def duplicates(self) -> int:
        """How many the server had already."""
        return sum(run.count for reply in self.replies for run in reply.runs if run.duplicate)

    @property
    def ids(self) -> list[str]:
        return [message.id for message in self]

    @overload
    def __getitem__(self, index: SupportsIndex) -> PublishedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[PublishedMessage]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __iter__(self) -> Iterator[PublishedMessage]:
        return iter(self._all())

    def __repr__(self) -> str:
        return f"<Published {len(self)} messages>"

    def _all(self) -> list[PublishedMessage]:
        if self._messages is None:
            self._messages = [message for reply in self.replies for message in messages_of(reply)]
        return self._messages


def messages_of(reply: PublishRunsReply) -> list[PublishedMessage]:
    """One PublishedMessage per row of the frame that was sent, in row order."""
    in_order: list[PublishedMessage] = []
    placed: dict[int, PublishedMessage] = {}
    for run in reply.runs:
        texts = ulid_texts(ulid_value(run.id), run.count)
        messages = [
            PublishedMessage(text, run.queue, run.partition, offset, run.duplicate, reply.durable)
            for offset, text in enumerate(texts, run.offset)
        ]
        if run.rows is None:
            in_order += messages
        else:
            placed.update(zip(run.rows, messages, strict=True))
    if not placed:
        return in_order
    rest = iter(in_order)
    return [placed[row] if row in placed else next(rest) for row in range(len(placed) + len(in_order))]
