"""The corpus of `framing_corpus.py` against a real server, alone and behind proxies.

For every case: no hidden request is run, no answer is out of order, and nothing is stored whose sender was not told so.
The messages that are stored are counted through the API, and compared with the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from itertools import count
from typing import Any, NamedTuple

import pytest
from framing_corpus import GROUPS, QUEUE, Case
from http_server import Server, running
from proxies import KINDS, proxied

AT_ONCE = 40
"""Connections. They share those of a proxy to the server, so that a mistake of one hits another one's answers."""
ANSWERED_WITHIN_S = 60
_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("framing") / "data") as running_server:
        yield running_server


@pytest.fixture(scope="module", params=KINDS)
def proxy(request, server, tmp_path_factory):
    with proxied(request.param, server.port, tmp_path_factory.mktemp("proxy") / "home") as port:
        yield port


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return json.loads(self.body)["messages"][0]["id"]


def answers_in(received: bytes, *, first_is_head: bool) -> list[Answer]:
    """Raises ValueError for bytes that are no answers."""
    found = []
    while received:
        head, ended, received = received.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        if not ended or not line.startswith("HTTP/1."):
            raise ValueError(f"not an answer: {head[:200]!r}")
        status, headers = int(line.split()[1]), dict(each.lower().split(":", 1) for each in lines)
        headers = {name: value.strip() for name, value in headers.items()}
        if status < 200:
            continue
        if status == 204 or (first_is_head and not found):
            size = 0
        elif headers.get("transfer-encoding") == "chunked":
            size = received.index(b"0\r\n\r\n") + 5
        else:
            size = int(headers.get("content-length", len(received)))
        if size > len(received):
            raise ValueError(f"an answer of {size} bytes ends after {len(received)}")
        found.append(Answer(status, headers, received[:size]))
        received = received[size:]
    return found


async def send(port: int, case: Case, queue: str, step: int) -> bytes:
    """Everything that comes back until the connection ends."""
    data = case.data.replace(QUEUE, queue.encode())
    received = b""
    async with asyncio.timeout(ANSWERED_WITHIN_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                await asyncio.sleep(0)
            if case.half_close:
                writer.write_eof()
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                received += piece
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return received


class Sent(NamedTuple):
    case: Case
    queue: str
    received: bytes


async def send_all(port: int, cases: list[tuple[Case, int]]) -> list[Sent]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case, step: int) -> Sent:
        queue = f"q{next(_numbers):05}"
        async with room:
            try:
                return Sent(case, queue, await send(port, case, queue, step))
            except TimeoutError:
                return Sent(case, queue, b"nothing within the time\r\n\r\n")

    return await asyncio.gather(*(one(case, step) for case, step in cases))


def stored_in(connection: http.client.HTTPConnection, queue: str) -> list[dict[str, Any]]:
    connection.request("GET", f"/v1/read?queue={queue}&max=100")
    response = connection.getresponse()
    body = response.read()
    return [] if response.status == 404 else json.loads(body)["messages"]


def faults(sent: Sent, stored: list[dict[str, Any]], *, alone: bool) -> list[str]:
    """The rules that a case has broken."""
    markers = [message["payload"] for message in stored]
    try:
        answers = answers_in(sent.received, first_is_head=sent.case.first_is_head)
    except ValueError as error:
        return [f"{error}; stored {markers}"]
    statuses = tuple(answer.status for answer in answers)
    found = []
    if "hidden" in markers or (alone and "inner" in markers):
        found.append("a hidden request was run")
    visible = [marker for marker in markers if marker.startswith("v")]
    if visible != sorted(visible) or len(set(markers)) < len(markers):
        found.append("requests were run out of order, or twice")
    told = [answer.id for answer in answers if answer.status == 201]
    if told != [message["id"] for message in stored]:
        found.append(f"{len(stored)} were stored, {len(told)} were answered so, or not in this order")
    if alone:
        if sent.case.answers and statuses not in sent.case.answers:
            found.append(f"{' or '.join(map(str, sent.case.answers))} was expected")
        if any("close" in answer.headers.get("connection", "") for answer in answers[:-1]):
            found.append("an answer came behind the one that ends the connection")
        if not all("date" in answer.headers for answer in answers):
            found.append("an answer has no date")
        if not all(
            json.loads(answer.body)["error"]["code"] for answer in answers if answer.status >= 400 and answer.body
        ):
            found.append("a refusal is not an error of the API")
    return [f"{fault}: answered {statuses}, stored {markers}" for fault in found]


def check(server: Server, port: int, cases: list[tuple[Case, int]]) -> None:
    sent = asyncio.run(send_all(port, cases))
    broken = []
    with contextlib.closing(server.connect()) as connection:
        for each in sent:
            found = faults(each, stored_in(connection, each.queue), alone=port == server.port)
            broken += [f"{each.case.name}: {fault}" for fault in found]
    assert not broken, "\n" + "\n".join(broken)
    assert server.ask("GET", "/healthz").status == 200


def in_steps(group: str, pieces: int | None) -> list[tuple[Case, int]]:
    """The cases of a group, each cut into about so many pieces; None: one byte at a time, of what is not huge."""
    cases = GROUPS[group]
    return [(case, -(-len(case.data) // (pieces or min(len(case.data), 2_000)))) for case in cases]


def test_there_are_enough_cases():
    assert sum(map(len, GROUPS.values())) >= 300


@pytest.mark.parametrize("pieces", [1, 2, None], ids=["whole", "halves", "bytes"])
@pytest.mark.parametrize("group", GROUPS)
def test_server_alone_reads_requests_as_they_were_sent(server, group, pieces):
    check(server, server.port, in_steps(group, pieces))


@pytest.mark.parametrize("group", GROUPS)
def test_proxy_and_server_agree_on_where_requests_end(server, proxy, group):
    # A proxy takes a client that half-closes for one that is gone, and may drop answers that are due.
    cases = [(case, step) for case, step in in_steps(group, 1) if not case.half_close and not case.only_alone]
    check(server, proxy, cases)
