"""Read archive and live tail as one table while both grow: `python -m tests.spark.union --reads 50`.

Two queues, one that keeps its log and one that lets go of what was acked; one client publishes to both, another acks
everything in the second, and an archive copies them into a lake, all at the same time. Every read must see offsets 0 to
n-1 of each partition, once each, with an n that never gets smaller.

Every other read of the second queue waits, once its DataFrame was made, until the broker has let go of the first
messages of its live part.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import penstock.pipeline
from penstock.pipeline.lake.tables import Lake
from penstock.sync import Client
from tests.acceptance.http_server import Server, running
from tests.spark.following import Following, is_held
from tests.spark.quick import be_quick

KEEPS, LETS_GO = "keeps", "lets-go"
PARTITIONS = 2
AT_ONCE = 20
PAUSE_S = 0.2
PATIENCE_S = 120


class Read(NamedTuple):
    queue: str
    rows: int
    late: bool
    """Created before the broker removed some of its messages, and used after."""
    faults: list[str]

    def __str__(self) -> str:
        found = "; ".join(self.faults) or "every offset once"
        return f"{self.queue:7} {self.rows:6} rows{', late' if self.late else ''}: {found}"


def watch(spark: Any, server: Server, lake: Path, reads: int) -> Iterator[Read]:
    """So many reads of each queue."""
    with Client(server.url) as client:
        client.create_queue(KEEPS, partitions=PARTITIONS, retention={"mode": "keep"})
        client.create_queue(LETS_GO, partitions=PARTITIONS)
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(Following(lake, server.url, "--queue", KEEPS, "--queue", LETS_GO))
        # Messages acked before the hold is set are not held.
        archive.until(lambda: is_held(server, lake, LETS_GO))
        discrepancy = stack.enter_context(_busy(server.url))
        archive.until(lambda: all(len(_archived(lake, queue)) == PARTITIONS for queue in (KEEPS, LETS_GO)))
        before: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for number in range(reads):
            for queue in (KEEPS, LETS_GO):
                rows = penstock.pipeline.union(spark, lake=lake, url=server.url, queue=queue)
                late = queue == LETS_GO and number % 2 == 1
                if late:
                    seam = _archived(lake, queue)
                    archive.until(functools.partial(_has_let_go, server, queue, seam))
                yield _checked(queue, rows, before[queue], late=late)
        assert not discrepancy, discrepancy
        assert archive.stop() == 0, archive.said()


def _checked(queue: str, frame: Any, before: dict[int, int], *, late: bool) -> Read:
    """`before` is how much the read before has seen of each partition, and then how much this one has."""
    found = defaultdict(list)
    for partition, offset in frame.select("partition", "offset").collect():
        found[partition].append(offset)
    faults = []
    for partition in range(PARTITIONS):
        offsets = sorted(found[partition])
        if offsets != list(range(len(offsets))):
            twice = len(offsets) - len(set(offsets))
            missing = sorted(set(range(offsets[-1])) - set(offsets))
            faults.append(f"partition {partition}: {twice} twice, {len(missing)} missing {missing[:3]}")
        if len(offsets) < before.get(partition, 0):
            faults.append(f"partition {partition}: {before[partition]} before, and now {len(offsets)}")
        before[partition] = len(offsets)
    return Read(queue, sum(before.values()), late, faults)


def _archived(lake: Path, queue: str) -> list[int]:
    """Where the archive ends, of partitions that it has something of."""
    if not (lake / "messages/_delta_log").exists():
        return []
    table = Lake(lake).table("messages")
    return [at for subject in table.subjects(f"default/default/{queue}") for at in table.positions(subject).values()]


def _has_let_go(server: Server, queue: str, offsets: list[int]) -> bool:
    """Of what comes after these offsets, in every partition."""
    partitions = server.ask("GET", f"/v1/extent?queue={queue}").json["partitions"]
    return all(each["start_offset"] > offset for each, offset in zip(partitions, offsets, strict=True))


@contextlib.contextmanager
def _busy(url: str) -> Iterator[list[Exception]]:
    """Publishes and acks; errors are added to the list."""
    over, discrepancy = threading.Event(), []

    def publish(client: Client) -> None:
        number = 0
        while not over.wait(PAUSE_S):
            numbers = range(number, number + AT_ONCE)
            for queue in (KEEPS, LETS_GO):
                client.queue(queue).publish_many(list(numbers), keys=[str(each) for each in numbers])
            number += AT_ONCE

    def ack(client: Client) -> None:
        while not over.is_set():
            with contextlib.closing(client.queue(LETS_GO).consume_batches(max=100, wait=0.2)) as batches:
                for batch in batches:
                    batch.ack()
                    if over.is_set():
                        return

    def work(what: Any) -> None:
        try:
            with Client(url) as client:
                what(client)
        except Exception as error:
            discrepancy.append(error)

    threads = [threading.Thread(target=work, args=(what,)) for what in (publish, ack)]
    for thread in threads:
        thread.start()
    try:
        yield discrepancy
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)


def main() -> int:
    parser = argparse.ArgumentParser(description="read archive and live tail as one table while both grow")
    parser.add_argument("--reads", type=int, default=50, help="of each queue")
    options = parser.parse_args()
    from penstock.pipeline.session import spark_session

    be_quick()
    spark = spark_session("union", master="local[2]", spark_sql_shuffle_partitions="2")
    spark.sparkContext.setLogLevel("OFF")
    faulty = count = late = 0
    with tempfile.TemporaryDirectory() as directory, running(Path(directory) / "data") as server:
        for read in watch(spark, server, Path(directory) / "lake", options.reads):
            count, late, faulty = count + 1, late + read.late, faulty + bool(read.faults)
            print(f"{time.strftime('%H:%M:%S')} {read}", flush=True)
    print(f"{count} reads, {late} of them late, {faulty} with a gap, a duplicate or less than before")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
