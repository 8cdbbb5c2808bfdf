"""A broker, some traffic with failures and delays, and what became of it. Run it with `make demo`."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
from collections import Counter

from penstock import Client

ORDERS = 2_000


async def produce(client: Client) -> None:
    orders = client.queue("orders")
    await orders.publish_many([{"order": n, "amount": n % 97} for n in range(ORDERS)])
    await asyncio.gather(
        *(orders.publish({"order": ORDERS + n, "reminder": True}, delay=0.2 + n / 500) for n in range(200))
    )


async def work(client: Client, name: str, done: Counter[str]) -> None:
    """One worker: fails one time in twenty, and every hundredth order always."""
    chance = random.Random(name)
    async for message in client.queue("orders").consume(consumer=name, wait=3.0):
        try:
            async with message:
                order = message.value["order"]
                if order % 100 == 0:
                    raise ValueError(f"order {order} is poisoned")
                if chance.random() < 0.05:
                    raise TimeoutError("the payment service did not answer")
                done["done"] += 1
                done["after a retry"] += message.attempt > 1
        except (ValueError, TimeoutError) as error:
            done[type(error).__name__] += 1


async def main(url: str) -> None:
    async with Client(url) as client:
        orders = await client.create_queue("orders", max_retries=2, backoff={"kind": "fixed", "base_ms": 200})
        done: Counter[str] = Counter()
        await asyncio.gather(produce(client), *(work(client, f"worker-{n}", done) for n in range(4)))
        print(f"workers saw       {dict(done)}")
        stats = await orders.stats()
        print(f"the broker says   depth {stats['depth']}, dead {stats['dead']}, totals {stats['totals']}")
        dead = await orders.dead_letters(limit=3)
        for letter in dead["messages"]:
            print(f"a dead letter     {letter['payload']} after {letter['attempt']} attempts: {letter['error']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock",
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--grpc",
                "off",
                "--data-dir",
                directory,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            print(ready.strip())
            asyncio.run(main(ready.split("http=")[1].split()[0]))
        finally:
            server.terminate()
            server.wait()
