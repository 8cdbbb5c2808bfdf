"""Payloads of an exact size that every peer can carry: JSON text, each different."""

from __future__ import annotations

from random import Random


def payload(number: int, size: int = 200) -> bytes:
    """A JSON object of `size` bytes that carries `number`."""
    head = b'{"n":%d,"text":"' % number
    return head + b"x" * (size - len(head) - 2) + b'"}'


def payloads(count: int, size: int = 200) -> list[bytes]:
    return [payload(number, size) for number in range(count)]


_ORDER = b'{"order":"%032x","customer":%d,"sku":["%08x","%08x"],"cents":%d,"at":"2026-11-%02dT%02d:%02dZ","token":"'


def orders(count: int, dice: Random, size: int = 200) -> list[bytes]:
    """JSON with different values in each payload, so that compression has little effect."""
    made = []
    for _ in range(count):
        head = _ORDER % (
            dice.getrandbits(128), dice.randrange(100_000), dice.getrandbits(32), dice.getrandbits(32),
            dice.randrange(100_000), dice.randint(1, 30), dice.randrange(24), dice.randrange(60),
        )  # fmt: skip
        room = size - len(head) - 2
        made.append(head + b"%0*x" % (room, dice.getrandbits(4 * room)) + b'"}')
    return made


def number_of(content: bytes) -> int:
    """The number that `payload` wrote."""
    return int(content[5 : content.index(b",")])
