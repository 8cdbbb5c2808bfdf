"""What dialects share: finding the operation, messages of several queues, and the words for times."""

from __future__ import annotations

import asyncio
import json

import pytest
from patience import until

from penstock.errors import InvalidRequest, MethodNotAllowed, NotFound
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process
from penstock.transports.dialects import DIALECTS, with_dialects
from penstock.transports.dialects.delivered import flat, moment, one_by_one
from penstock.transports.dialects.disheap.proto_json import base64_plain, duration, milliseconds
from penstock.transports.dialects.router import OURS, Route, Router
from penstock.transports.dialects.several import lease_any, read_after
from penstock.transports.http import HttpApp, routes
from penstock.transports.http.answer import Answer
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request

# -- finding the operation ------------------------------------------------------------------------------------------


def test_without_dialects_the_table_is_ours_and_nothing_else():
    assert with_dialects(()) is routes


def route(name, method, path, *marks):
    async def handler(edge, request, names):
        return Answer(200, json.dumps([name, names]).encode())

    return Route(name, method, path, handler, frozenset(marks))


def asked(table, method, target, body=b""):
    path, _, query = target.partition("?")
    request = Request(method, path, query.encode(), Fields([]), body)
    answer = asyncio.run(table.find(method, path).handler(None, request))
    return json.loads(answer.body)


def test_a_path_is_found_by_its_template():
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


def test_a_shared_path_is_told_by_what_comes_with_it():
    table = Router(routes, [route("a", "POST", "/p", "one"), route("b", "POST", "/p", "two", "three")])
    assert asked(table, "POST", "/p", b'{"one": 1, "other": 2}') == ["a", {}]
    assert asked(table, "POST", "/p", b'{"three": 1}') == ["b", {}]
    for body in (b"{}", b'{"one": 1, "two": 2}', b"[]", b"", b"{"):
        with pytest.raises(InvalidRequest):
            asked(table, "POST", "/p", body)


def test_a_get_that_takes_messages_is_not_for_everybody():
    taking = route("a", "GET", "/p")._replace(takes=True)
    table = Router(routes, [taking])
    assert table.allowed("/p") == ["GET", "OPTIONS"]
    with pytest.raises(MethodNotAllowed):
        table.find("HEAD", "/p")
    for site, status in ((b"cross-site", 403), (b"same-site", 403), (b"same-origin", 200), (b"none", 200)):
        request = Request("GET", "/p", b"", Fields([(b"sec-fetch-site", site)]), b"")
        assert asyncio.run(table.find("GET", "/p").handler(None, request)).status == status


def test_one_without_marks_takes_what_no_other_claims():
    table = Router(routes, [route("a", "GET", "/p", "one"), route("b", "GET", "/p")])
    assert asked(table, "GET", "/p?one=1") == ["a", {}]
    assert asked(table, "GET", "/p?two=1") == ["b", {}]
    assert asked(table, "GET", "/p") == ["b", {}]
    with pytest.raises(InvalidRequest):
        asked(table, "GET", "/p?%ff=1")


def test_what_is_ours_and_shared_is_really_there():
    for method, path in OURS:
        assert routes.find(method, path).method == method


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_hides_nothing_of_ours(name):
    """A path that both have is told apart by marks, or it would not be ours any more."""
    for each in DIALECTS[name]:
        try:
            ours = routes.find(each.method, each.path.replace("{", "").replace("}", ""))
        except (NotFound, MethodNotAllowed):
            continue
        assert (ours.method, ours.path) in OURS, each


# -- several queues -------------------------------------------------------------------------------------------------

A, B = parse_queue("a"), parse_queue("b")


def story(told):
    async def run():
        async with in_process() as box:
            for queue in (A, B):
                await box.broker.put_queue(queue, {"partitions": 2})
            await told(box)

    return asyncio.run(run())


async def leased(box, max=10, wait_ms=0):
    runs = await lease_any(box.broker, [A, B], group="default", max=max, wait_ms=wait_ms, consumer="")
    return [(flat(message.queue), message.payload) for message in one_by_one(runs)]


async def both_parked(box):
    await until(lambda: box.broker.waiting >= 2)


def test_each_queue_has_its_share():
    async def told(box):
        await box.publish("a", *[b"%d" % number for number in range(10)])
        await box.publish("b", b"x")
        assert len(await leased(box, max=4)) == 4
        assert len(await leased(box, max=4)) == 4
        assert len(await leased(box)) == 3
        assert await leased(box) == []

    story(told)


def test_whoever_waits_is_told_of_the_first_queue_that_has_something():
    async def told(box):
        waiting = asyncio.ensure_future(leased(box, wait_ms=60_000))
        await both_parked(box)
        await box.publish("b", b"x")
        assert await waiting == [("b", b"x")]
        assert box.broker.waiting == 0
        # Nothing of what comes later is held by who has gone.
        await box.publish("a", b"y")
        assert await leased(box) == [("a", b"y")]

    story(told)


def test_what_two_queues_bring_at_once_is_not_more_than_was_asked_for():
    async def told(box):
        waiting = asyncio.ensure_future(leased(box, max=2, wait_ms=60_000))
        await both_parked(box)
        await asyncio.gather(box.publish("a", b"1", b"2"), box.publish("b", b"3", b"4"))
        first = await waiting
        assert 1 <= len(first) <= 2
        rest = await leased(box)
        assert sorted(first + rest) == [("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4")]

    story(told)


def test_readers_of_several_queues_miss_nothing_and_see_nothing_twice():
    async def told(box):
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

    story(told)


def test_large_messages_come_in_portions():
    async def told(box):
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

    story(told)


def test_a_reader_waits_for_what_comes():
    async def told(box):
        waiting = asyncio.ensure_future(read_after(box.broker, [A, B], 0, max=3, wait_ms=60_000))
        await asyncio.sleep(0.01)
        await box.publish("b", b"x")
        found = await waiting
        assert [message.payload for message in found.messages] == [b"x"]
        assert await read_after(box.broker, [A, B], found.messages[-1].number, max=3, wait_ms=1) == ([], False)

    story(told)


# -- words ----------------------------------------------------------------------------------------------------------


def test_moments_and_durations():
    assert moment(1_759_838_400_000) == "2025-10-07T12:00:00.000Z"
    assert moment(1_759_838_400_007) == "2025-10-07T12:00:00.007Z"
    assert [duration(ms) for ms in (0, 1500, 86_400_000)] == ["0s", "1.500s", "86400s"]
    assert [milliseconds("f", text) for text in ("0s", "1.5s", "0.0001s", "3600s")] == [0, 1500, 1, 3_600_000]
    with pytest.raises(InvalidRequest, match="not_before"):
        milliseconds("not_before", "999999999999s")


@pytest.mark.parametrize(("text", "plain"), [("", ""), ("YQ", "YQ=="), ("-_8=", "+/8="), ("YWI=", "YWI=")])
def test_base64_in_both_alphabets(text, plain):
    assert base64_plain(text) == plain


# -- errors ---------------------------------------------------------------------------------------------------------


def test_a_bug_in_a_dialect_is_told_like_any_other():
    async def told(box):
        async def breaks(edge, request, names):
            raise RuntimeError("a bug")

        app = HttpApp(box.broker, box.clock, Router(routes, [Route("broken", "GET", "/broken", breaks)]))
        answer = await app.ask(Request("GET", "/broken", b"", Fields([(b"host", b"localhost")]), b""))
        assert answer.status == 500 and b"a bug" not in answer.body

    story(told)
