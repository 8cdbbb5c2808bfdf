"""Event streams that cannot keep up: bounded memory, and the number of lost events."""

from __future__ import annotations

from penstock import limits
from penstock.transports.http.event_stream import EventStream


class SlowTransport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unsent = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent


def opened() -> tuple[EventStream, SlowTransport]:
    transport = SlowTransport()
    stream = EventStream(None, None, None, transport, set(), 0)
    transport.written.clear()
    return stream, transport


def test_events_beyond_the_rate_are_counted():
    stream, transport = opened()
    for _ in range(limits.EVENT_STREAM_RATE + 7):
        stream.send(b"event")
    assert transport.written == [b"event"] * limits.EVENT_STREAM_RATE
    stream.tick(heartbeat=True)
    assert transport.written[-1] == b'event: dropped\ndata: {"count":7}\n\n'
    stream.send(b"event")
    stream.tick(heartbeat=True)
    assert transport.written[-2:] == [b"event", b": \n\n"]


def test_client_that_does_not_read_gets_nothing_more_until_it_reads():
    stream, transport = opened()
    transport.unsent = limits.EVENT_STREAM_BUFFER_BYTES + 1
    stream.send(b"event")
    stream.tick(heartbeat=True)
    assert not transport.written
    transport.unsent = 0
    stream.tick(heartbeat=False)
    assert transport.written == [b'event: dropped\ndata: {"count":1}\n\n']
