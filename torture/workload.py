"""Clients of one life of the broker: they publish, lease, ack and nack until the broker is gone or the time is over."""

from __future__ import annotations

import contextlib
import random
import threading
import time

from torture.broker import Broker, BrokerGone, Connection
from torture.oracle import Oracle

QUEUE = "torture"
LEASE_MS = 1_000
CLIENTS = 3
SETTINGS = {"max_retries": 1000, "backoff": {"kind": "fixed", "base_ms": 1}}


def create_queue(connection: Connection) -> None:
    status, answer = connection.ask("PUT", f"/v1/queues/{QUEUE}", SETTINGS)
    assert status in (200, 201), answer


def check(connection: Connection, oracle: Oracle) -> None:
    """Everything that must be there is in the log."""
    found: set[int] = set()
    offset = "earliest"
    while True:
        status, page = connection.ask("GET", f"/v1/read?queue={QUEUE}&partition=0&offset={offset}&max=1000")
        assert status == 200, page
        found.update(message["payload"]["n"] for message in page["messages"])
        if page["next_offset"] >= page["end_offset"]:
            break
        offset = str(page["next_offset"])
    oracle.check_present(found)


def drain(connection: Connection, oracle: Oracle) -> None:
    """Everything that must be there is delivered."""
    deadline = time.monotonic() + 60
    while oracle.needed() and time.monotonic() < deadline:
        _consume(connection, oracle, random.Random(0), wait_ms=1000, all_of_it=True)
    for number in sorted(oracle.needed())[:10]:
        oracle.violations.append(f"message {number} is never delivered")


class Clients:
    """Threads with a connection each."""

    def __init__(self, broker: Broker, oracle: Oracle, seed: int):
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(broker, oracle, random.Random(seed * CLIENTS + number)))
            for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, broker: Broker, oracle: Oracle, rng: random.Random) -> None:
        with contextlib.closing(broker.connect()) as connection, contextlib.suppress(BrokerGone):
            while not self._over.is_set():
                _publish(connection, oracle, rng)
                _consume(connection, oracle, rng, wait_ms=0)

    def join(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def _publish(connection: Connection, oracle: Oracle, rng: random.Random) -> None:
    numbers = oracle.take_numbers(rng.choice((1, 1, 5, 20)))
    pad = "x" * rng.choice((10, 500, 4000))
    messages = [{"payload": {"n": number, "pad": pad}} for number in numbers]
    status, _ = connection.ask("POST", "/v1/publish", {"queue": QUEUE, "messages": messages})
    if status == 201:
        oracle.stored(numbers)


def _consume(
    connection: Connection, oracle: Oracle, rng: random.Random, *, wait_ms: int, all_of_it: bool = False
) -> None:
    lease = {"queue": QUEUE, "max": 50, "wait_ms": wait_ms, "lease_ms": LEASE_MS}
    status, answer = connection.ask("POST", "/v1/lease", lease)
    if status != 200:
        return
    messages = answer["messages"]
    oracle.delivered(messages, LEASE_MS)
    kept = [message for message in messages if all_of_it or rng.random() < 0.9]
    nacked = [message for message in messages if message not in kept and rng.random() < 0.5]
    for verb, chosen in (("ack", kept), ("nack", nacked)):
        if not chosen:
            continue
        numbers = {message["receipt"]: message["payload"]["n"] for message in chosen}
        (oracle.asks_ack if verb == "ack" else oracle.asks_nack)(list(numbers.values()))
        status, answer = connection.ask("POST", f"/v1/{verb}", {"receipts": list(numbers)})
        if verb == "ack" and status == 200:
            acked = [numbers[each["receipt"]] for each in answer["results"] if each["status"] == "acked"]
            oracle.ack_answered(list(numbers.values()), acked)
