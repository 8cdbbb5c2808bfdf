"""Bulk publish and consume with and without encryption at rest, in turns on one server.

    python -m benchmarks.encryption

Prints the messages per second of each round, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock import Client
from penstock.server.master_key_file import add_master_key

SIZE_BYTES = 200
BATCH = 1_000


async def measure(url: str, messages: int, rounds: int) -> dict[str, list[float]]:
    """Messages per second of each round, published in batches of 1,000 and then consumed in batches of 1,000."""
    kinds = {"plain": (False, 0), "encrypted": (True, 0), "encrypted_keys": (True, 1_000), "plain_keys": (False, 1_000)}
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    async with Client(url) as client:
        for number in range(rounds):
            for kind, (encryption, keys) in kinds.items():
                queue = await client.create_queue(f"{kind}-{number}", encryption=encryption)
                values = [os.urandom(SIZE_BYTES) for _ in range(BATCH)]
                names = [f"user-{row % keys}" for row in range(BATCH)] if keys else None
                begun = time.perf_counter()
                for _ in range(messages // BATCH):
                    await queue.publish_many(values, keys=names)
                left = messages
                async for batch in queue.consume_batches(max=BATCH):
                    async with batch:
                        left -= len(batch.payloads())
                    if not left:
                        break
                found[kind].append(messages / (time.perf_counter() - begun))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        add_master_key(key)
        command = [
            sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--data-dir",
            f"{folder}/data", "--encryption-key", str(key), "--log-level", "error",
        ]  # fmt: skip
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            ready = re.match(r"ready http=(\S+)", server.stdout.readline())
            assert ready is not None, "the server did not start"
            found = asyncio.run(measure(ready[1], asked.messages, asked.rounds))
        finally:
            server.terminate()
            server.wait(30)
    medians = {kind: statistics.median(rates) for kind, rates in found.items()}
    for kind, rates in found.items():
        print(f"{kind:15} median {medians[kind]:9,.0f} messages/s   " + " ".join(f"{rate:,.0f}" for rate in rates))
    print(f"encrypted / plain: {medians['encrypted'] / medians['plain']:.2f}")
    print(f"the same with 1,000 message keys in each batch: {medians['encrypted_keys'] / medians['plain_keys']:.2f}")


if __name__ == "__main__":
    main()
