"""The headers of a request that the HTTP edge acts on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from penstock.wire import cloudevents

EVENT_PREFIX = b"ce-"


class Fields:
    """Header names are in lower case."""

    __slots__ = (
        "accept", "content_encoding", "content_length", "content_type", "expects_continue", "has_event", "headers",
        "hosts", "origin", "traceparent", "transfer_coding",
    )  # fmt: skip

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]):
        self.headers = headers
        self.hosts: list[bytes] = []
        self.origin: bytes | None = None
        self.accept = b""
        self.content_type = b""
        self.content_encoding = b""
        self.content_length = 0
        self.transfer_coding = b""
        self.expects_continue = False
        self.traceparent: str | None = None
        self.has_event = False
        """True if the body is a CloudEvent, or headers have attributes of one."""
        for name, value in headers:
            if name == b"content-type":
                self.content_type = _media_type(value)
                if self.content_type.startswith(cloudevents.FAMILY):
                    self.has_event = True
            elif name == b"content-length":
                self.content_length = int(value)
            elif name == b"accept":
                self.accept = value
            elif name == b"host":
                self.hosts.append(value)
            elif name == b"origin":
                self.origin = value
            elif name == b"content-encoding":
                self.content_encoding = value.strip().lower()
            elif name == b"expect":
                self.expects_continue = value.lower() == b"100-continue"
            elif name == b"transfer-encoding":
                self.transfer_coding = value
            elif name == b"traceparent":
                self.traceparent = value.decode("latin-1")
            elif name.startswith(EVENT_PREFIX):
                self.has_event = True


@lru_cache(maxsize=64)
def _media_type(value: bytes) -> bytes:
    """A content type without its parameters."""
    return value.partition(b";")[0].strip().lower()
