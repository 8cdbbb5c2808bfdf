"""Write the fixture `lake-v<n>.tar.gz`: `python -m tests.compat.write_lake`, from the top of the repository.

The archive has a broker's data directory, a lake that was filled from that broker, and the checkpoints of two streams.
A released format must stay readable, so a fixture is written once, by the code of its time. Raise VERSION when the
format of the lake or of the checkpoints changes; an existing fixture is never overwritten.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import Any

from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.session import spark_session
from penstock.sync import Client
from tests.acceptance.http_server import Server

VERSION = 1
FIXTURE = Path(__file__).parent / f"lake-v{VERSION}.tar.gz"


def read_stream(spark: Any, url: str, checkpoint: Path, **options: str) -> list[Any]:
    """The rows that a stream with this checkpoint has still to read."""
    rows: list[Any] = []
    stream = spark.readStream.format("penstock").options(url=url, **options).load()
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


def write(root: Path) -> None:
    """`orders` has 25 messages, 20 of them in the lake; `gone` has 5 in the lake and was deleted."""
    spark = spark_session("fixture", master="local[2]", spark_sql_shuffle_partitions="2")
    server = Server(root / "data")
    try:
        with Client(server.url) as client:
            orders = client.create_queue("orders", partitions=2, retention={"mode": "keep"})
            gone = client.create_queue("gone", retention={"mode": "keep"})
            gone.publish_many(list(range(5)))
            orders.publish_many([{"n": n} for n in range(10)], keys=[str(n) for n in range(10)])
            read_stream(spark, server.url, root / "checkpoint-messages", queue="orders")
            read_stream(spark, server.url, root / "checkpoint-events", table="events")
            orders.publish_many([{"n": n} for n in range(10, 20)], keys=[str(n) for n in range(10)])
            lake, broker = Lake.open_or_create(root / "lake"), BrokerCalls(server.url, None, 20.0)
            Archive(spark, lake, broker, rows_per_batch=8).once()
            orders.publish_many([{"n": n} for n in range(20, 25)], keys=[str(n) for n in range(5)])
        confirm = server.ask("DELETE", "/v1/queues/gone").json["error"]["details"]["confirm"]
        assert server.ask("DELETE", f"/v1/queues/gone?confirm={confirm}").status == 200
        assert server.terminate() == 0
    finally:
        server.kill()
        spark.stop()


def main() -> None:
    if FIXTURE.exists():
        print(f"{FIXTURE} exists and stays as it is")
        return
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write(root)
        with tarfile.open(FIXTURE, "w:gz") as packed:
            for name in ("data", "lake", "checkpoint-messages", "checkpoint-events"):
                packed.add(root / name, name)


if __name__ == "__main__":
    main()
