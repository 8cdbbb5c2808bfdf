"""Groups with assigned partitions, over real HTTP and with the real SDK: shares, moves, deaths, restarts."""

from __future__ import annotations

import asyncio
import threading
from itertools import count

import pytest
from http_server import Server, running

import penstock.sync
from penstock import Assigned, Client, Conflict, InvalidRequest, StaleGeneration

_numbers = count()
PARTITIONS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("members") / "data") as running_server:
        yield running_server


@pytest.fixture
def name(server) -> str:
    """A queue that no other test uses."""
    queue = f"members/q{next(_numbers)}"
    server.ask("PUT", f"/v1/queues/{queue}", {"partitions": PARTITIONS, "lease_ms": 60_000})
    return queue


def join(server, queue, **more):
    answer = server.ask("POST", "/v1/groups/join", {"queue": queue, **more})
    assert answer.status == 200, answer.body
    return answer.json


def heartbeat(server, queue, **more):
    return server.ask("POST", "/v1/groups/heartbeat", {"queue": queue, **more})


def groups(server, queue):
    return server.ask("GET", f"/v1/groups?queue={queue}").json["groups"][0]


def spread(server, queue, size=40):
    """Publish so that every partition has something; returns how many each has."""
    counts = [0] * PARTITIONS
    while not all(counts) or sum(counts) < size:
        for message in server.publish(queue, sum(counts), key=f"k{sum(counts)}"):
            counts[message["partition"]] += 1
    return counts


def with_client(server, test, seconds=60, **options) -> None:
    async def main() -> None:
        async with Client(server.url, **options) as client:
            await asyncio.wait_for(test(client), seconds)

    asyncio.run(main())


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


# -- HTTP ---------------------------------------------------------------------------------------------------------


def test_members_share_the_partitions_and_lease_only_their_own(server, name):
    spread(server, name)
    ada = join(server, name, group="g", member="ada", session_ms=5_000)
    assert ada == {
        "member": "ada", "generation": 1, "assigned": [0, 1, 2, 3], "awaited": [], "giving_up": [],
        "session_ms": 5_000, "heartbeat_ms": 500,
    }  # fmt: skip
    held = server.lease(name, group="g", member="ada", generation=1)
    assert {message["partition"] for message in held} == {0, 1, 2, 3}
    bob = join(server, name, group="g", member="bob")
    assert (bob["assigned"], bob["awaited"]) == ([2, 3], [2, 3])
    answer = server.ask("POST", "/v1/lease", {"queue": name, "group": "g", "member": "bob", "generation": 2})
    assert answer.json == {"messages": [], "generation": 2}
    told = heartbeat(server, name, group="g", member="ada", generation=1).json
    assert (told["generation"], told["assigned"], told["giving_up"]) == (2, [0, 1], [2, 3])
    # A message that was settled with a receipt from before the move is finished.
    moved = [message["receipt"] for message in held if message["partition"] >= 2]
    results = server.ask("POST", "/v1/ack", {"receipts": moved}).json["results"]
    assert {result["status"] for result in results} == {"acked"}
    shown = groups(server, name)
    assert (shown["kind"], shown["generation"]) == ("assigned", 2)
    assert [(each["member"], each["partitions"], each["awaited"]) for each in shown["members"]] == [
        ("ada", [0, 1], []),
        ("bob", [2, 3], []),
    ]
    assert [each["owner"] for each in shown["partitions"]] == ["ada", "ada", "bob", "bob"]
    assert [each["lag"] > 0 for each in shown["partitions"]] == [True, True, False, False]
    server.publish(name, "more", key="k0")
    for member in ("ada", "bob"):
        left = server.ask("POST", "/v1/groups/leave", {"queue": name, "group": "g", "member": member})
        assert left.json == {"left": True}
    assert server.ask("POST", "/v1/groups/leave", {"queue": name, "group": "g", "member": "bob"}).json == {
        "left": False
    }
    assert groups(server, name)["kind"] == "plain"
    assert server.lease(name, group="g"), "and any consumer may lease again"


def test_refusals_of_members_have_codes(server, name):
    join(server, name, member="ada")
    join(server, name, member="ada")
    lease = {"queue": name}
    for body, status, code in [
        (lease, 409, "conflict"),
        (lease | {"member": "eve", "generation": 1}, 409, "unknown_member"),
        (lease | {"member": "ada", "generation": 1}, 409, "stale_generation"),
        (lease | {"member": "ada", "generation": 3}, 409, "stale_generation"),
        (lease | {"member": "ada"}, 400, "invalid_request"),
        (lease | {"member": "", "generation": 2}, 400, "invalid_request"),
        (lease | {"member": "a b", "generation": 2}, 400, "invalid_request"),
        (lease | {"member": "ada", "generation": 2}, 200, None),
    ]:
        answer = server.ask("POST", "/v1/lease", body)
        assert (answer.status, answer.json.get("error", {}).get("code")) == (status, code), body
    for body, status, code in [
        ({"member": "eve", "generation": 1}, 409, "unknown_member"),
        ({"member": "ada", "generation": 1}, 409, "stale_generation"),
        ({"member": "ada", "generation": 2, "released": [300]}, 400, "invalid_request"),
        ({"member": "ada", "generation": 2, "released": [200]}, 200, None),
        ({"member": "ada", "generation": 2, "group": "other"}, 409, "unknown_member"),
    ]:
        answer = heartbeat(server, name, **body)
        assert (answer.status, answer.json.get("error", {}).get("code")) == (status, code), body
    for more in ({"session_ms": 1}, {"drain_ms": -1}, {"member": "x" * 129}, {"group": ""}):
        assert server.ask("POST", "/v1/groups/join", {"queue": name, **more}).status == 400
    assert server.ask("POST", "/v1/groups/join", {"queue": "members/nowhere"}).status == 404


def test_acks_of_a_refused_lease_are_reported(server, name):
    server.publish(name, 1)
    joined = join(server, name)
    membership = {"member": joined["member"], "generation": 1}
    (message,) = server.lease(name, **membership)
    server.ask("POST", "/v1/groups/leave", {"queue": name, "member": joined["member"]})
    body = {"queue": name, **membership, "ack": [message["receipt"]]}
    answer = server.ask("POST", "/v1/lease", body)
    assert answer.status == 200
    assert answer.json["results"] == [{"receipt": message["receipt"], "status": "acked"}]
    assert server.ask("POST", "/v1/lease", {"queue": name, **membership}).json["error"]["code"] == "unknown_member"


def test_waiting_member_is_answered_when_its_partitions_move(server, name):
    shares = {member: join(server, name, member=member) for member in ("ada", "bob", "cyd", "dee")}
    answers = {}

    def wait(member):
        body = {"queue": name, "member": member, "generation": shares["dee"]["generation"], "wait_ms": 30_000}
        if heartbeat(server, name, member=member, generation=shares[member]["generation"]).status == 200:
            answers[member] = server.ask("POST", "/v1/lease", body).json

    threads = [threading.Thread(target=wait, args=(member,)) for member in shares]
    for thread in threads:
        thread.start()
    server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 4)
    server.ask("POST", "/v1/groups/leave", {"queue": name, "member": "dee"})
    server.wait_until(lambda: len(answers) == 2)
    assert answers["dee"]["messages"] == [], "its next call is told that it is not a member"
    (heir,) = set(answers) - {"dee"}
    assert answers[heir] == {"messages": [], "generation": 5}
    told = heartbeat(server, name, member=heir, generation=4).json
    assert len(told["assigned"]) == 2 and told["generation"] == 5
    assert server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 2
    while len(answers) < 4:
        spread(server, name, 4)
    for thread in threads:
        thread.join()


# -- the SDK ------------------------------------------------------------------------------------------------------


class Crew:
    """Consumers of one queue with their deliveries, in order. Detects two owners of one partition."""

    def __init__(self, client, name, **options):
        self._queue = client.queue(name)
        self._options = options
        self.taken: list[tuple[str, int, int]] = []
        """(consumer, partition, offset)"""
        self.holding: dict[int, set[str]] = {}
        self.overlaps = 0
        self.owned: dict[str, set[int]] = {}
        self.revoked: list[tuple[str, list[int]]] = []
        self._tasks: dict[str, asyncio.Task] = {}
        self._stops: dict[str, asyncio.Event] = {}

    def start(self, worker: str, *, batches=False, pause=0.0) -> None:
        self._stops[worker] = asyncio.Event()
        self._tasks[worker] = asyncio.create_task(self._work(worker, batches, pause))

    async def stop(self, worker: str) -> None:
        """Leave politely."""
        self._stops[worker].set()
        await self._tasks.pop(worker)

    async def stop_all(self) -> None:
        for worker in list(self._tasks):
            await self.stop(worker)

    async def _work(self, worker: str, batches: bool, pause: float) -> None:
        self.owned[worker] = set()
        options = Assigned(
            on_assigned=lambda partitions: self.owned[worker].update(partitions),
            on_revoked=lambda partitions: self._lost(worker, partitions),
            **self._options,
        )
        make = self._queue.consume_batches if batches else self._queue.consume
        async with make(group="crew", assigned=options) as consumer:
            stopped = asyncio.create_task(self._stops[worker].wait())
            while True:
                following = asyncio.ensure_future(anext(consumer))
                await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    break
                got = following.result()
                async with got:
                    await self._handle(worker, list(got) if batches else [got], pause)
                if stopped.done():
                    break
        stopped.cancel()

    def _lost(self, worker, partitions) -> None:
        self.owned[worker].difference_update(partitions)
        self.revoked.append((worker, partitions))

    async def _handle(self, worker, messages, pause) -> None:
        for message in messages:
            assert message.partition in self.owned[worker] or any(
                message.partition in lost for mover, lost in self.revoked if mover == worker
            ), "a message came of a partition that was never assigned"
            self.taken.append((worker, message.partition, message.offset))
            holders = self.holding.setdefault(message.partition, set())
            holders.add(worker)
            self.overlaps += len(holders) > 1
        await asyncio.sleep(pause)
        for message in messages:
            self.holding[message.partition].discard(worker)

    def in_order(self) -> bool:
        last: dict[int, int] = {}
        for _, partition, offset in self.taken:
            if offset <= last.get(partition, -1):
                return False
            last[partition] = offset
        return True


@pytest.mark.parametrize("batches", [False, True])
def test_rebalance_delivers_every_message_once_in_order(server, name, batches):
    async def test(client):
        crew = Crew(client, name)
        crew.start("ada", batches=batches, pause=0.001)
        await until(lambda: crew.owned.get("ada") == {0, 1, 2, 3})
        counts = spread(server, name)
        await until(lambda: len(crew.taken) > 3)
        crew.start("bob", batches=batches, pause=0.001)
        await until(lambda: len(crew.owned.get("bob", ())) == 2)
        counts = [a + b for a, b in zip(counts, spread(server, name), strict=True)]
        await until(lambda: len(crew.taken) == sum(counts))
        await crew.stop("ada")
        await until(lambda: crew.owned["bob"] == {0, 1, 2, 3})
        counts = [a + b for a, b in zip(counts, spread(server, name), strict=True)]
        await until(lambda: len(crew.taken) == sum(counts))
        assert crew.in_order() and not crew.overlaps
        await crew.stop_all()
        shown = groups(server, name)
        assert (shown["kind"], shown["lag"]) == ("plain", 0)

    with_client(server, test)


def test_prefetched_messages_of_a_moved_partition_are_released(server, name):
    async def test(client):
        counts = spread(server, name, 60)
        crew = Crew(client, name)
        # Ada is busy with her first message for as long as we want, and has the rest in her buffer.
        blocked = asyncio.Event()

        async def block(worker, messages, pause):
            if worker == "ada" and not blocked.is_set():
                crew.taken += [(worker, message.partition, message.offset) for message in messages]
                await blocked.wait()
            else:
                await Crew._handle(crew, worker, messages, pause)

        crew._handle = block
        crew.start("ada")
        await until(lambda: crew.taken)
        in_hand = crew.taken[0][1]
        crew.start("bob")
        await until(lambda: any(worker == "bob" for worker, _, _ in crew.taken))
        moved = crew.owned["bob"]
        finished = sum(counts[partition] for partition in moved - {in_hand})
        await until(lambda: sum(worker == "bob" for worker, _, _ in crew.taken) == finished)
        assert {partition for worker, partition, _ in crew.taken if worker == "bob"} == moved - {in_hand}
        blocked.set()
        await until(lambda: len(crew.taken) == sum(counts))
        assert crew.in_order()
        await crew.stop_all()

    with_client(server, test)


def test_messages_of_an_expired_member_are_redelivered(server, name):
    counts = spread(server, name)
    dead = join(server, name, group="crew", member="dead", session_ms=500)
    held = server.lease(name, group="crew", member="dead", generation=dead["generation"])
    assert len(held) == sum(counts)

    async def test(client):
        crew = Crew(client, name)
        crew.start("ada")
        await until(lambda: len(crew.taken) == sum(counts))
        assert crew.in_order()
        late = server.ask("POST", "/v1/ack", {"receipts": [held[0]["receipt"]]}).json["results"]
        assert late[0]["status"] == "stale"
        await crew.stop_all()

    with_client(server, test)


def test_a_member_that_was_put_out_joins_again(server, name):
    async def test(client):
        crew = Crew(client, name)
        crew.start("ada")
        await until(lambda: crew.owned.get("ada"))
        before = groups(server, name)["members"][0]["member"]
        server.ask("POST", "/v1/groups/leave", {"queue": name, "group": "crew", "member": before})
        counts = spread(server, name)
        await until(lambda: len(crew.taken) == sum(counts))
        (after,) = groups(server, name)["members"]
        assert after["member"] != before
        assert crew.revoked == [("ada", [0, 1, 2, 3])]
        await crew.stop_all()

    with_client(server, test)


def test_member_with_the_same_name_replaces_the_former_one(server, name):
    async def test(client):
        async def consume():
            async for _ in client.queue(name).consume(assigned=Assigned(member="worker-1")):
                pass

        first = asyncio.create_task(consume())
        await until(lambda: first.done() or server.ask("GET", f"/v1/groups?queue={name}").json["groups"])
        second = asyncio.create_task(consume())
        with pytest.raises(StaleGeneration):
            await first
        server.publish(name, 1)
        assert groups(server, name)["members"][0]["member"] == "worker-1"
        second.cancel()
        await asyncio.wait({second})

    with_client(server, test)


def test_lease_without_member_in_an_assigned_group_is_refused(server, name):
    async def test(client):
        join(server, name, member="ada")
        with pytest.raises(Conflict, match="join it"):
            await anext(client.queue(name).consume())
        with pytest.raises(InvalidRequest, match="session"):
            client.queue(name).consume(assigned=Assigned(session=0.1))
        with pytest.raises(InvalidRequest, match="member"):
            client.queue(name).consume(assigned=Assigned(member="a b"))

    with_client(server, test)


def test_the_blocking_consumer_is_a_member_too(server, name):
    counts = spread(server, name)
    taken: list[tuple[int, int]] = []
    owned: list[int] = []
    with penstock.sync.Client(server.url) as client:
        options = Assigned(
            session=0.6, on_assigned=owned.extend, on_revoked=lambda gone: [owned.remove(p) for p in gone]
        )
        with client.queue(name).consume(group="crew", assigned=options, prefetch=100) as consumer:
            for message in consumer:
                with message:
                    taken.append((message.partition, message.offset))
                if len(taken) == 1:
                    # The buffer is full; what moves goes back from there, by the helper's heartbeat alone.
                    bob = join(server, name, group="crew", member="bob")
                    server.wait_until(lambda: len(owned) == 2)
                    mine = {0, 1, 2, 3} - set(bob["assigned"])
                if len(taken) == sum(counts[p] for p in mine) + sum(p not in mine for p, _ in taken):
                    break
    assert {partition for partition, _ in taken[1:]} <= mine
    shown = groups(server, name)
    assert [(each["member"], each["partitions"], each["awaited"]) for each in shown["members"]] == [
        ("bob", [0, 1, 2, 3], [])
    ]
    rest = server.lease(name, group="crew", member="bob", generation=shown["generation"])
    assert len(rest) + len(taken) == sum(counts)
    assert {message["attempt"] for message in rest} == {1}


# -- storms and restarts ------------------------------------------------------------------------------------------


def test_unmoved_partition_does_not_pause_during_rebalance(server, name):
    """The owner gets no reply: it keeps the generation that it began with."""
    join(server, name, member="ada")
    generation = join(server, name, member="bob")["generation"]
    mine = [each["partition"] for each in groups(server, name)["partitions"] if each["owner"] == "ada"]
    sent = 0
    for number in range(25):
        for change in ("join", "leave"):
            server.ask("POST", f"/v1/groups/{change}", {"queue": name, "member": f"guest-{number}"})
            owners = [each["owner"] for each in groups(server, name)["partitions"]]
            still_mine = [partition for partition in mine if owners[partition] == "ada"]
            assert still_mine, "a guest takes a part of it at most"
            mine = still_mine
            while server.publish(name, sent, key=f"k{sent}")[0]["partition"] not in mine:
                sent += 1
            sent += 1
            got = server.lease(name, member="ada", generation=generation)
            assert got and {message["partition"] for message in got} <= set(mine)
            server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in got]})
    assert groups(server, name)["generation"] == generation + 50


def test_members_and_generations_survive_a_crash(tmp_path):
    data = tmp_path / "data"
    first = Server(data)
    try:
        first.ask("PUT", "/v1/queues/q", {"partitions": PARTITIONS})
        spread(first, "q")
        join(first, "q", member="ada", session_ms=2_000)
        held = first.lease("q", member="ada", generation=1)
        join(first, "q", member="bob", session_ms=2_000)
        before = groups(first, "q")
    finally:
        first.kill()
    with running(data) as second:
        after = groups(second, "q")
        assert after["generation"] == before["generation"] == 2
        assert [each["owner"] for each in after["partitions"]] == [each["owner"] for each in before["partitions"]]
        assert after["members"][1]["awaited"] == [2, 3], "and what was on its way still is"
        told = heartbeat(second, "q", member="ada", generation=1).json
        assert told["giving_up"] == [2, 3]
        results = second.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in held]}).json["results"]
        assert {result["status"] for result in results} == {"acked"}
        assert heartbeat(second, "q", member="bob", generation=2).json["awaited"] == []
        # No heartbeats arrive any more: both sessions expire, and the group has no members.
        second.wait_until(lambda: groups(second, "q")["kind"] == "plain")


def test_consumers_go_on_after_a_crash_of_the_server(tmp_path):
    data = tmp_path / "data"
    first = Server(data)
    port = first.port
    first.ask("PUT", "/v1/queues/q", {"partitions": PARTITIONS})

    async def test(client):
        nonlocal first
        crew = Crew(client, "q")
        for worker in ("ada", "bob"):
            crew.start(worker)
        await until(lambda: len(crew.owned.get("ada", ())) == len(crew.owned.get("bob", ())) == 2)
        counts = spread(first, "q")
        await until(lambda: len(crew.taken) == sum(counts))
        members = [each["member"] for each in groups(first, "q")["members"]]
        first.kill()
        first = await asyncio.to_thread(Server, data, "--listen", f"127.0.0.1:{port}")
        counts = [a + b for a, b in zip(counts, await asyncio.to_thread(spread, first, "q"), strict=True)]
        await until(lambda: len({(p, offset) for _, p, offset in crew.taken}) == sum(counts))
        assert [each["member"] for each in groups(first, "q")["members"]] == members
        assert not crew.overlaps
        await crew.stop_all()

    try:
        with_client(first, test)
    finally:
        first.kill()
