"""Kill an archive where it hurts, and recount the lake: `python -m tests.spark.archive_kills --runs 20`.

One run: a queue that is copied into a lake, and in the middle of a batch the driver, a worker or the broker is killed
-9. What has died is started again, until the archive is through. Then the lake must be sound, and have every offset
once.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

from penstock.pipeline.connect import BrokerCalls as Reached
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify
from penstock.sync import Client
from tests.spark.kills import BATCHES, BrokerCalls, Driver, Outcome, campaign, through
from tests.spark.pipe import BATCH

MOMENTS = ("writing", "commit", "any")
"""While tasks write files; just after a commit, when the hold is about to move; whenever it may be."""
QUEUE = "default/default/in"


class LakeMoment:
    """When to strike: in one of the batches, at a point of it that the directory of the lake shows."""

    def __init__(self, lake: Path, name: str, chance: random.Random):
        self._lake = lake
        self.name = name
        self.in_commit = False
        self._rows = chance.randrange(BATCHES - 1) * BATCH
        self.later_s = chance.uniform(0, {"writing": 0.02, "commit": 0.1, "any": 1.5}[name])

    def stored(self) -> int:
        """Rows of the queue that are in the lake."""
        if not (self._lake / "messages/_delta_log").exists():
            return 0
        return Lake(self._lake).table("messages").rows_committed(QUEUE)

    def is_near(self) -> bool:
        rows = self.stored()
        if self.name == "writing":
            return rows >= self._rows and any((self._lake / "messages").glob("*/*/.*.part"))
        return rows > self._rows if self.name == "commit" else rows >= self._rows


def run(kind: str, seed: int, directory: Path, driver: Driver) -> Outcome:
    chance = random.Random(seed)
    broker = BrokerCalls(directory / "data")
    lake = directory / "lake"
    try:
        with Client(broker.url) as client:
            source = client.create_queue("in", partitions=2, retention={"mode": "keep"})
            for first in range(0, BATCHES * BATCH, 1_000):
                source.publish_many(list(range(1_000)), keys=[str(first + number) for number in range(1_000)])
            ends = [each["end_offset"] for each in broker.server.ask("GET", "/v1/extent?queue=in").json["partitions"]]
        moment = LakeMoment(lake, MOMENTS[seed % len(MOMENTS)], chance)
        killed_at = through(("archive", broker.url, str(lake)), kind, moment, broker, driver, chance)
        report = verify(Lake(lake), Reached(broker.url, None, 20.0))
        assert report.sound, report.faults
    finally:
        broker.server.kill()
    rows = Lake(lake).table("messages").delta.to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
    found = Counter((row["partition"], row["offset"]) for row in rows)
    wanted = {(partition, offset) for partition, end in enumerate(ends) for offset in range(end)}
    assert not found.keys() - wanted, "there is more than was published"
    return Outcome(kind, moment.name, killed_at, len(wanted - found.keys()), found.total() - len(found))


if __name__ == "__main__":
    sys.exit(campaign("kill an archive where it hurts, and recount the lake", run))
