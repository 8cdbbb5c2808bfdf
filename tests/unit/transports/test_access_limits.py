"""Limits and identities as transports apply them: the class of each hole that a review found."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from boxed import boxed
from grpc_served import run_once, served

from penstock import limits
from penstock.clock import SystemClock
from penstock.errors import Forbidden, RateLimited, Unauthenticated
from penstock.security.buckets import Rate
from penstock.security.credentials import KeyTable
from penstock.security.principal import Principal
from penstock.security.quotas import AccessLimits
from penstock.security.scopes import parse_scopes
from penstock.security.secret import Secret
from penstock.security.sessions import Tickets, UserSessions
from penstock.transports.auth import Authenticator
from penstock.transports.http import HttpApp
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Peer, Request
from penstock.v1 import broker_pb2 as pb
from penstock.wire.keys import KeyRequest

QUEUE = "shop/default/orders"
ALL = ["publish:shop/*", "consume:shop/*", "peek:shop/*"]
CERTIFICATE = "spiffe://example/billing"


def guarded(box, **bounds) -> HttpApp:
    app = HttpApp(box.broker, SystemClock())
    app.auth = Authenticator(
        box.broker, KeyTable(Secret(bytes(32))), None, SystemClock(), bounds=AccessLimits(**bounds)
    )
    return app


async def key(box, *scopes: str, name: str = "test", by: Principal | None = None, **more) -> str:
    return (await box.broker.keys.create(KeyRequest(name, list(scopes or ALL), **more), by)).key


def request(method: str, target: str, body: object = None, key: str | None = None, address: str = "192.0.2.1"):
    path, _, query = target.partition("?")
    given = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    data = b"" if body is None else json.dumps(body).encode()
    made = Request(method, path, query.encode(), Fields(given + ([(b"x-api-key", key.encode())] if key else [])), data)
    made.peer = Peer(address)
    return made


# -- certificates -------------------------------------------------------------------------------------------------


@boxed
async def test_a_tenant_makes_no_key_that_a_certificate_of_another_acts_as(box):
    app = guarded(box)
    await key(box, "publish:shop/*", name=CERTIFICATE)
    tenant = Principal("key", "k1", "tenant", parse_scopes(["key.admin:bank/*", "publish:bank/*"]))
    for name in (CERTIFICATE, "urn:uuid:1", "billing.example", "BILLING.example"):
        with pytest.raises(Forbidden, match=r"key\.admin:\*"):
            await key(box, "publish:bank/*", name=name, by=tenant)
    await key(box, "publish:bank/*", name="billing", by=tenant)
    owner = Principal("key", "k2", "owner", parse_scopes(["key.admin:*", "publish:*"]))
    await key(box, "publish:shop/orders", name="billing.example", by=owner, rate="3/h")
    found = app.auth.authenticate(None, "192.0.2.1", (CERTIFICATE,))
    assert [str(scope) for scope in found.scopes] == ["publish:shop/*"] and found.kind == "certificate"
    assert app.auth.authenticate(None, "192.0.2.1", ("billing.example",)).rate == Rate(3, "h")
    with pytest.raises(Unauthenticated):
        app.auth.authenticate(None, "192.0.2.1", ("billing",))


# -- limits of addresses ------------------------------------------------------------------------------------------


@boxed
async def test_the_limit_of_an_address_refuses_no_ack_with_a_valid_key(box):
    app, own = guarded(box, address_requests=Rate(2, "h")), await key(box)
    await box.publish(QUEUE, b"1", b"2", b"3")
    leased = await box.lease(QUEUE, max=3)
    for _ in range(2):
        assert (await app.ask(request("GET", "/v1/limits", key=own))).status == 200
    for verb, message in zip(("ack", "nack", "release"), leased, strict=True):
        answer = await app.ask(request("POST", f"/v1/{verb}", {"receipts": [message.receipt]}, own))
        assert answer.status == 200, answer.body
    for refused in (
        request("POST", "/v1/ack", {"receipts": [leased[0].receipt]}, "psk_wrong"),
        request("POST", "/v1/ack", {"receipts": [leased[0].receipt]}),
        request("POST", "/v1/publish", {"queue": QUEUE, "messages": [{"payload": 1}]}, own),
        request("POST", "/v1/nowhere/ack", {}, own),
        request("GET", "/v1/ack", None, own),
    ):
        assert (await app.ask(refused)).status == 429
    assert (await app.ask(request("GET", "/v1/limits", key=own, address="192.0.2.2"))).status == 200


def test_the_limit_of_an_address_refuses_no_ack_over_grpc():
    async def run() -> None:
        apps: list[HttpApp] = []

        def prepare(box, app) -> None:
            app.auth = guarded(box, address_requests=Rate(1, "h")).auth
            apps.append(app)

        async with served(prepare=prepare) as here:
            metadata = (("x-api-key", await key(here.box)),)
            await here.box.publish(QUEUE, b"1")
            (leased,) = await here.box.lease(QUEUE)
            await here.stub.Stats(pb.StatsRequest(queue=QUEUE), metadata=metadata)
            reply = await here.stub.Ack(pb.AckRequest(receipts=[leased.receipt]), metadata=metadata)
            assert len(reply.results) == 1

    run_once(run())


# -- requests in streams ------------------------------------------------------------------------------------------


def test_each_request_of_a_publish_stream_is_counted():
    async def run() -> None:
        async with served(prepare=lambda box, app: setattr(app, "auth", guarded(box).auth)) as here:
            own = await key(here.box, rate="3/h")
            asked = pb.PublishStreamRequest(
                publish=pb.PublishRequest(queue=QUEUE, messages=[pb.NewMessage(payload=b"1")])
            )
            stream = here.stub.PublishStream(iter([asked] * 4), metadata=(("x-api-key", own),))
            replies = [reply async for reply in stream]
            # The call itself is the first request.
            assert [reply.error.code for reply in replies] == ["", "", "rate_limited", "rate_limited"]

    run_once(run())


class Transport:
    """Takes what is written."""

    def write(self, data: bytes) -> None:
        self.written = data

    def get_write_buffer_size(self) -> int:
        return 0


@contextmanager
def opened(answer):
    stream = answer.stream(Transport(), set())
    yield
    stream.connection_lost(None)


@pytest.mark.parametrize("limit", ["key_streams", "queue_streams"])
@boxed
async def test_an_event_stream_is_counted_as_a_stream(box, limit):
    app, own = guarded(box, **{limit: 1}), await key(box)
    await box.publish(QUEUE, b"1")
    for _ in range(2):
        first = await app.ask(request("GET", f"/v1/events/stream?queue={QUEUE}", key=own))
        with opened(first):
            again = await app.ask(request("GET", f"/v1/events/stream?queue={QUEUE}", key=own))
            assert again.status == 429 and json.loads(again.body)["error"]["details"] == {"limit": limit}


@boxed
async def test_a_call_in_a_session_goes_on_when_its_first_credential_ends(box):
    """The connection ends with the credential, which may be renewed there."""
    app, own = guarded(box), await key(box)
    await box.broker.queues.put(QUEUE, {})
    for in_session, status in ((True, 200), (False, 401)):
        waiting = request("POST", "/v1/lease", {"queue": QUEUE, "wait_ms": 60_000})
        waiting.principal = app.auth.authenticate(own, "192.0.2.1")
        waiting.in_session = in_session
        answers = []
        app.respond(waiting, lambda _, answer, answers=answers: answers.append(answer))
        assert not answers
        app.auth._end([waiting.principal])
        await box.publish(QUEUE, b"1")
        assert [answer.status for answer in answers] == [status]


# -- tables that tenants share ------------------------------------------------------------------------------------


def test_tickets_of_one_identity_take_the_place_of_no_other(monkeypatch):
    monkeypatch.setattr(limits, "TICKETS_EACH_MAX", 3)
    tickets, mine, other = Tickets(), Principal("key", "a", "a", ()), Principal("jwt", "a", "a", ())
    kept, _ = tickets.issue(other, 0)
    first, until = tickets.issue(mine, 0)
    for _ in range(2):
        tickets.issue(mine, 0)
    with pytest.raises(RateLimited):
        tickets.issue(mine, 1)
    assert tickets.take(kept, 1) is other and tickets.take(kept, 1) is None
    assert tickets.take(first, 1) is mine
    tickets.issue(mine, 1)
    with pytest.raises(RateLimited):
        tickets.issue(mine, 1)
    tickets.issue(mine, until)  # the older ones are over
    assert len(tickets) == 2
    tickets.forget({mine}, until)
    assert len(tickets) == 0


def test_full_table_of_tickets_refuses_and_forgets_none(monkeypatch):
    monkeypatch.setattr(limits, "TICKETS_MAX", 2)
    tickets = Tickets()
    kept = [tickets.issue(Principal("key", str(number), "", ()), 0)[0] for number in range(2)]
    with pytest.raises(RateLimited):
        tickets.issue(Principal("key", "9", "", ()), 0)
    assert all(tickets.take(ticket, 1) for ticket in kept)


def test_logins_of_one_person_end_the_sessions_of_no_other(monkeypatch):
    monkeypatch.setattr(limits, "SESSIONS_MAX", 3)
    sessions = UserSessions()
    cookie, _ = sessions.begin("ada@example.com", "viewer", 0, 0.0)
    ended = []
    for _ in range(5):
        sessions.begin("eve@example.com", "viewer", 0, 0.0)
        ended += sessions.trim()
    assert {session.id for session in ended} == {"eve@example.com"} and len(sessions) == 3
    assert sessions.find(cookie.reveal(), 1, 1.0) is not None
