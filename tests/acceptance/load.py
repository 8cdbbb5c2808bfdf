"""Clients that keep a broker busy while it is being killed, and write down what they see (`history.py`).

Producers repeat what had no answer, under the same names; consumers ack in every way there is, nack, reject, release,
extend, dawdle and forget. None of them knows when the broker dies: they find out by failed calls.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import history
from history import Delivered, Published, Settled

import penstock.sync
from penstock.errors import PenstockError
from penstock.ids import ulid_texts, ulid_value
from penstock.wire.delivery import LeaseMeta, decode_delivery

BATCH_TYPE = "application/vnd.penstock.batch"
ANSWER_WITHIN_S = 20
BACKLOG_MAX = 3_000
"""Messages that a queue may be ahead of its slowest group: what is not consumed now has to be drained at the end."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def payload_of(token: str) -> dict[str, Any]:
    """The payload of a token. Every hundredth is large."""
    digest = hashlib.blake2b(token.encode(), digest_size=16).hexdigest()
    return {"token": token, "fill": digest * (200 if digest.startswith("00") else 1 + int(digest[0], 16) // 4)}


class Scene:
    """State that all clients share: the present address of the broker, and the recorded history."""

    def __init__(self, queues: dict[str, history.Terms]):
        self.queues = queues
        self.events: list[history.Event] = []
        """Appended to by many threads, which a list bears."""
        self.stopping = threading.Event()
        """No more publishing."""
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self.answers: Counter[int] = Counter()
        self._changed = threading.Condition()
        self._life, self._port = 0, 0
        self._published: Counter[str] = Counter()
        self._finished: Counter[tuple[str, str]] = Counter()

    def born(self, port: int) -> None:
        with self._changed:
            self._life += 1
            self._port = port
            self._changed.notify_all()

    def present(self) -> tuple[int, int]:
        with self._changed:
            return self._life, self._port

    def wait_for_life_after(self, life: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._life > life or self.over.is_set(), timeout=60)

    def count_published(self, queue: str, count: int) -> None:
        """Returns when there is room for more."""
        with self._changed:
            self._published[queue] += count
            self._changed.wait_for(lambda: self._backlog(queue) <= BACKLOG_MAX or self.stopping.is_set(), timeout=60)

    def count_finished(self, queue: str, group: str, count: int) -> None:
        with self._changed:
            self._finished[queue, group] += count
            self._changed.notify_all()

    def _backlog(self, queue: str) -> int:
        return self._published[queue] - min(self._finished[queue, group] for group in self.queues[queue].groups)

    def end(self) -> None:
        self.stopping.set()
        self.over.set()
        with self._changed:
            self._changed.notify_all()


class Client(threading.Thread):
    """One thread with one connection. `turn` is called until it is stopped."""

    def __init__(self, scene: Scene, name: str, seed: int):
        super().__init__(name=name, daemon=True)
        self.scene = scene
        self.random = random.Random(seed)
        self._life = 0
        self._connection: http.client.HTTPConnection | None = None

    def turn(self) -> None:
        raise NotImplementedError

    def finished(self) -> bool:
        return self.scene.over.is_set()

    def run(self) -> None:
        try:
            while not self.finished():
                self.turn()
        except BaseException as error:
            self.scene.failures.append(error)
        finally:
            self._hang_up()

    def ask(self, path: str, body: Any, **headers: str) -> tuple[int, bytes] | None:
        """Status and body, or None if the outcome is unknown; then the broker has been restarted."""
        life, port = self.scene.present()
        if life != self._life:
            self._hang_up()
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_WITHIN_S)
            self._life = life
        try:
            self._connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **headers})
            answer = self._connection.getresponse()
            result = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self._hang_up()
            self.scene.wait_for_life_after(life)
            return None
        self.scene.answers[result[0]] += 1
        return None if result[0] >= 500 else result

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# -- producers ----------------------------------------------------------------------------------------------------


class Producer(Client):
    """Base: makes batches, and repeats a batch under the same names until it is answered."""

    repeats = True

    def __init__(self, scene: Scene, name: str, seed: int):
        super().__init__(scene, name, seed)
        self._made: Counter[str] = Counter()

    def finished(self) -> bool:
        return self.scene.stopping.is_set()

    def send(self, queue: str, first: int, tokens: Sequence[str], delay_ms: int) -> list[str] | None:
        """Publish once; the ids of the messages, or None if the outcome is not known. A refusal is an error."""
        raise NotImplementedError

    def turn(self) -> None:
        queue = self.random.choice(list(self.scene.queues))
        count = self.random.choice((1, 1, 1, 1, 2, 5, 10, 20, 100))
        first = self._made[queue]
        self._made[queue] += count
        tokens = tuple(f"{self.name}-{number}" for number in range(first, first + count))
        delay_ms = self.random.choice((0, 0, 0, 0, 0, 0, 0, 60, 250))
        due_ms = now_ms() + delay_ms if delay_ms else 0
        ids = None
        while ids is None:
            ids = self.send(queue, first, tokens, delay_ms)
            self._note(queue, tokens, ids, due_ms)
            if ids is None and (not self.repeats or self.scene.over.is_set()):
                return
        if self.repeats and self.random.random() < 0.05:
            # As if the answer had been lost: the same again, after it was answered.
            self._note(queue, tokens, self.send(queue, first, tokens, delay_ms), due_ms)
        self.scene.count_published(queue, count)

    def _note(self, queue: str, tokens: tuple[str, ...], ids: list[str] | None, due_ms: int) -> None:
        outcome = "unknown" if ids is None else "stored"
        self.scene.events.append(Published(queue, tokens, outcome, tuple(ids or ()), due_ms))

    def publish(self, queue: str, messages: list[dict[str, Any]], **more: Any) -> list[str] | None:
        answer = self.ask("/v1/publish", {"queue": queue, "messages": messages, **more})
        if answer is None:
            return None
        assert answer[0] == 201, answer
        reply = json.loads(answer[1])
        assert reply["durable"] is True
        return [message["id"] for message in reply["messages"]]


class PlainProducer(Producer):
    """Gives its messages no names, so it must not repeat anything."""

    repeats = False

    def send(self, queue: str, first: int, tokens: Sequence[str], delay_ms: int) -> list[str] | None:
        return self.publish(queue, [{"payload": payload_of(token), "delay_ms": delay_ms} for token in tokens])


class SequenceProducer(Producer):
    """Numbers its messages."""

    def send(self, queue: str, first: int, tokens: Sequence[str], delay_ms: int) -> list[str] | None:
        messages = [{"payload": payload_of(token), "delay_ms": delay_ms, "key": token[-1]} for token in tokens]
        return self.publish(queue, messages, producer={"id": self.name, "epoch": 1, "seq": first})


class NamingProducer(Producer):
    """Gives every message an id of its own."""

    def send(self, queue: str, first: int, tokens: Sequence[str], delay_ms: int) -> list[str] | None:
        messages = [{"payload": payload_of(token), "delay_ms": delay_ms, "id": token} for token in tokens]
        return self.publish(queue, messages)


class SdkProducer(Producer):
    """Uses the blocking SDK, which sends batch frames. A new client in every life, so only ids can tell duplicates."""

    _client: penstock.sync.Client | None = None

    def send(self, queue: str, first: int, tokens: Sequence[str], delay_ms: int) -> list[str] | None:
        life, port = self.scene.present()
        if self._client is None or life != self._life:
            self._hang_up()
            self._client, self._life = penstock.sync.Client(f"http://127.0.0.1:{port}", retry_for=0.0), life
        try:
            stored = self._client.queue(queue).publish_many(
                map(payload_of, tokens), ids=tokens, delay=delay_ms / 1000 or None
            )
        except PenstockError as error:
            assert error.retryable, error
            self.scene.wait_for_life_after(life)
            return None
        return stored.ids

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


# -- consumers ----------------------------------------------------------------------------------------------------


class Consumer(Client):
    """Leases from one queue for one group, in JSON or as batch frames, and does something with what it gets."""

    def __init__(self, scene: Scene, name: str, seed: int, queue: str, group: str, *, binary: bool):
        super().__init__(scene, name, seed)
        self._queue, self._group, self._binary = queue, group, binary
        self._to_ack: list[Delivered] = []
        """Acked by the next lease."""
        self._ways: list[tuple[int, Callable[[list[Delivered]], None]]] = [
            (40, self._ack_with_next_lease),
            (25, self._ack),
            (8, self._nack_some),
            (3, self._reject_one),
            (6, self._release_some),
            (9, self._extend_then_ack),
            (4, self._dawdle_then_ack),
            (5, self._forget),
        ]

    def turn(self) -> None:
        draining = self.scene.stopping.is_set()
        lease_ms = 1_000 if draining else self.random.choice((300, 800, 1_500))
        body: dict[str, Any] = {"queue": self._queue, "group": self._group, "consumer": self.name, "wait_ms": 100}
        body |= {"max": self.random.choice((1, 10, 50, 100, 200)), "lease_ms": lease_ms}
        shown, self._to_ack = self._to_ack, []
        if shown:
            body["ack"] = self._receipts(shown)
        sent_ms = now_ms()
        answer = self.ask("/v1/lease", body, **({"accept": BATCH_TYPE} if self._binary else {}))
        if answer is None:
            self._note("ack", shown, sent_ms, None)
            # The receipts are as good after a restart as before it.
            if shown and self.random.random() < 0.5:
                self._ack(shown)
            return
        assert answer[0] == 200, answer
        results, messages = self._from_frames(answer[1]) if self._binary else self._from_json(answer[1])
        if shown:
            self._note("ack", shown, sent_ms, results)
        got = [message._replace(lease_ms=lease_ms) for message in messages]
        self.scene.events.extend(got)
        if got and draining:
            self._ack(got)
        elif got:
            weights, ways = zip(*self._ways, strict=True)
            self.random.choices(ways, weights)[0](got)

    # -- what it gets -------------------------------------------------------------------------------------------------

    def _from_json(self, body: bytes) -> tuple[list[dict[str, Any]], list[Delivered]]:
        reply, at_ms = json.loads(body), now_ms()
        return reply.get("results", []), [
            self._delivered(m["payload"], m["id"], m["receipt"], m["attempt"], at_ms, m["deadline_at_ms"])
            for m in reply["messages"]
        ]

    def _from_frames(self, body: bytes) -> tuple[list[dict[str, Any]], list[Delivered]]:
        (meta, batches), at_ms = decode_delivery(body, LeaseMeta), now_ms()
        got = []
        for run, batch in zip(meta.runs, batches, strict=True):
            assert run.receipt is not None and run.deadline_at_ms is not None
            for row, message_id in enumerate(ulid_texts(ulid_value(run.id), run.count)):
                receipt, payload = f"{run.receipt}{run.offset + row}", json.loads(batch.payload(row))
                got.append(self._delivered(payload, message_id, receipt, run.attempt, at_ms, run.deadline_at_ms))
        results = [{"receipt": each.receipt, "status": each.status} for each in meta.results or ()]
        return results, got

    def _delivered(
        self, payload: Any, message_id: str, receipt: str, attempt: int, at_ms: int, deadline_ms: int
    ) -> Delivered:
        token = payload["token"]
        intact = payload == payload_of(token)
        return Delivered(self._queue, self._group, token, message_id, receipt, attempt, at_ms, deadline_ms, 0, intact)

    # -- what it does with it -----------------------------------------------------------------------------------------

    def _ack_with_next_lease(self, got: list[Delivered]) -> None:
        self._to_ack = got

    def _ack(self, got: list[Delivered]) -> None:
        self._settle("ack", got)

    def _nack_some(self, got: list[Delivered]) -> None:
        cut = self.random.randint(1, min(len(got), 20))
        self._settle("nack", got[:cut], delay_ms=self.random.choice((0, 50, 200)), error="not now")
        self._ack_rest(got[cut:])

    def _reject_one(self, got: list[Delivered]) -> None:
        self._settle("reject", got[:1], error="never")
        self._ack_rest(got[1:])

    def _release_some(self, got: list[Delivered]) -> None:
        cut = self.random.randint(1, len(got))
        self._settle("release", got[:cut])
        self._ack_rest(got[cut:])

    def _extend_then_ack(self, got: list[Delivered]) -> None:
        """Some of them, for longer or for less than they had."""
        cut = self.random.randint(1, len(got))
        self._settle("extend", got[:cut], lease_ms=self.random.choice((200, 1_000, 2_000)))
        if self.random.random() < 0.5:
            self.scene.over.wait(self.random.uniform(0, 0.3))
        self._ack_rest(got)

    def _dawdle_then_ack(self, got: list[Delivered]) -> None:
        self.scene.over.wait(self.random.uniform(0, 0.6))
        self._settle("ack", got)

    def _forget(self, got: list[Delivered]) -> None:
        """As a consumer does that crashes."""

    def _ack_rest(self, rest: list[Delivered]) -> None:
        if rest:
            self._settle("ack", rest)

    def _settle(self, kind: str, got: list[Delivered], **more: Any) -> None:
        sent_ms = now_ms()
        answer = self.ask(f"/v1/{kind}", {"receipts": self._receipts(got), **more})
        results = None
        if answer is not None:
            assert answer[0] == 200, answer
            results = json.loads(answer[1])["results"]
        self._note(kind, got, sent_ms, results, more.get("lease_ms", 0))
        if results is None and kind == "ack" and self.random.random() < 0.5:
            self._settle("ack", got)

    def _receipts(self, got: list[Delivered]) -> list[str]:
        """One by one in JSON, as ranges where the messages came as runs."""
        if not self._binary:
            return [delivered.receipt for delivered in got]
        ranges: list[list[Any]] = []
        for delivered in got:
            prefix, _, offset = delivered.receipt.rpartition(".")
            if ranges and ranges[-1][0] == prefix and ranges[-1][2] + 1 == int(offset):
                ranges[-1][2] += 1
            else:
                ranges.append([prefix, int(offset), int(offset)])
        return [f"{prefix}.{first}-{last}" if last > first else f"{prefix}.{first}" for prefix, first, last in ranges]

    def _note(
        self, kind: str, shown: list[Delivered], sent_ms: int, results: list[dict[str, Any]] | None, lease_ms: int = 0
    ) -> None:
        at_ms = now_ms()
        told: dict[str, dict[str, Any]] = {}
        for result in results or ():
            prefix, _, offsets = result["receipt"].rpartition(".")
            first, _, last = offsets.partition("-")
            for offset in range(int(first), int(last or first) + 1):
                told[f"{prefix}.{offset}"] = result
        finished = 0
        for delivered in shown:
            result = told[delivered.receipt] if results is not None else {"status": "unknown"}
            until_ms = result.get("due_at_ms") or result.get("deadline_at_ms") or 0
            self.scene.events.append(
                Settled(kind, delivered.receipt, sent_ms, at_ms, result["status"], until_ms, lease_ms)
            )
            finished += result["status"] in ("acked", "dead_lettered")
        if finished:
            self.scene.count_finished(self._queue, self._group, finished)


def cast(scene: Scene) -> list[Client]:
    """All clients of a run."""
    clients: list[Client] = [
        kind(scene, kind.__name__.removesuffix("Producer").lower(), seed)
        for seed, kind in enumerate((PlainProducer, SequenceProducer, NamingProducer, SdkProducer))
    ]
    for queue, terms in scene.queues.items():
        for group in terms.groups:
            for form in ("json", "frames"):
                seed = len(clients)
                clients.append(Consumer(scene, f"{queue}-{group}-{form}", seed, queue, group, binary=form == "frames"))
    return clients
