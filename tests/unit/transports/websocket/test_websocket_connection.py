"""WebSocket connections over real sockets: handshake, pings, bounds on unsent output, closing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
import uvicorn
from patience import until
from uvicorn.server import ServerState
from websocket_fake import Edge, parse_frame, websockets
from websockets.frames import Frame, Opcode

from penstock import limits
from penstock.errors import Forbidden
from penstock.transports.access import Access
from penstock.transports.http.protocol import HttpProtocol
from penstock.transports.http.request import Peer
from penstock.transports.websocket.connection import ProtocolSpec
from penstock.transports.websocket.sockets import Admitted

KEY = "AAAAAAAAAAAAAAAAAAAAAA=="
HANDSHAKE = {
    "Host": "127.0.0.1:7400", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}  # fmt: skip


class Socket:
    """A client on a real connection that reads and writes single frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    async def handshake(self, path: str = "/v1/ws", **headers: str | None) -> None:
        given = HANDSHAKE | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value is not None)]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        self.status = int(head.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)

    async def error(self) -> dict[str, object]:
        return json.loads(await self.reader.readexactly(int(self.headers["content-length"])))["error"]

    def frame(self, opcode: Opcode, data: bytes = b"", **flags: bool) -> None:
        self.writer.write(Frame(opcode, data, **flags).serialize(mask=True))

    def send(self, **frame: object) -> None:
        self.frame(Opcode.TEXT, json.dumps(frame).encode())

    async def receive(self) -> tuple[int, bytes]:
        head = await self.reader.readexactly(2)
        more = {126: 2, 127: 8}.get(head[1], 0)
        length = await self.reader.readexactly(more)
        size = int.from_bytes(length, "big") if more else head[1]
        return parse_frame(head + length + await self.reader.readexactly(size))

    async def json(self) -> dict[str, object]:
        opcode, data = await self.receive()
        assert opcode == Opcode.TEXT, (opcode, data)
        return json.loads(data)

    async def closed(self) -> int:
        """The code of the close frame; frames before it are skipped."""
        while True:
            opcode, data = await self.receive()
            if opcode == Opcode.CLOSE:
                return int.from_bytes(data[:2], "big")


@contextlib.asynccontextmanager
async def serving(edge: Edge) -> AsyncIterator[tuple[ServerState, tuple[str, int]]]:
    edge.app.websockets = edge.sockets
    config = uvicorn.Config(
        edge.app, http=HttpProtocol, ws=asyncio.Protocol, log_config=None, access_log=False, interface="asgi3",
        proxy_headers=False,
    )  # fmt: skip
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpProtocol(config, state, {}), "127.0.0.1", 0)
    try:
        yield state, server.sockets[0].getsockname()
    finally:
        server.close()
        for connection in list(state.connections):
            connection._transport.abort() if hasattr(connection, "_transport") else connection.transport.abort()
        await until(lambda: not state.connections)
        await server.wait_closed()


def talk(story, origins=()):
    async def run():
        async with asyncio.timeout(60), websockets() as edge:
            edge.sockets.access = Access(origins=frozenset(origins))
            async with serving(edge) as (state, address):
                reader, writer = await asyncio.open_connection(*address, limit=1 << 24)
                try:
                    await story(edge, Socket(reader, writer), state)
                finally:
                    writer.close()

    asyncio.run(run())


def test_handshake_and_ping():
    async def story(edge, socket, state):
        await socket.handshake(Sec_WebSocket_Protocol="other, penstock.v1+json")
        assert socket.status == 101
        assert socket.headers["sec-websocket-protocol"] == "penstock.v1+json"
        assert "sec-websocket-extensions" not in socket.headers
        hello = await socket.json()
        assert (hello["type"], hello["protocol"]) == ("hello", "penstock.v1+json")
        socket.send(type="ping", id="p")
        assert await socket.json() == {"type": "pong", "id": "p"}
        socket.frame(Opcode.PING, b"echo")
        assert await socket.receive() == (Opcode.PONG, b"echo")
        assert 'penstock_connections{transport="websocket"} 1.0' in edge.metrics()

    talk(story)


def test_msgpack_is_selected_by_subprotocol():
    async def story(edge, socket, state):
        await socket.handshake(Sec_WebSocket_Protocol="penstock.v1+msgpack, penstock.v1+json")
        assert socket.headers["sec-websocket-protocol"] == "penstock.v1+msgpack"
        opcode, _ = await socket.receive()
        assert opcode == Opcode.BINARY

    talk(story)


def test_fragmented_message():
    async def story(edge, socket, state):
        await socket.handshake()
        await socket.json()
        socket.frame(Opcode.TEXT, b'{"type":', fin=False)
        socket.frame(Opcode.PING)
        socket.frame(Opcode.CONT, b'"ping",', fin=False)
        socket.frame(Opcode.CONT, b'"id":1}')
        received = sorted([await socket.receive(), await socket.receive()])
        assert received == [(Opcode.TEXT, b'{"type":"pong","id":1}'), (Opcode.PONG, b"")]

    talk(story)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 403, "forbidden"),
        ({"Origin": "https://evil.example"}, 403, "forbidden"),
        ({"Origin": "null"}, 403, "forbidden"),
        ({"Origin": "http://localhost:3000"}, 403, "forbidden"),
        ({"Origin": "https://127.0.0.1:7400"}, 403, "forbidden"),
        ({"Sec-WebSocket-Version": None}, 400, "invalid_request"),
        ({"Sec-WebSocket-Key": None}, 400, "invalid_request"),
        ({"Sec-WebSocket-Key": "short"}, 400, "invalid_request"),
        ({"Sec-WebSocket-Protocol": "chat"}, 400, "invalid_request"),
    ],
)
def test_refused_handshake_has_a_reason(headers, status, code):
    async def story(edge, socket, state):
        await socket.handshake(**headers)
        assert (socket.status, (await socket.error())["code"]) == (status, code)
        await until(lambda: not state.connections)

    talk(story)


def test_refusal_of_a_protocol_is_the_answer_to_the_handshake():
    """A handler that the principal may not have raises when it is made: nothing of the connection may remain."""

    def refuse(_):
        raise Forbidden("no")

    closed = []
    auth = SimpleNamespace(quotas=SimpleNamespace(open_stream=lambda _: lambda: closed.append(1)))

    async def story(edge, socket, state):
        protocols = {"/ws": ProtocolSpec(Opcode.TEXT, 1000, refuse)}
        edge.sockets.protocols = protocols
        edge.sockets._gate = SimpleNamespace(admit=lambda _: Admitted(None, Peer("", ()), edge.broker, protocols, auth))
        await socket.handshake("/ws")
        assert (socket.status, (await socket.error())["code"]) == (403, "forbidden")
        await until(lambda: not state.connections)
        assert closed == [1] and 'penstock_connections{transport="websocket"} 0.0' in edge.metrics()

    talk(story)


def test_offer_of_a_websocket_at_another_path_is_ignored():
    async def story(edge, socket, state):
        await socket.handshake("/healthz")
        assert (socket.status, socket.headers.get("connection")) == (200, None)

    talk(story)


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, ()),
        ("http://127.0.0.1:7400", ()),
        ("HTTP://127.0.0.1:7400", ()),
        ("null", ("null",)),
        ("http://localhost:8000", ("http://localhost:8000",)),
        ("https://tools.example", ("null", "https://tools.example")),
    ],
)
def test_allowed_origins(origin, allowed):
    async def story(edge, socket, state):
        await socket.handshake(Origin=origin)
        assert socket.status == 101

    talk(story, allowed)


def test_connection_limit_is_enforced(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKETS_MAX", 0)

    async def story(edge, socket, state):
        await socket.handshake()
        assert (socket.status, (await socket.error())["code"]) == (503, "unavailable")

    talk(story)


def test_message_with_wrong_opcode_is_closed():
    async def story(edge, socket, state):
        await socket.handshake()
        socket.frame(Opcode.BINARY, b"{}")
        assert await socket.closed() == 1003

    talk(story)


def test_too_large_message_is_closed():
    async def story(edge, socket, state):
        await socket.handshake()
        socket.writer.write(b"\x81\xff" + (limits.WEBSOCKET_TEXT_BYTES_MAX + 1).to_bytes(8, "big") + bytes(4))
        assert await socket.closed() == 1009
        await until(lambda: not state.connections)

    talk(story)


@pytest.mark.parametrize("data", [b"\x81\x02{}", b"\xff\xff\xff\xff\xff\xff", b"\x80\x80\0\0\0\0"])
def test_invalid_framing_is_closed(data):
    async def story(edge, socket, state):
        await socket.handshake()
        socket.writer.write(data)
        assert await socket.closed() == 1002
        await until(lambda: not state.connections)
        assert 'penstock_websocket_closed_total{code="1002"} 1.0' in edge.metrics()

    talk(story)


def test_close_is_answered():
    async def story(edge, socket, state):
        await socket.handshake()
        socket.frame(Opcode.CLOSE, (1001).to_bytes(2, "big"))
        assert await socket.closed() == 1001
        assert await socket.reader.read() == b""
        await until(lambda: not state.connections)

    talk(story)


def test_http_timers_do_not_end_an_upgraded_connection(monkeypatch):
    async def story(edge, socket, state):
        socket.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = (await socket.reader.readuntil(b"\r\n\r\n")).decode()
        await socket.reader.readexactly(int(head.lower().partition("content-length: ")[2].split()[0]))
        (http,) = state.connections
        await socket.handshake()
        assert socket.status == 101
        assert http._idle_timer is None and http._head_timer is None and http not in state.connections

    talk(story)


def test_connection_without_pongs_is_closed(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKET_PING_MS", 300)

    async def story(edge, socket, state):
        await socket.handshake()
        await socket.json()
        assert await socket.receive() == (Opcode.PING, b"")
        socket.frame(Opcode.PONG)
        assert await socket.receive() == (Opcode.PING, b"")
        assert await socket.closed() == 4009
        await until(lambda: not state.connections)

    talk(story)


def test_slow_reader_is_evicted_and_others_are_not(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKET_SLOW_MS", 400)
    monkeypatch.setattr(limits, "WEBSOCKET_CLOSE_MS", 100)

    async def story(edge, socket, state):
        await edge.create("log")
        client = edge.connect()
        await client.ask(type="subscribe", role="reader", queue="log")
        await socket.handshake()
        socket.send(type="subscribe", role="reader", queue="log", offset="earliest")
        socket.writer.transport.pause_reading()
        (connection,) = state.connections
        most = 0
        for _ in range(100):
            if not state.connections:
                break
            await edge.publish("log", *[bytes(1_000)] * 100)
            await client.messages(100)
            most = max(most, connection._transport.get_write_buffer_size())
        assert limits.WEBSOCKET_OUTPUT_PAUSE_BYTES < most <= limits.WEBSOCKET_OUTPUT_BYTES_MAX
        await until(lambda: not state.connections)
        assert 'penstock_websocket_closed_total{code="4008"} 1.0' in edge.metrics()
        assert 'penstock_connections{transport="websocket"} 0.0' in edge.metrics()

    talk(story)


def test_client_that_sends_and_never_reads_is_evicted(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKET_ANSWERS_BYTES_MAX", 2 << 20)
    monkeypatch.setattr(limits, "WEBSOCKET_CLOSE_MS", 100)

    async def story(edge, socket, state):
        await edge.create("log")
        for _ in range(4):
            await edge.publish("log", *[bytes(1_000)] * 1_000)
        await socket.handshake()
        socket.writer.transport.pause_reading()
        for _ in range(8):
            socket.send(type="call", method="GET", path="/v1/read", query="queue=log&max=10000")
        await until(lambda: 'closed_total{code="4008"} 1.0' in edge.metrics() or not edge.sockets._count)

    talk(story)


def test_requests_over_the_limit_wait(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKET_REQUESTS_MAX", 2)

    async def story(edge, socket, state):
        await edge.create("q")
        await socket.handshake()
        await socket.json()
        for number in range(6):
            socket.send(id=number, type="call", path="/v1/lease", body={"queue": "q", "wait_ms": 60_000})
        await until(lambda: edge.broker.waiting == 2)
        (connection,) = state.connections
        for _ in range(3):
            connection.ping()  # pongs wait behind the requests, so the connection stays open
        for _ in range(6):
            await edge.publish("q", b"x")
        answers = [await socket.json() for _ in range(6)]
        assert sorted(answer["id"] for answer in answers) == list(range(6))
        socket.send(id=7, type="ping")
        assert (await socket.json())["type"] == "pong"

    talk(story)


@pytest.mark.parametrize("version", ["8", "0", "14"])
def test_unsupported_version_is_answered_with_13(version):
    async def story(edge, socket, state):
        await socket.handshake(Sec_WebSocket_Version=version)
        assert (socket.status, (await socket.error())["code"]) == (426, "upgrade_required")
        assert (socket.headers["sec-websocket-version"], socket.headers["connection"]) == ("13", "close")
        assert socket.headers["upgrade"] == "websocket"

    talk(story)


def frame_bytes(opcode: Opcode, **frame: object) -> bytes:
    return Frame(opcode, json.dumps(frame).encode() if frame else b"\x03\xe8").serialize(mask=True)


def test_frame_before_a_close_is_answered_before_the_close():
    async def story(edge, socket, state):
        await socket.handshake()
        await socket.json()
        publish = frame_bytes(Opcode.TEXT, type="publish", id=1, queue="q", messages=[{"payload": 1}])
        socket.writer.write(publish + frame_bytes(Opcode.CLOSE))
        assert (await socket.json())["type"] == "published"
        assert await socket.closed() == 1000
        await until(lambda: not state.connections)

    talk(story)


def test_waiting_frame_is_answered_before_the_close():
    async def story(edge, socket, state):
        await edge.create("q")
        await socket.handshake()
        await socket.json()
        call = frame_bytes(Opcode.TEXT, type="call", id=1, path="/v1/lease", body={"queue": "q", "wait_ms": 60_000})
        socket.writer.write(call + frame_bytes(Opcode.CLOSE))
        await until(lambda: edge.broker.waiting == 1)
        await edge.publish("q", b"x")
        assert (await socket.json())["type"] == "reply"
        assert await socket.closed() == 1000

    talk(story)


def test_close_wait_is_bounded_and_ends_deliveries(monkeypatch):
    monkeypatch.setattr(limits, "WEBSOCKET_CLOSE_MS", 100)

    async def story(edge, socket, state):
        await edge.create("q")
        await edge.create("empty")
        await socket.handshake()
        await socket.json()
        socket.send(type="subscribe", role="consumer", queue="q", credit=10)
        assert (await socket.json())["type"] == "subscribed"
        call = frame_bytes(Opcode.TEXT, type="call", id=1, path="/v1/lease", body={"queue": "empty", "wait_ms": 60_000})
        socket.writer.write(call + frame_bytes(Opcode.CLOSE))
        await until(lambda: edge.broker.waiting == 1)  # the consumer has cancelled its lease call
        await edge.publish("q", b"x")
        assert (await socket.receive())[0] == Opcode.CLOSE
        await until(lambda: not state.connections and not edge.broker.waiting)

    talk(story)


def test_frames_sent_with_the_handshake_are_answered():
    async def story(edge, socket, state):
        head = "\r\n".join(["GET /v1/ws HTTP/1.1", *(f"{name}: {value}" for name, value in HANDSHAKE.items()), "", ""])
        socket.writer.write(head.encode() + frame_bytes(Opcode.TEXT, type="ping", id=1))
        assert (await socket.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        assert [(await socket.json())["type"] for _ in range(2)] == ["hello", "pong"]

    talk(story)


def test_handshake_waits_for_the_reply_of_a_long_poll():
    async def story(edge, socket, state):
        await edge.create("q")
        body = b'{"queue": "q", "wait_ms": 60000}'
        poll = b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        head = "\r\n".join(["GET /v1/ws HTTP/1.1", *(f"{name}: {value}" for name, value in HANDSHAKE.items()), "", ""])
        socket.writer.write(poll + head.encode() + frame_bytes(Opcode.TEXT, type="ping", id=1))
        await until(lambda: edge.broker.waiting == 1)
        socket.writer.write(frame_bytes(Opcode.TEXT, type="ping", id=2))
        await edge.publish("q", b"x")
        assert (await socket.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 101" in await socket.reader.readuntil(b"\r\n\r\n")
        assert [(await socket.json())["type"] for _ in range(3)] == ["hello", "pong", "pong"]

    talk(story)


def test_stopping_server_closes_with_a_reason():
    async def story(edge, socket, state):
        await socket.handshake()
        await socket.json()
        edge.app.drain()
        assert await socket.closed() == 1012

    talk(story)


def test_frames_of_one_turn_are_written_together_and_in_order():
    class Counted:
        def __init__(self, transport):
            self.transport, self.writes = transport, 0

        def write(self, data):
            self.writes += 1
            self.transport.write(data)

        def __getattr__(self, name):
            return getattr(self.transport, name)

    async def story(edge, socket, state):
        await socket.handshake()
        await socket.json()
        (connection,) = state.connections
        counted = connection._transport = Counted(connection._transport)
        asked = b"".join(
            Frame(Opcode.TEXT, json.dumps({"id": number, "type": "ping"}).encode()).serialize(mask=True)
            for number in range(5)
        )
        connection.data_received(asked)
        assert counted.writes == 1
        connection.write(Frame(Opcode.TEXT, b'{"last":1}').serialize(mask=False))
        connection.ping()
        assert counted.writes == 1, "until the end of the turn"
        connection.shutdown()  # the close frame follows both
        assert counted.writes == 3
        assert [(await socket.json())["id"] for _ in range(5)] == list(range(5))
        assert await socket.json() == {"last": 1}
        assert (await socket.receive())[0] == Opcode.PING
        assert (await socket.receive())[0] == Opcode.CLOSE

    talk(story)
