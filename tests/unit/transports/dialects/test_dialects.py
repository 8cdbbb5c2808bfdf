"""Shared parts of dialects: routing, leases and reads over several queues, times."""

from __future__ import annotations

import asyncio
import json

import pytest
from http_fake import Http
from patience import until

from penstock import limits
from penstock.errors import InvalidRequest, MethodNotAllowed, NotFound
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process
from penstock.transports.dialects import DIALECTS, with_dialects
from penstock.transports.dialects.delivered import iso_timestamp, messages_of_runs, short_name
from penstock.transports.dialects.disheap.proto_json import base64_plain, duration, milliseconds
from penstock.transports.dialects.multi_queue import lease_any, read_after
from penstock.transports.dialects.router import NATIVE_FIELDS, Route, Router
from penstock.transports.http import HttpApp, routes
from penstock.transports.http.answer import Answer
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request

# -- routing --------------------------------------------------------------------------------------------------------


def test_without_dialects_the_table_is_the_native_one():
    assert with_dialects(()) is routes


def route(name, method, path, *fields):
    async def handler(edge, request, names):
        return Answer(200, json.dumps([name, names]).encode())

    return Route(name, method, path, handler, frozenset(fields))


def asked(table, method, target, body=b""):
    path, _, query = target.partition("?")
    request = Request(method, path, query.encode(), Fields([]), body)
    answer = asyncio.run(table.find(method, path).handler(None, request))
    return json.loads(answer.body)


def test_path_template_is_matched():
    table = Router(
        routes, [route("a", "GET", "/x/{ns}/y/{q}"), route("b", "POST", "/x/{ns}/y"), route("c", "GET", "/x")]
    )
    assert asked(table, "GET", "/x/1/y/2") == ["a", {"ns": "1", "q": "2"}]
    assert asked(table, "POST", "/x/1/y") == ["b", {"ns": "1"}]
    assert asked(table, "HEAD", "/x") == ["c", {}]
    for path in ("/x/1/y/2/3", "/x/1/z/2", "/x/", "/y"):
        with pytest.raises(NotFound):
            table.find("GET", path)
    with pytest.raises(MethodNotAllowed) as refused:
        table.find("DELETE", "/x/1/y")
    assert refused.value.details == {"allow": ["OPTIONS", "POST"]}
    assert table.allowed("/x") == ["GET", "HEAD", "OPTIONS"]
    assert table.find("GET", "/healthz").name == "health"
    assert table.allowed("/v1/publish") == ["OPTIONS", "POST"]


def test_fields_select_the_operation_of_a_shared_path():
    table = Router(routes, [route("a", "POST", "/p", "one"), route("b", "POST", "/p", "two", "three")])
    assert asked(table, "POST", "/p", b'{"one": 1, "other": 2}') == ["a", {}]
    assert asked(table, "POST", "/p", b'{"three": 1}') == ["b", {}]
    for body in (b"{}", b'{"one": 1, "two": 2}', b"[]", b"", b"{"):
        with pytest.raises(InvalidRequest):
            asked(table, "POST", "/p", body)


def test_consuming_get_is_refused_to_other_sites():
    taking = route("a", "GET", "/p")._replace(consumes=True)
    table = Router(routes, [taking])
    assert table.allowed("/p") == ["GET", "OPTIONS"]
    with pytest.raises(MethodNotAllowed):
        table.find("HEAD", "/p")
    for site, status in ((b"cross-site", 403), (b"same-site", 403), (b"same-origin", 200), (b"none", 200)):
        request = Request("GET", "/p", b"", Fields([(b"sec-fetch-site", site)]), b"")
        assert asyncio.run(table.find("GET", "/p").handler(None, request)).status == status


def test_route_without_fields_is_the_default():
    table = Router(routes, [route("a", "GET", "/p", "one"), route("b", "GET", "/p")])
    assert asked(table, "GET", "/p?one=1") == ["a", {}]
    assert asked(table, "GET", "/p?two=1") == ["b", {}]
    assert asked(table, "GET", "/p") == ["b", {}]
    with pytest.raises(InvalidRequest):
        asked(table, "GET", "/p?%ff=1")


def test_native_fields_name_existing_operations():
    for method, path in NATIVE_FIELDS:
        assert routes.find(method, path).method == method


@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_hides_no_native_operation(name):
    """Fields must select the native operation at a shared path."""
    for each in DIALECTS[name]:
        try:
            native = routes.find(each.method, each.path.replace("{", "").replace("}", ""))
        except (NotFound, MethodNotAllowed):
            continue
        assert (native.method, native.path) in NATIVE_FIELDS, each


# -- several queues -------------------------------------------------------------------------------------------------

A, B = parse_queue("a"), parse_queue("b")


def story(steps):
    async def run():
        async with in_process() as box:
            for queue in (A, B):
                await box.broker.queues.put(queue, {"partitions": 2})
            await steps(box)

    return asyncio.run(run())


async def leased(box, max=10, wait_ms=0):
    runs = await lease_any(box.broker, [A, B], group="default", max=max, wait_ms=wait_ms, consumer="")
    return [(short_name(message.queue), message.payload) for message in messages_of_runs(runs)]


async def both_parked(box):
    await until(lambda: box.broker.waiting >= 2)


def test_each_queue_gets_an_equal_share():
    async def steps(box):
        await box.publish("a", *[b"%d" % number for number in range(10)])
        await box.publish("b", b"x")
        assert len(await leased(box, max=4)) == 4
        assert len(await leased(box, max=4)) == 4
        assert len(await leased(box)) == 3
        assert await leased(box) == []

    story(steps)


def test_waiting_lease_ends_with_the_first_message():
    async def steps(box):
        waiting = asyncio.ensure_future(leased(box, wait_ms=60_000))
        await both_parked(box)
        await box.publish("b", b"x")
        assert await waiting == [("b", b"x")]
        assert box.broker.waiting == 0
        # The other waiting lease is cancelled, so later messages stay ready.
        await box.publish("a", b"y")
        assert await leased(box) == [("a", b"y")]

    story(steps)


def test_concurrent_grants_do_not_exceed_max():
    async def steps(box):
        waiting = asyncio.ensure_future(leased(box, max=2, wait_ms=60_000))
        await both_parked(box)
        await asyncio.gather(box.publish("a", b"1", b"2"), box.publish("b", b"3", b"4"))
        first = await waiting
        assert 1 <= len(first) <= 2
        rest = await leased(box)
        assert sorted(first + rest) == [("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4")]

    story(steps)


def test_read_of_several_queues_is_complete_without_repeats():
    async def steps(box):
        for number in range(20):
            await box.publish("a" if number % 3 else "b", b"%d" % number, key=[b"%d" % number])
        seen, after = [], 0
        while True:
            found = await read_after(box.broker, [A, B], after, max=3, wait_ms=0)
            seen += [int(message.payload) for message in found.messages]
            if not found.has_more:
                break
            after = found.messages[-1].number
        assert seen == list(range(20))

    story(steps)


def test_large_messages_are_split_over_replies():
    async def steps(box):
        for number in range(24):
            await box.publish("a" if number % 2 else "b", b"%02d" % number + bytes(1_000_000))
        seen, after, portions = [], 0, 0
        while True:
            found = await read_after(box.broker, [A, B], after, max=100, wait_ms=0)
            portions += 1
            seen += [int(message.payload[:2]) for message in found.messages]
            if not found.has_more:
                break
            after = found.messages[-1].number
        assert seen == list(range(24)) and portions == 3
        assert len(await leased(box, max=100)) < 24

    story(steps)


def test_read_waits_for_messages():
    async def steps(box):
        waiting = asyncio.ensure_future(read_after(box.broker, [A, B], 0, max=3, wait_ms=60_000))
        await asyncio.sleep(0.01)
        await box.publish("b", b"x")
        found = await waiting
        assert [message.payload for message in found.messages] == [b"x"]
        assert await read_after(box.broker, [A, B], found.messages[-1].number, max=3, wait_ms=1) == ([], False)

    story(steps)


# -- words ----------------------------------------------------------------------------------------------------------


def test_timestamps_and_durations():
    assert iso_timestamp(1_759_838_400_000) == "2025-10-07T12:00:00.000Z"
    assert iso_timestamp(1_759_838_400_007) == "2025-10-07T12:00:00.007Z"
    assert [duration(ms) for ms in (0, 1500, 86_400_000)] == ["0s", "1.500s", "86400s"]
    assert [milliseconds("f", text) for text in ("0s", "1.5s", "0.0001s", "3600s")] == [0, 1500, 1, 3_600_000]
    with pytest.raises(InvalidRequest, match="not_before"):
        milliseconds("not_before", "999999999999s")


@pytest.mark.parametrize(("text", "plain"), [("", ""), ("YQ", "YQ=="), ("-_8=", "+/8="), ("YWI=", "YWI=")])
def test_base64_in_both_alphabets(text, plain):
    assert base64_plain(text) == plain


# -- errors ---------------------------------------------------------------------------------------------------------


def test_crash_in_a_dialect_is_an_internal_error():
    async def steps(box):
        async def breaks(edge, request, names):
            raise RuntimeError("a bug")

        app = HttpApp(box.broker, box.clock, Router(routes, [Route("broken", "GET", "/broken", breaks)]))
        answer = await app.ask(Request("GET", "/broken", b"", Fields([(b"host", b"localhost")]), b""))
        assert answer.status == 500 and b"a bug" not in answer.body

    story(steps)


# -- pulsar-proxy ---------------------------------------------------------------------------------------------------


def test_client_beyond_the_limit_of_groups_takes_the_place_of_an_idle_one(monkeypatch):
    monkeypatch.setattr(limits, "GROUPS_PER_QUEUE_MAX", 5)

    async def run() -> None:
        async with in_process() as box:
            http = Http()
            http.app = HttpApp(box.broker, box.clock, with_dialects(("pulsar-proxy",)))

            async def poll(client: str) -> list[str]:
                answer = await http.ask("GET", f"/api/v1/poll?topics=news&timeout=0&client_id={client}")
                assert answer is not None and answer.status == 200, answer
                return [message["payload"]["n"] for message in answer.json["messages"]]

            await http.ask("POST", "/api/v1/messages", {"topic": "news", "payload": {"n": 1}})
            for number in range(4):
                assert await poll(f"client-{number}") == [1]
                await box.advance(1_000)
            await box.broker.queues.put(parse_queue("news"), {"lease_ms": 1_000})
            await box.advance(60_000)  # what they were given and did not acknowledge is due again
            for number in range(4, 12):
                assert await poll(f"client-{number}") == [1]
                await box.advance(60_000)
            names = {group["group"] for group in (await box.broker.groups.list(parse_queue("news")))["groups"]}
            assert names == {f"client-{number}" for number in range(7, 12)}
            assert await poll("client-0") == [1], "an idle client begins anew, and loses nothing that is kept"
            for number in range(20, 40):
                assert await poll(f"client-{number}") == [1], "also if all of them hold messages"

    asyncio.run(run())
