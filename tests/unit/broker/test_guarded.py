"""The table of authorisation: every method of the facade has a row, and rows do what they say."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import weakref
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from boxed import boxed

import penstock.transports
from penstock.broker.guarded import ROOMS, RULES, VALUES, VIEWS, guarded_broker
from penstock.errors import Forbidden, NotFound, PenstockError, QueueNotFound
from penstock.security.principal import Principal
from penstock.security.scopes import QUEUE_VERBS, VERBS, parse_scope_text
from penstock.transports.http import HttpApp
from penstock.wire.schedules import ScheduleMessage, ScheduleRequest

SERVER_ONLY = {
    "keys.attach", "keys.bootstrap", "keys.certificate_entries", "keys.used", "messages.queues_of", "redrives.close",
    "redrives.go_on", "redrives.resume", "readers.position", "readers.stored_end", "webhooks.attach",
    "webhooks.registrations", "webhooks.registration", "webhooks.secrets", "webhooks.disable", "webhooks.rest_of",
    "stats.groups", "stats.holders", "stats.backlog", "stats.brief", "stats.row", "analytics.use", "analytics.close",
    "series.start", "series.sample", "series.close", "users.attach", "users.find", "in_flight.count", "in_flight.held",
    "queues.place", "queues.demand_unused", "queues.placement", "queues.unplace", "schedules.has",
    "messages.scope_head", "holds.check", "dead_letters.count", "watch_commits", "stop_waiting", "close",
}  # fmt: skip
"""Methods for the server itself. No principal can call them."""

OWN, OTHER = "shop/default/orders", "bank/default/orders"


def principal(*scopes: str) -> Principal:
    return Principal("key", "k1", "test", [parse_scope_text(scope) for scope in scopes])


def methods_of(broker) -> set[str]:
    found = set()
    for name in dir(broker):
        if name.startswith("_") or name in VALUES:
            continue
        value = getattr(broker, name)
        if inspect.ismethod(value):
            found.add(name)
        else:
            found |= {f"{name}.{each}" for each, _ in inspect.getmembers(value, inspect.ismethod) if each[0] != "_"}
    return found


@boxed
async def test_every_method_has_a_row_or_is_for_the_server(box):
    assert methods_of(box.broker) == {*RULES, *VIEWS, *SERVER_ONLY}
    assert not ({*RULES, *VIEWS} & SERVER_ONLY)


@boxed
async def test_methods_without_a_row_cannot_be_called(box):
    broker = guarded_broker(box.broker, principal(*(f"{verb}:*" for verb in VERBS)))
    for name in sorted(SERVER_ONLY):
        room, _, method = name.rpartition(".")
        with pytest.raises(AttributeError, match="no row"):
            getattr(getattr(broker, room) if room else broker, method)
    for private in ("_loop", "_host"):
        assert not hasattr(broker, private)


def test_transports_use_only_methods_with_a_row():
    """A transport that calls another one would fail for every principal."""
    source = Path(penstock.transports.__file__).parent
    used = set()
    for path in source.rglob("*.py"):
        if "webhooks" in path.parts:
            continue  # the courier acts for the server
        for room, method in re.findall(r"broker\.([a-z_]+)\.([a-z_]+)\(", path.read_text()):
            if room in ROOMS:
                used.add(f"{room}.{method}")
    assert used - {*RULES, *VIEWS} <= {
        "keys.attach", "keys.certificate_entries", "keys.used", "users.attach", "users.find",
    }  # fmt: skip


QUEUE_CALLS = {
    name: verb
    for verb, names in {
        "publish": ("scheduled.cancel", "scheduled.reschedule"),
        "consume": (
            "messages.lease", "members.join", "members.heartbeat", "members.leave", "groups.begin", "in_flight.is_held",
            "log.has_next",
        ),
        "queue.admin": (
            "groups.create", "groups.seek", "groups.delete", "queues.put", "queues.patch", "queues.delete",
            "queues.purge",
        ),
        "peek": (
            "log.read", "log.peek", "log.watch", "events.history", "readers.keep", "readers.get", "readers.forget",
        ),
        "dlq": ("dead_letters.page", "dead_letters.delete", "redrives.start", "redrives.list", "redrives.stop"),
    }.items()
    for name in names
}  # fmt: skip
SEEING_CALLS = (
    "log.watch_end", "log.extent", "queues.get", "stats.queue", "groups.list", "explanations.explain",
    "autoscale.signal",
)  # fmt: skip


@pytest.mark.parametrize("name", QUEUE_CALLS)
@pytest.mark.parametrize("verb", VERBS)
def test_verb_of_a_queue_call(name, verb):
    """A verb on the own namespace: the right one passes, others are forbidden, other namespaces do not exist."""
    rule, needed = RULES[name], QUEUE_CALLS[name]
    caller = principal(f"{verb}:shop/*" if verb in QUEUE_VERBS else f"{verb}:*")
    if verb == needed:
        rule(caller, None, (OWN,), {})
    else:
        with pytest.raises((Forbidden, QueueNotFound)):
            rule(caller, None, (OWN,), {})
    with pytest.raises(PenstockError) as refused:
        rule(caller, None, (OTHER,), {})
    if verb in QUEUE_VERBS:
        assert isinstance(refused.value, QueueNotFound)


@pytest.mark.parametrize("scope", ["shop", "shop/mail", "shop/mailing", "bank", "shopping"])
@pytest.mark.parametrize("held", [*(f"{verb}:shop/mail/*" for verb in QUEUE_VERBS), "consume:shop/mail/a*"])
def test_scope_is_leased_with_consume_on_all_of_it(scope, held):
    """The refusal does not depend on what exists, so it names the scope that is missing, also for another tenant."""
    rule = RULES["messages.lease_scope"]
    if (held, scope) == ("consume:shop/mail/*", "shop/mail"):
        rule(principal(held), None, (scope,), {})
    else:
        with pytest.raises(Forbidden):
            rule(principal(held), None, (scope,), {})


@pytest.mark.parametrize("name", SEEING_CALLS)
@pytest.mark.parametrize("verb", QUEUE_VERBS)
def test_any_verb_shows_the_settings_of_its_queues(name, verb):
    RULES[name](principal(f"{verb}:shop/*"), None, (OWN,), {})
    with pytest.raises(QueueNotFound):
        RULES[name](principal(f"{verb}:shop/*"), None, (OTHER,), {})


@boxed
async def test_receipts_of_another_tenant_do_not_exist(box):
    await box.publish(OTHER, b"secret")
    receipts = [message.receipt for message in await box.lease(OTHER)]
    thief = guarded_broker(box.broker, principal("consume:shop/*"))
    for settle in (thief.messages.ack, thief.messages.nack, thief.messages.reject, thief.messages.release):
        with pytest.raises(QueueNotFound):
            settle(receipts)
    owner = guarded_broker(box.broker, principal("consume:bank/*"))
    assert [result.status for result in await owner.messages.ack(receipts)] == ["acked"]
    assert [result.status for result in await thief.messages.ack(receipts)] == ["stale"]


@boxed
async def test_lists_show_what_the_principal_may_see(box):
    for queue in (OWN, OTHER):
        await box.broker.queues.put(queue, {})
    broker = guarded_broker(box.broker, principal("publish:shop/*"))
    listed = await broker.queues.list(prefix="", page=1, limit=10)
    assert ([each["queue"] for each in listed["queues"]], listed["total"]) == ([OWN], 1)
    assert [row.queue for row in await broker.stats.rows()] == [OWN]
    with pytest.raises(Forbidden):
        broker.stats.summary()


@boxed
async def test_schedules_of_another_tenant_do_not_exist(box):
    asked = ScheduleRequest(queue="bank/orders", cron="* * * * *", message=ScheduleMessage(payload=msgspec.Raw(b"1")))
    await box.broker.schedules.put("nightly", asked)
    broker = guarded_broker(box.broker, principal("queue.admin:shop/*"))
    with pytest.raises(NotFound) as hidden:
        broker.schedules.get("nightly")
    with pytest.raises(NotFound) as absent:
        box.broker.schedules.get("absent")
    assert hidden.value.message.replace("nightly", "absent") == absent.value.message
    assert broker.schedules.list(prefix="", page=1, limit=10).total == 0


class Trail:
    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    async def write(self, actor, operation, object, result):
        self.entries.append((operation, result))


@boxed
async def test_call_whose_caller_goes_away_is_in_the_audit_trail(box):
    trail = Trail()
    admin = guarded_broker(box.broker, principal("queue.admin:shop/*"), trail)
    call = asyncio.ensure_future(admin.queues.put(OWN, {}))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await box.publish("other", b"1")  # a later commit is durable
    assert box.broker.queues.get(OWN) is not None
    assert trail.entries == [("queues.put", "ok")]


@boxed
async def test_objects_for_a_principal_end_with_it(box):
    app = HttpApp(box.broker, box.clock)
    app.auth = SimpleNamespace(broker_for=lambda each: guarded_broker(box.broker, each))
    short_lived = principal("publish:shop/*")
    assert app.edge_for(short_lived) is app.edge_for(short_lived)
    gone = weakref.ref(short_lived)
    del short_lived
    gc.collect()
    assert gone() is None
