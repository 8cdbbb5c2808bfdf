"""Delete a queue and create it again, over HTTP."""

from __future__ import annotations

from typing import Any

from tests.acceptance.http_server import Server

KEEP = {"retention": {"mode": "keep"}}


def delete(server: Server, queue: str) -> None:
    confirm = server.ask("DELETE", f"/v1/queues/{queue}").json["error"]["details"]["confirm"]
    assert server.ask("DELETE", f"/v1/queues/{queue}?confirm={confirm}").status == 200


def create(server: Server, queue: str, *payloads: Any, **config: Any) -> str:
    """A queue that keeps its log, with these messages. Returns its uuid."""
    reply = server.ask("PUT", f"/v1/queues/{queue}", {**KEEP, **config})
    assert reply.status == 201, reply.body
    if payloads:
        server.publish(queue, *payloads)
    return reply.json["uuid"]


def recreate(server: Server, queue: str, *payloads: Any, **config: Any) -> str:
    delete(server, queue)
    return create(server, queue, *payloads, **config)
