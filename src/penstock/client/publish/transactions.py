"""Transactions without I/O: the messages to publish, and the meaning of the answer.

A transaction may be repeated until it is answered: the server recognises the same request by its content if it acks at
least one message. The server recognises a transaction without acks by the ids that its messages are given here.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec

from penstock import limits
from penstock.batch import layout
from penstock.client.messages.leased import receipts_of
from penstock.client.publish.frames import PLAIN, PublishOptions, Row, make_options, row
from penstock.client.publish.published import PublishedMessage
from penstock.client.transport.retry import AnswerLost, RetryState
from penstock.errors import PenstockError, StaleReceipt
from penstock.ids import parse_queue
from penstock.wire.replies import TransactReply

if TYPE_CHECKING:
    from penstock.client.consume.messages import Settleable


class Transacted(NamedTuple):
    """The result of a transaction."""

    acked: list[str]
    """Receipts."""
    messages: list[PublishedMessage]


class Outbox:
    """Messages on their way; nothing is sent before the transaction is."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def publish(self, queue: str, value: Any, **options: Unpack[PublishOptions]) -> None:
        """Publish this with the transaction; the options are those of `Queue.publish`, and so are the errors."""
        self.items.append(_item(parse_queue(queue), row(value, make_options(**options))))


def outbox_of(messages: Iterable[Sequence[Any]]) -> Outbox:
    """From `(queue, value)` or `(queue, value, {"key": …})` each."""
    outbox = Outbox()
    for message in messages:
        queue, value, *options = message
        outbox.publish(queue, value, **(options[0] if options else {}))
    return outbox


def idempotent(items: list[dict[str, Any]], receipts: Sequence[str]) -> list[dict[str, Any]]:
    """The items, in a form in which sending them twice stores them once."""
    return items if receipts else [{"id": f"sdk-{secrets.token_hex(12)}", **item} for item in items]


def receipts_to_ack(ack: Iterable[Settleable | str]) -> list[str]:
    """Of messages and batches that are not settled yet; receipts themselves as they are."""
    receipts: list[str] = []
    for each in ack:
        receipts += [each] if isinstance(each, str) else receipts_of(each.open_spans())
    return receipts


def mark_settled(ack: Iterable[Settleable | str]) -> None:
    for each in ack:
        if not isinstance(each, str):
            each.mark(each.open_spans(), settled=True)


def stale_or_unknown(error: StaleReceipt, retry: RetryState, waited_s: float) -> PenstockError:
    """The error to raise for a stale receipt after all attempts.

    The server remembers a transaction that happened and confirms it again, so this one did not happen. After the time
    for which the server remembers, the outcome is unknown.
    """
    if retry.uncertain and waited_s * 1000 > limits.TRANSACTION_WINDOW_MS:
        return AnswerLost("whether the transaction happened is no longer known: its answer was lost too long ago")
    return error


def transacted(reply: TransactReply) -> Transacted:
    return Transacted(
        reply.acked,
        [
            PublishedMessage(each.id, each.queue, each.partition, each.offset, each.duplicate, reply.durable)
            for each in reply.messages
        ],
    )


def _item(queue: str, message: Row) -> dict[str, Any]:
    item: dict[str, Any] = {"queue": queue}
    if message.kind == layout.KIND_JSON:
        item["payload"] = msgspec.Raw(message.payload)
    else:
        item["payload_b64"] = b64encode(message.payload).decode()
    options = message.options
    for name, value, default in zip(options._fields, options, PLAIN, strict=True):
        if name == "headers" and value:
            item[name] = msgspec.Raw(options.headers)
        elif value != default:
            item[name] = value.decode() if isinstance(value, bytes) else value
    return item
