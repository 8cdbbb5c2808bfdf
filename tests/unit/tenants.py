"""Two tenants with the same objects, a key for each verb of one of them, and the expected outcome of every operation.

`expected` is the table of authorisation in words of the contract (`wire/operations.py`); each protocol is compared with
it.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlencode

from penstock.clock import SystemClock
from penstock.security.credentials import KeyTable
from penstock.security.passwords import PasswordHashes
from penstock.security.scopes import QUEUE_VERBS, VERBS
from penstock.security.secret import Secret
from penstock.transports.auth import Authenticator
from penstock.transports.http import HttpApp
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request
from penstock.wire.keys import KeyRequest
from penstock.wire.operations import OPERATIONS, Operation, Verb
from penstock.wire.users import UserRequest

OWN, OTHER = "shop", "bank"
HASH_KEY: Secret[bytes] = Secret(bytes(32))
FILTERED = {"list_queues", "list_schedules", "list_webhooks", "queue_table"}
"""Lists of what the credential may see: never refused."""
KEYS = {"list_keys", "create_key", "rotate_key", "revoke_key"}
WHOLE = {
    name for name, operation in OPERATIONS.items()
    if name.startswith(("analytics_",)) or name.endswith(("_hold", "_holds")) or not operation.queues
} - FILTERED - KEYS  # fmt: skip
"""Operations about all queues: they need the verb on `*`."""
WITHOUT_CREDENTIAL = {"health", "login"}
SESSIONS = {"change_password", "logout"}
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
    "change_user": {"role": "viewer"},
    "login": {"email": "ada@example.com", "password": "wrong"},
    "change_password": {"password": "wrong", "new_password": "long enough for me"},
}
QUERIES = {
    "delete_group": {"group": "default"},
    "get_offsets": {"client_id": "c"},
    "forget_offsets": {"client_id": "c"},
    "history": {"id": "x"},
    "analytics_namespace": {"namespace": OWN},
    "analytics_task": {"namespace": OWN, "task": "default"},
}


class Asked(NamedTuple):
    """A request in the terms of HTTP. `names` are the parameters of the path."""

    operation: Operation
    names: dict[str, str]
    query: dict[str, str]
    body: dict[str, Any] | None

    @property
    def path(self) -> str:
        path = self.operation.path
        for name, value in self.names.items():
            path = path.replace(f"{{{name}}}", value)
        return path

    @property
    def target(self) -> str:
        return self.path + (f"?{urlencode(self.query)}" if self.query else "")

    @property
    def fields(self) -> dict[str, Any]:
        """All of them together, as other protocols send them."""
        names = {"queue" if name == "path" else name: value for name, value in self.names.items()}
        return {**names, **self.query, **(self.body or {})}


class Tenants:
    """A broker with the same objects in two namespaces, and callers with one verb in one of them."""

    def __init__(self, box: Any, app: HttpApp | None = None):
        self.box = box
        self.broker = box.broker
        self.app = app or HttpApp(box.broker, SystemClock())
        self.auth = Authenticator(box.broker, KeyTable(HASH_KEY), None, SystemClock(), hashes=PasswordHashes(HASH_KEY))
        self.app.auth = self.auth
        self.callers: dict[str, str] = {}
        self._numbers = count()

    async def open(self) -> None:
        for verb in VERBS:
            pattern = f"{OWN}/*" if verb in QUEUE_VERBS else "*"
            made = await self.broker.keys.create(KeyRequest(verb, [f"{verb}:{pattern}"]))
            self.callers[verb] = made.key

    async def request(self, operation: Operation, tenant: str) -> Asked:
        """A request about an object of the tenant, which exists."""
        queue, name = f"{tenant}/default/orders", operation.name
        await self.box.publish(queue, b"1")
        names: dict[str, str] = {"path": queue} if "{path}" in operation.path else {}
        query = dict(QUERIES.get(name, {}))
        body: dict[str, Any] | None = None if operation.body is None else dict(BODIES.get(name, {}))
        if "{name}" in operation.path:
            names["name"] = f"{tenant}-nightly"
            if "schedule" in operation.path:
                await self.ask("PUT", f"/v1/schedules/{names['name']}", {"queue": queue, **BODIES["put_schedule"]})
        if "queue" in operation.queues and not names.get("path"):
            (query if body is None else body)["queue"] = queue
        if operation.queues and operation.queues[0] in ("receipts[]", "ack[]"):
            leased = await self.box.lease(queue)
            body = {**(body or {}), operation.queues[0].removesuffix("[]"): [leased[0].receipt]}
        if "id" in operation.queues or name in ("rotate_key", "revoke_key"):
            id = await self._made_id(operation, tenant, queue)
            (names if "{id}" in operation.path else query if body is None else body)["id"] = id
        if name == "create_key":
            body = {"name": "x", "scopes": [f"key.admin:{tenant}/a"]}
        if name.endswith("_user"):
            await self._name_user(operation, names, body)
        return Asked(operation, names, query, body)

    async def _made_id(self, operation: Operation, tenant: str, queue: str) -> str:
        if operation.scope is Verb.KEY_ADMIN:
            return (await self.broker.keys.create(KeyRequest("x", [f"key.admin:{tenant}/a"]))).id
        group = f"g{next(self._numbers)}"
        made = await self.ask("POST", "/v1/webhooks", {"queue": queue, "url": "https://example.com/", "group": group})
        return str(made["id"])

    async def _name_user(self, operation: Operation, names: dict[str, str], body: dict[str, Any] | None) -> None:
        email = f"person{next(self._numbers)}@example.com"
        if operation.name == "add_user":
            assert body is not None
            body.update(email=email, role="viewer", password="long enough for me")
        else:
            names["email"] = email
            await self.broker.users.add(UserRequest(email, "viewer", "long enough for me"))

    async def ask(self, method: str, target: str, body: Any, *headers: tuple[bytes, bytes]) -> Any:
        """The reply of HTTP; without headers for a credential that of the broker itself."""
        given = [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers]
        path, _, query = target.partition("?")
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, query.encode(), Fields(given), data)
        self.app.auth = self.auth if headers else None
        try:
            answer = await self.app.ask(request)
        finally:
            self.app.auth = self.auth
        assert answer is not None
        return json.loads(answer.body) if answer.body[:1] == b"{" else {}


def expected(operation: Operation, verb: str, tenant: str) -> set[str]:
    """`allowed`, or the codes of a refusal."""
    name, needed = operation.name, operation.scope
    if name == "login":
        return {"unauthenticated", "rate_limited"}
    if name == "change_password":
        return {"forbidden"}  # a key has no password
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
    hidden = {"queue_not_found", "not_found"}
    owned = verb in QUEUE_VERBS and tenant == OWN
    if verb == needed or (needed is Verb.ANY and verb in QUEUE_VERBS):
        return {"allowed"} if owned else hidden
    if needed is Verb.ANY:
        return {"allowed"} if verb == "cluster.admin" else {"queue_not_found"}
    if verb in QUEUE_VERBS:
        return {"forbidden", "not_found"} if owned else hidden
    return {"forbidden", *hidden}


def outcome(operation: Operation, code: str) -> str:
    """What the code of a reply means for authorisation; empty: the reply is no error."""
    if code in ("unauthenticated", "forbidden", "queue_not_found", "rate_limited"):
        return code
    # Other operations answer so about a group, a redrive or a hold, when they were allowed.
    named = {"id", "name"} & {*operation.queues} or operation.scope is Verb.KEY_ADMIN
    return "not_found" if code == "not_found" and named else "allowed"


def code_of(reply: dict[str, Any]) -> str:
    error = reply.get("error")
    return str(error.get("code", "")) if isinstance(error, dict) else ""
