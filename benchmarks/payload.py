"""Payloads of an exact size that every peer can carry: JSON text, each different, nothing else special about them."""

from __future__ import annotations


def payload(number: int, size: int = 200) -> bytes:
    """A JSON object of `size` bytes that carries `number`."""
    head = b'{"n":%d,"text":"' % number
    return head + b"x" * (size - len(head) - 2) + b'"}'


def payloads(count: int, size: int = 200) -> list[bytes]:
    return [payload(number, size) for number in range(count)]


def number_of(content: bytes) -> int:
    """What `payload` put in."""
    return int(content[5 : content.index(b",")])
