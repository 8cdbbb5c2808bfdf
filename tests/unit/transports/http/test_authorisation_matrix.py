"""Every operation of the contract x every verb x own and other tenant: allowed exactly as the contract says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from boxed import boxed

from penstock.clock import SystemClock
from penstock.security.credentials import KeyTable
from penstock.security.scopes import QUEUE_VERBS, VERBS
from penstock.security.secret import Secret
from penstock.transports.auth import Authenticator
from penstock.transports.http import HttpApp
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request
from penstock.wire.keys import KeyRequest
from penstock.wire.operations import OPERATIONS, Operation, Verb

OWN, OTHER = "shop", "bank"
FILTERED = {"list_queues", "list_schedules", "list_webhooks", "queue_table"}
"""Lists of what the credential may see: never refused."""
WHOLE = {
    name for name, operation in OPERATIONS.items()
    if name.startswith(("analytics_",)) or name.endswith(("_hold", "_holds")) or not operation.queues
} - FILTERED - {"list_keys", "create_key", "rotate_key", "revoke_key"}  # fmt: skip
"""Operations about all queues: they need the verb on `*`."""
BODIES: dict[str, dict[str, Any]] = {
    "publish": {"messages": [{"payload": 1}]},
    "extend": {"lease_ms": 1000},
    "cancel": {"key": "k"},
    "reschedule": {"key": "k", "delay_ms": 1},
    "put_group": {"group": "g"},
    "seek_group": {"group": "default", "to": "earliest", "dry_run": True},
    "heartbeat": {"member": "m", "generation": 1},
    "leave_group": {"member": "m"},
    "keep_offsets": {"client_id": "c", "offsets": {"0": 0}},
    "stop_redrive": {"redrive_id": "r"},
    "put_schedule": {"cron": "* * * * *", "message": {"payload": 1}},
    "delete_dead_letters": {"ids": ["01JPAAAAAAAAAAAAAAAAAAAAAA"]},
    "create_webhook": {"url": "https://example.com/", "group": "another"},
    "redrive": {"ids": ["01JPAAAAAAAAAAAAAAAAAAAAAA"], "dry_run": True},
    "put_queue": {},
    "patch_queue": {},
    "put_hold": {"queues": {}},
    "change_webhook": {"description": "d"},
    "resend_webhook": {"message_id": "01JPAAAAAAAAAAAAAAAAAAAAAA"},
}
QUERIES = {
    "delete_group": "group=default",
    "get_offsets": "client_id=c",
    "forget_offsets": "client_id=c",
    "history": "id=x",
}


class Tenants:
    """A broker with the same objects in two namespaces."""

    def __init__(self, box: Any):
        self.box = box
        self.broker = box.broker
        self.app = HttpApp(box.broker, SystemClock())
        self.app.auth = Authenticator(box.broker, KeyTable(Secret(bytes(32))), None, SystemClock())
        self.callers: dict[str, str] = {}

    async def open(self) -> None:
        for verb in VERBS:
            pattern = f"{OWN}/*" if verb in QUEUE_VERBS else "*"
            made = await self.broker.keys.create(KeyRequest(verb, [f"{verb}:{pattern}"]))
            self.callers[verb] = made.key

    async def request(self, operation: Operation, tenant: str) -> tuple[str, Any]:
        """The target and the body of a request about an object of the tenant, which exists."""
        queue, name = f"{tenant}/default/orders", operation.name
        await self.box.publish(queue, b"1")
        body: dict[str, Any] | None = None if operation.body is None else dict(BODIES.get(name, {}))
        query, path = [QUERIES[name]] if name in QUERIES else [], operation.path.replace("{path}", f"{tenant}/orders")
        if "{name}" in path:
            path = path.replace("{name}", f"{tenant}-nightly")
            if "schedule" in path:
                await self.ask(
                    "PUT", f"/v1/schedules/{tenant}-nightly", {"queue": queue, **BODIES["put_schedule"]}, None
                )
        if body is not None and "queue" in operation.queues and "{path}" not in operation.path:
            body["queue"] = queue
        elif "queue" in operation.queues and "{path}" not in operation.path:
            query.append(f"queue={tenant}/orders")
        if operation.queues and operation.queues[0] in ("receipts[]", "ack[]"):
            leased = await self.box.lease(queue)
            body = {**(body or {}), operation.queues[0].removesuffix("[]"): [leased[0].receipt]}
        if "id" in operation.queues:
            made = await self.ask(
                "POST",
                "/v1/webhooks",
                {"queue": queue, "url": "https://example.com/", "group": f"g{len(self.callers)}"},
                None,
            )
            self.callers[f"webhook {len(self.callers)}"] = ""
            path, query, body = self._named(path, query, body, made["id"])
        if name in ("rotate_key", "revoke_key"):
            made_key = await self.broker.keys.create(KeyRequest("x", [f"key.admin:{tenant}/a"]))
            path, query, body = self._named(path, query, body, made_key.id)
        if name == "create_key":
            body = {"name": "x", "scopes": [f"key.admin:{tenant}/a"]}
        if operation.path.startswith("/v1/analytics/"):
            query = (
                ["namespace=shop", "task=default"][: len(operation.queues)]
                if "namespace" in operation.queues
                else query
            )
        return path + ("?" + "&".join(query) if query else ""), body

    def _named(self, path: str, query: list[str], body: Any, id: str) -> tuple[str, list[str], Any]:
        if "{id}" in path:
            return path.replace("{id}", id), query, body
        return (path, query, {**body, "id": id}) if body is not None else (path, [*query, f"id={id}"], body)

    async def ask(self, method: str, target: str, body: Any, key: str | None) -> Any:
        """The reply; without a key from the broker itself."""
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        if key is not None:
            headers.append((b"x-api-key", key.encode()))
        path, _, query = target.partition("?")
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, query.encode(), Fields(headers), data)
        auth, self.app.auth = self.app.auth, self.app.auth if key is not None else None
        try:
            answer = await self.app.ask(request)
        finally:
            self.app.auth = auth
        assert answer is not None
        return json.loads(answer.body) if answer.body[:1] == b"{" else {}


def expected(operation: Operation, verb: str, tenant: str) -> set[str]:
    """`allowed`, or the codes of a refusal."""
    name, needed = operation.name, operation.scope
    if name in FILTERED or needed is Verb.NONE:
        return {"allowed"}
    if name in WHOLE:
        return {"allowed"} if verb == needed and verb not in QUEUE_VERBS else {"forbidden"}
    if needed is Verb.KEY_ADMIN:
        if verb != needed:
            return {"forbidden"}
        if name == "create_key" and tenant == OTHER:
            return {"forbidden"}
        return {"allowed"} if tenant == OWN or name == "list_keys" else {"not_found"}
    owned = verb in QUEUE_VERBS and tenant == OWN
    if verb == needed or (needed is Verb.ANY and verb in QUEUE_VERBS):
        return {"allowed"} if owned else {"queue_not_found", "not_found"}
    if needed is Verb.ANY:
        return {"allowed"} if verb == "cluster.admin" else {"queue_not_found"}
    hidden = {"queue_not_found", "not_found"}
    if verb in QUEUE_VERBS:
        return {"forbidden", "not_found"} if owned else hidden
    return {"forbidden", *hidden}


def outcome(operation: Operation, reply: dict[str, Any]) -> str:
    code = reply.get("error", {}).get("code", "") if isinstance(reply.get("error"), dict) else ""
    if code in ("unauthenticated", "forbidden", "queue_not_found"):
        return code
    # Other operations answer so about a group, a redrive or a hold, when they were allowed.
    named = {"id", "name"} & {*operation.queues} or operation.scope is Verb.KEY_ADMIN
    return "not_found" if code == "not_found" and named else "allowed"


@pytest.mark.parametrize("name", OPERATIONS)
@boxed
async def test_operation_is_allowed_exactly_as_the_contract_says(box, name):
    operation, tenants = OPERATIONS[name], Tenants(box)
    await tenants.open()
    for verb in VERBS:
        for tenant in (OWN, OTHER):
            target, body = await tenants.request(operation, tenant)
            reply = await tenants.ask(operation.method, target, body, tenants.callers[verb])
            found = outcome(operation, reply)
            assert found in expected(operation, verb, tenant), (verb, tenant, target, reply)


@pytest.mark.parametrize("name", OPERATIONS)
@boxed
async def test_without_a_credential_only_health_answers(box, name):
    operation, tenants = OPERATIONS[name], Tenants(box)
    target, body = await tenants.request(operation, OWN)
    found = outcome(operation, await tenants.ask(operation.method, target, body, ""))
    assert found == ("allowed" if name == "health" else "unauthenticated")
