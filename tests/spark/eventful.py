"""A broker to which everything has happened that can happen to messages."""

from __future__ import annotations

from typing import Any

from tests.acceptance.http_server import Server


def receipts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["receipt"] for message in messages]


def _lease(server: Server, queue: str, **more: Any) -> list[dict[str, Any]]:
    """Longer than any test takes: what is held stays held."""
    return server.lease(queue, lease_ms=3_600_000, **more)


def done(server: Server, verb: str, messages: list[dict[str, Any]], **more: Any) -> None:
    answer = server.ask("POST", f"/v1/{verb}", {"receipts": receipts(messages), **more})
    assert answer.status == 200, answer.body


def confirmed(server: Server, method: str, target: str, body: Any = None) -> None:
    """A call that has to be confirmed."""
    token = server.ask(method, target, body).json["error"]["details"]["confirm"]
    answer = server.ask(method, f"{target}?confirm={token}", body)
    assert answer.status == 200, answer.body


def make_eventful(server: Server) -> None:
    def queue(name: str, **config: Any) -> str:
        assert server.ask("PUT", f"/v1/queues/{name}", config).status == 201
        return name

    def stats(name: str) -> Any:
        return server.ask("GET", f"/v1/stats?queue={name}").json

    orders = queue("orders", max_retries=1, backoff={"kind": "fixed", "base_ms": 1})
    server.publish(orders, *range(100))
    taken = _lease(server, orders, max=40, consumer="ada")
    done(server, "reject", taken[:4], error="order 4711 is broken")
    done(server, "nack", taken[4:6], error="timeout after 30 s", delay_ms=0)
    done(server, "extend", taken[6:10], lease_ms=60_000)
    done(server, "release", taken[10:12])
    done(server, "ack", taken[6:10] + taken[12:])
    again = _lease(server, orders, max=4, consumer="bob")
    done(server, "nack", again, error="timeout after 31 s")
    later = server.publish(orders, *range(5), delay_ms=3_600_000)
    ids = [message["id"] for message in later]
    assert server.ask("POST", "/v1/cancel", {"queue": orders, "ids": ids[:2]}).json["cancelled"] == 2
    moved = {"queue": orders, "ids": ids[2:3], "delay_ms": 7_200_000}
    assert server.ask("POST", "/v1/reschedule", moved).status == 200
    _lease(server, orders, max=10, consumer="carl")  # stays leased

    letters = [letter["id"] for letter in server.ask("GET", f"/v1/dlq?queue={orders}").json["messages"]]
    redrive = {"queue": orders, "ids": letters[:2], "dry_run": False, "redrive_id": "again"}
    assert server.ask("POST", "/v1/dlq/redrive", redrive).status in (200, 202)
    server.wait_until(lambda: stats(orders)["totals"]["redriven"] == 2)
    confirmed(server, "POST", "/v1/dlq/delete", {"queue": orders, "ids": letters[2:3]})

    brief = queue("brief")
    server.publish(brief, *range(20), ttl_ms=50)
    server.wait_until(lambda: stats(brief)["totals"]["expired"] == 20)

    purged = queue("purged")
    server.publish(purged, *range(30))
    done(server, "ack", _lease(server, purged, max=10))
    _lease(server, purged, max=5)
    confirmed(server, "POST", f"/v1/queues/{purged}/purge")
    server.publish(purged, *range(5))

    gone = queue("gone")
    server.publish(gone, *range(7))
    confirmed(server, "DELETE", f"/v1/queues/{gone}")
    queue("gone")
    server.publish(gone, *range(3))

    kept = queue("kept", retention={"mode": "keep"}, partitions=2)
    for number in range(50):
        server.publish(kept, number, key=str(number))
    while taken := _lease(server, kept, group="first"):
        done(server, "ack", taken)
    done(server, "ack", _lease(server, kept, group="second", max=10))

    once = queue("once", delivery="at_most_once")
    server.publish(once, *range(10))
    assert len(_lease(server, once, max=4)) == 4

    late = queue("late")
    server.publish(late, *range(30))
    done(server, "ack", _lease(server, late, group="early", max=10)[1:])  # not the first: the log still begins there
    done(server, "ack", _lease(server, late, group="newcomer", max=3))

    lossy = queue("lossy", dead_letter=False)
    server.publish(lossy, *range(4))
    done(server, "reject", _lease(server, lossy, max=2), error="not wanted")
