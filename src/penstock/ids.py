"""Queue paths, message ids and receipts: pure functions over strings and integers.

Message ids are ULIDs: 48 bits of milliseconds, 12 bits of the shard, 68 bits that are random once per batch and then
count up. The ids of one published run are therefore `first, first + 1, …`, and the ids of a partition grow with its
offsets, which is why finding a message by its id is a binary search and needs no index of its own.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NewType

from penstock import limits
from penstock.errors import InvalidRequest

QueuePath = NewType("QueuePath", str)
"""Canonical `namespace/task/name`."""

MessageId = NewType("MessageId", int)
"""A ULID as an integer; only the transports convert it to text."""

_SEGMENT = re.compile(limits.NAME_PATTERN)
_GROUP = re.compile(limits.GROUP_PATTERN)
_SCHEDULE = re.compile(limits.SCHEDULE_NAME_PATTERN)
_MEMBER = re.compile(limits.MEMBER_PATTERN)
_SEGMENT_RULE = "1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit"
_GROUP_RULE = "1 to 128 letters, digits, '.', '_', ':' or '-', starting with a letter or digit"
_SCHEDULE_RULE = "1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit"
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_PAIRS_ASCII = [pair.encode() for pair in _PAIRS]
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
ULID_CHARS = 26
_LOW_70 = (1 << 70) - 1
SHARD_BITS = 12
SHARD_SHIFT = 80 - SHARD_BITS
_RANDOM_MASK = (1 << SHARD_SHIFT - 1) - 1


def parse_queue(text: str) -> QueuePath:
    """Parse one to three segments; missing ones are `default`. Raises InvalidRequest with the rule."""
    segments = text.split("/") if isinstance(text, str) else []
    if 1 <= len(segments) <= 3 and all(_SEGMENT.fullmatch(segment) for segment in segments):
        if len(segments) == 1:
            return QueuePath(f"default/default/{segments[0]}")
        if len(segments) == 2:
            return QueuePath(f"{segments[0]}/default/{segments[1]}")
        return QueuePath(text)
    raise InvalidRequest(
        f"queue {str(text)[:200]!r} is not a queue path: one to three segments joined by '/', each of {_SEGMENT_RULE}",
        details={"field": "queue"},
    )


def parse_scope(text: str) -> str:
    """Parse one or two segments: a namespace, or a namespace and a task."""
    segments = text.split("/")
    if len(segments) <= 2 and all(_SEGMENT.fullmatch(segment) for segment in segments):
        return text
    raise InvalidRequest(
        f"scope {text[:200]!r} is not a scope: a namespace, or a namespace and a task joined by '/', each of "
        f"{_SEGMENT_RULE}",
        details={"field": "scope"},
    )


def _check_name(pattern: re.Pattern[str], rule: str, noun: str, kind: str, text: str) -> str:
    if not pattern.fullmatch(text):
        raise InvalidRequest(f"{noun} {text[:200]!r} is not {kind}: {rule}", details={"field": noun})
    return text


check_namespace = partial(_check_name, _SEGMENT, _SEGMENT_RULE, "namespace", "a namespace")
check_group = partial(_check_name, _GROUP, _GROUP_RULE, "group", "a group name")
check_client_id = partial(_check_name, _GROUP, _GROUP_RULE, "client_id", "a name for a reader")
check_member = partial(_check_name, _MEMBER, _GROUP_RULE, "member", "a name for a member")
check_schedule = partial(_check_name, _SCHEDULE, _SCHEDULE_RULE, "name", "a name for a schedule")


def ulid_text(value: int) -> str:
    """26 characters of Crockford's base 32, as the ULID specification writes them."""
    pairs = _PAIRS
    # Two halves of a machine word each: shifting the whole 128 bits thirteen times costs twice as much.
    high, low = value >> 70, value & _LOW_70
    return (
        f"{pairs[high >> 50]}{pairs[high >> 40 & 1023]}{pairs[high >> 30 & 1023]}{pairs[high >> 20 & 1023]}"
        f"{pairs[high >> 10 & 1023]}{pairs[high & 1023]}{pairs[low >> 60]}{pairs[low >> 50 & 1023]}"
        f"{pairs[low >> 40 & 1023]}{pairs[low >> 30 & 1023]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}"
        f"{pairs[low & 1023]}"
    )


def ulid_texts(first: int, count: int) -> list[str]:
    """The texts of `count` consecutive ids from `first`; the common prefix of 1,024 neighbours is encoded once."""
    texts: list[str] = []
    value, end = first, first + count
    while value < end:
        block = value >> 10
        prefix = ulid_text(block)[2:]
        stop = min(end, (block + 1) << 10)
        texts += [prefix + pair for pair in _PAIRS[value & 1023 : (stop - 1 & 1023) + 1]]
        value = stop
    return texts


ULID_TAIL_BITS = 10
"""Ids that differ in these bits only share all but the last two characters of their text."""


def ulid_tails(first: int, count: int) -> tuple[str, list[bytes]]:
    """The common prefix of consecutive ids from `first`, and the rest of each."""
    block, start = first >> ULID_TAIL_BITS, first & 1023
    if start + count <= 1024:
        return ulid_text(block)[2:], _PAIRS_ASCII[start : start + count]
    return "", [text.encode() for text in ulid_texts(first, count)]


def ulid_value(text: str, field: str = "id") -> MessageId:
    """Inverse of `ulid_text`; accepts lower case. Raises InvalidRequest with `field` for other text."""
    if len(text) != ULID_CHARS or text[0] > "7":
        raise InvalidRequest(f"{text[:64]!r} is not a message id (a ULID of 26 characters)", details={"field": field})
    value = 0
    try:
        for letter in text.upper():
            value = value << 5 | _VALUES[letter]
    except KeyError:
        raise InvalidRequest(
            f"{text!r} is not a message id (a ULID of 26 characters)", details={"field": field}
        ) from None
    return MessageId(value)


def id_at(now_ms: int, shard: int, entropy: int) -> int:
    """An id of this time and shard. The top random bit is clear: a run that counts up stays within its shard."""
    return now_ms << 80 | shard << SHARD_SHIFT | entropy & _RANDOM_MASK


def shard_of_id(id: int) -> int:
    """The shard that gave this id. An id that an earlier version gave has random bits in its place."""
    return id >> SHARD_SHIFT & (1 << SHARD_BITS) - 1


def receipt_prefix(shard: int, lease: int, nonce: int) -> str:
    """A receipt without its offset. It becomes stale with the lease; the nonce makes it unguessable."""
    return f"r1.{shard}.{lease}.{nonce:016x}."


def parse_receipt_prefix(prefix: str) -> tuple[int, int, int] | None:
    """(shard, lease, nonce) from the part of a receipt before its offsets, or None if it is malformed."""
    parts = prefix.split(".")
    if len(parts) != 4 or parts[0] != "r1" or len(prefix) > 80:
        return None
    try:
        return int(parts[1]), int(parts[2]), int(parts[3], 16)
    except ValueError:
        return None


def parse_offsets(text: str) -> tuple[int, int] | None:
    """Parse `12` (one message) or `12-99` (messages 12 to 99 of the lease); None for other text."""
    if len(text) > 40 or not text.isascii():
        return None
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        return None
    pair = int(first), int(last) if dash else int(first)
    return pair if pair[0] <= pair[1] else None
