"""A broker small enough to read, for tests of the SDK that count requests or need the server to misbehave.

It speaks the documented shapes over real HTTP/1.1 on loopback and keeps one queue in a list. What the SDK does against
the real broker is tested in tests/acceptance.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from penstock.batch import Batch
from penstock.ids import parse_offsets, ulid_text
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, encode_delivery

NOW_MS = 1_700_000_000_000


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Reply(NamedTuple):
    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = {}


class Hangup(Exception):
    """Raised by a handler: close the connection without an answer."""


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(msgspec.json.encode(value), status, headers)


def error_reply(code: str, status: int, *, retry_after: str | None = None, **details: Any) -> Reply:
    body = {"error": {"code": code, "message": f"{code} on purpose", "retryable": False, "details": details}}
    return json_reply(body, status, **({"Retry-After": retry_after} if retry_after else {}))


Handler = Callable[[Request], Awaitable[Reply]]


class HttpServer:
    """Serves a handler and remembers every request. `async with`."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None):
        self.handler = handler
        self._tls = tls
        self.requests: list[Request] = []
        self.connections = 0
        self.piped = 0
        """How often bytes came while the request before them was being answered."""
        self.when_hung_up: Callable[[], Awaitable[None]] | None = None
        """Called when a client disconnects; the handler then continues, and its reply is sent."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exc):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        incoming = _Incoming(reader)
        try:
            while (request := await incoming.request()) is not None:
                self.requests.append(request)
                reply = await self._answer(request, incoming)
                lines = [f"HTTP/1.1 {reply.status} X", f"Content-Length: {len(reply.body)}"]
                lines += [f"{name}: {value}" for name, value in reply.headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + reply.body)
                await writer.drain()
        except (Hangup, ConnectionError, asyncio.CancelledError):
            pass  # cancelled only by __aexit__
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, request: Request, incoming: _Incoming) -> Reply:
        """The handler's reply, unless the client goes away first: then no lease may be granted."""
        work, gone = asyncio.ensure_future(self.handler(request)), asyncio.ensure_future(self._gone(incoming))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                if self.when_hung_up is None:
                    raise Hangup
                await self.when_hung_up()
            return await work
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _gone(self, incoming: _Incoming) -> None:
        self.piped += bool(incoming.data)
        while await incoming.more():
            self.piped += 1


class _Incoming:
    """Requests of one connection, one after the other, also when they came together."""

    def __init__(self, reader: asyncio.StreamReader):
        self._reader = reader
        self.data = b""

    async def more(self) -> bool:
        """False at the end."""
        data = await self._reader.read(65536)
        self.data += data
        return bool(data)

    async def request(self) -> Request | None:
        while b"\r\n\r\n" not in self.data:
            if not await self.more():
                return None
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        method, target, _ = line.split()
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        size = int(headers.get("content-length", 0))
        while len(self.data) < size:
            if not await self.more():
                return None
        body, self.data = self.data[:size], self.data[size:]
        url = urlsplit(target)
        return Request(method, url.path, dict(parse_qsl(url.query)), headers, body)


class FakeBroker:
    """One queue, one group, no persistence. `before` may answer, delay or refuse a request instead of the broker."""

    def __init__(self):
        self.messages: list[tuple[Batch, int]] = []
        self.state: list[str] = []
        """ready, leased, acked or dead; by offset."""
        self.attempts: list[int] = []
        self.lease_of: list[int] = []
        self.leases = 0
        self.lease_ms = 30_000
        """The queue's setting, for consumers that name none."""
        self.seen: dict[tuple[str, ...], dict[str, Any]] = {}
        self.errors: list[str] = []
        self.released: list[str] = []
        self.arrived = asyncio.Event()
        self.before: Callable[[Request], Awaitable[Reply | None]] | None = None
        self.after: Callable[[Request], Awaitable[None]] | None = None

    async def __call__(self, request: Request) -> Reply:
        if self.before is not None and (reply := await self.before(request)) is not None:
            return reply
        reply = await getattr(self, "on_" + request.path.removeprefix("/v1/"))(request)
        if self.after is not None:
            await self.after(request)
        return reply

    def end_leases(self) -> None:
        """As if every lease had run out."""
        self.leases += 1
        self.state = ["ready" if state == "leased" else state for state in self.state]
        self.lease_of = [
            0 if state == "ready" else lease for state, lease in zip(self.state, self.lease_of, strict=True)
        ]
        self.arrived.set()

    async def on_publish(self, request: Request) -> Reply:
        sequence = tuple(request.query[name] for name in ("queue", "producer", "epoch", "seq"))
        if sequence in self.seen:
            first = self.seen[sequence]
            return json_reply({"runs": [{**run, "duplicate": True} for run in first["runs"]], "durable": True}, 201)
        batch = Batch.open(request.body)
        offset = len(self.messages)
        for row in range(batch.count):
            self.messages.append((batch, row))
            self.state.append("ready")
            self.attempts.append(0)
            self.lease_of.append(0)
        run = {
            "queue": request.query["queue"], "partition": 0, "offset": offset, "count": batch.count,
            "id": ulid_text(1 << 100 | offset), "duplicate": False, "rows": None,
        }  # fmt: skip
        self.seen[sequence] = {"runs": [run], "durable": True}
        self.arrived.set()
        return json_reply(self.seen[sequence], 201)

    async def on_lease(self, request: Request) -> Reply:
        asked = request.json()
        results = self._settle(asked.get("ack", []), "acked")
        offsets = self._ready(asked["max"])
        if not offsets and asked["wait_ms"]:
            self.arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.arrived.wait(), asked["wait_ms"] / 1000)
            offsets = self._ready(asked["max"])
        runs, frames = [], []
        self.leases += 1
        lease_ms = asked.get("lease_ms", self.lease_ms)
        while offsets:
            count = next((i for i in range(1, len(offsets)) if offsets[i] != offsets[i - 1] + 1), len(offsets))
            chunk, offsets = offsets[:count], offsets[count:]
            for offset in chunk:
                same = self.messages[offset][0]
                if same is not self.messages[chunk[0]][0]:
                    offsets = [at for at in chunk if at >= offset] + offsets
                    chunk = [at for at in chunk if at < offset]
                    break
            batch, row = self.messages[chunk[0]]
            frame = batch.run(row, row + len(chunk)).frame
            for offset in chunk:
                self.state[offset] = "leased"
                self.attempts[offset] += 1
                self.lease_of[offset] = self.leases
            runs.append(
                Run(
                    asked["queue"], 0, chunk[0], len(chunk), ulid_text(1 << 100 | chunk[0]), NOW_MS, len(frame),
                    self.attempts[chunk[0]], f"r1.0.{self.leases}.00000000000000ff.", NOW_MS + lease_ms,
                    lease_ms,
                )
            )  # fmt: skip
            frames.append(frame)
        return Reply(encode_delivery(LeaseMeta(runs, results if "ack" in asked else None), frames))

    async def on_read(self, request: Request) -> Reply:
        first = 0 if request.query["offset"] == "earliest" else int(request.query["offset"])
        runs, frames = [], []
        for offset in range(first, min(first + int(request.query["max"]), len(self.messages))):
            batch, row = self.messages[offset]
            frames.append(batch.run(row, row + 1).frame)
            identity = ulid_text(1 << 100 | offset)
            runs.append(Run(request.query["queue"], 0, offset, 1, identity, NOW_MS, len(frames[-1])))
        return Reply(encode_delivery(ReadMeta(runs, first + len(runs), len(self.messages), 0), frames))

    async def on_ack(self, request: Request) -> Reply:
        return self._settled(request, "acked")

    async def on_nack(self, request: Request) -> Reply:
        self.errors.append(request.json()["error"])
        reply = self._settled(request, "retrying", "ready")
        self.arrived.set()
        return reply

    async def on_release(self, request: Request) -> Reply:
        released = self._settle(request.json()["receipts"], "released", "ready")
        self.released += [settled.receipt for settled in released]
        self.arrived.set()
        return json_reply({"results": released})

    async def on_reject(self, request: Request) -> Reply:
        self.errors.append(request.json()["error"])
        return self._settled(request, "dead_lettered", "dead")

    async def on_extend(self, request: Request) -> Reply:
        return self._settled(request, "extended", "leased")

    def _ready(self, most: int) -> list[int]:
        return [offset for offset, state in enumerate(self.state) if state == "ready"][:most]

    def _settled(self, request: Request, status: str, state: str | None = None) -> Reply:
        return json_reply({"results": self._settle(request.json()["receipts"], status, state)})

    def _settle(self, receipts: list[str], status: str, state: str | None = None) -> list[Settled]:
        results = []
        for receipt in receipts:
            prefix, _, offsets = receipt.rpartition(".")
            lease = int(prefix.split(".")[2])
            first, last = parse_offsets(offsets)
            ours = [at for at in range(first, last + 1) if self.state[at] == "leased" and self.lease_of[at] == lease]
            for offset in ours:
                self.state[offset] = state or status
            results.append(Settled(receipt, status if len(ours) == last - first + 1 else "stale"))
        return results


def run_with_broker(test: Callable[[FakeBroker, HttpServer], Awaitable[None]]) -> None:
    """Run an async test against a fake broker."""

    async def main() -> None:
        broker = FakeBroker()
        async with HttpServer(broker) as server:
            await asyncio.wait_for(test(broker, server), 20)

    asyncio.run(main())


class ThreadedBroker:
    """The same in a thread of its own, for the blocking shell. `with`."""

    def __enter__(self):
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._started.wait(10)
        return self

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.broker = FakeBroker()
        async with HttpServer(self.broker) as self.server:
            self._started.set()
            await self._stop.wait()

    def __exit__(self, *exc):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
