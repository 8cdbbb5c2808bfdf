"""Methods whose last argument is a function that is called later, and the forms of its arguments on a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from penstock.broker.feed import Happening
from penstock.cluster.codec import decode_error, encode_error

_encode = msgspec.msgpack.Encoder().encode
_decode_partition = msgspec.msgpack.Decoder(int | None).decode
_decode_happenings = msgspec.msgpack.Decoder(list[Happening]).decode


class Watch(NamedTuple):
    encode: Callable[[Any], bytes]
    """The argument of the function."""
    notify: Callable[[Callable[..., None], bytes], None]
    """Call the function with the argument in a frame."""
    interrupted: Callable[[Callable[..., None]], None] = lambda _: None
    """The connection has ended, and notices may be missing."""


WATCHES = {
    "log.watch": Watch(_encode, lambda changed, body: changed(_decode_partition(body)), lambda changed: changed(None)),
    "log.watch_end": Watch(encode_error, lambda ended, body: ended(decode_error(body))),
    "feed.watch": Watch(_encode, lambda told, body: told(_decode_happenings(body))),
}
