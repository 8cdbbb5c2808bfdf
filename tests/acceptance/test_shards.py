"""`penstock serve --shards N`: the number is fixed when the store is created, and any client can use all shards."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from http_server import running

from penstock import Client

QUEUES = [f"shop/q{number}" for number in range(12)]


def refused(data_dir, shards: int) -> str:
    """The one line with which `serve` refuses this number of shards."""
    command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "off"]
    ended = subprocess.run(
        [*command, "--data-dir", str(data_dir), "--shards", str(shards), "--log-level", "error"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 78, ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    return ended.stderr


def test_number_of_shards_is_fixed_and_other_numbers_are_refused(tmp_path):
    with running(tmp_path / "four", "--shards", "4"):
        pass
    assert sorted(path.name for path in (tmp_path / "four").glob("shard-*")) == [f"shard-{n}" for n in range(4)]
    for wrong in (1, 5):
        assert f"the store has 4, not {wrong}" in refused(tmp_path / "four", wrong)
    with running(tmp_path / "four") as server:
        assert server.ask("GET", "/readyz").status == 200
    with running(tmp_path / "one"):
        pass
    assert "the store has 1, not 4" in refused(tmp_path / "one", 4)
    assert not (tmp_path / "one" / "shard-1").exists()


def test_clients_use_all_shards_and_a_restart_keeps_them(tmp_path):
    async def publish(url: str) -> None:
        async with Client(url) as client:
            for queue in QUEUES:
                await client.queue(queue).publish_many([{"n": number} for number in range(20)])

    async def consume(url: str) -> list[tuple[str, int]]:
        found = []
        async with Client(url) as client:
            for queue in QUEUES:
                async for batch in client.queue(queue).consume_batches(max=7, wait=0.2):
                    found += [(queue, json.loads(message.payload)["n"]) for message in batch]
                    await batch.ack()
        return found

    with running(tmp_path / "data", "--shards", "4") as server:
        asyncio.run(publish(server.url))
        listed = server.ask("GET", "/v1/queues?limit=5&page=2").json
        assert listed["total"] == 12 and [entry["queue"] for entry in listed["queues"]] == [
            f"shop/default/q{number}" for number in (3, 4, 5, 6, 7)
        ]
    with running(tmp_path / "data") as server:
        found = asyncio.run(consume(server.url))
        assert found == [(queue, number) for queue in QUEUES for number in range(20)]
        assert server.ask("GET", "/v1/stats/summary").json["depth"] == 0
        metrics = server.ask("GET", "/metrics").body.decode()
        assert all(f'queue="shop/default/q{number}"' in metrics for number in range(12))
        shards = [server.ask("GET", f"/v1/events?shard={shard}&max=1000").json for shard in range(4)]
        events = [event for reply in shards for event in reply["events"]]
        assert sum(event["count"] for event in events if event["kind"] == "published") == 240
        assert server.ask("GET", "/v1/events?shard=4").status == 400


def test_atomic_publish_over_several_shards_names_the_placement(tmp_path):
    with running(tmp_path / "data", "--shards", "4") as server:
        body = {"messages": [{"queue": queue, "payload": 1} for queue in QUEUES]}
        answer = server.ask("POST", "/v1/publish", body)
        assert answer.status == 400 and answer.json["error"]["code"] == "cross_shard"
        assert "placement: namespace" in answer.json["error"]["message"]
        assert server.ask("GET", "/v1/queues").json["total"] == 0
        for queue in QUEUES:
            assert server.ask("PUT", f"/v1/queues/{queue}", {"placement": "namespace"}).status == 201
        assert server.ask("POST", "/v1/publish", body).status == 201
        parts = server.ask("POST", "/v1/publish", {**body, "atomic": False})
        assert parts.status == 207 and len(parts.json["results"]) == 12
