"""A broker, a shop's traffic with failures and retries, and the outcome of every message. Run it with `make demo`.

Starts a broker on a temporary directory, keeps it busy for half a minute, then counts its history with Spark: the lake,
the audit, tables, plots of throughput and latency. Without Java 17 for Spark, it prints so and shows the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock import Client
from penstock.server.remote import Remote

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from plots import Line, plot  # noqa: E402

console = Console(width=None if sys.stdout.isatty() else 140)


# -- traffic ------------------------------------------------------------------------------------------------------


async def customers(client: Client, seconds: float) -> None:
    """Orders come in waves; some are reminders for later, and some reminders are cancelled."""
    orders, mail = client.queue("shop/orders/new"), client.queue("shop/mail/out")
    chance, number = random.Random(1), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        wave = 20 + 80 * (int(time.monotonic()) % 8 == 0)
        await orders.publish_many([{"order": number + n, "amount": (number + n) % 97} for n in range(wave)])
        number += wave
        reminder = await mail.publish({"reminder": number}, delay=chance.uniform(0.5, 5))
        if chance.random() < 0.2:
            await mail.cancel(ids=[reminder.id])
        await asyncio.sleep(0.1)


async def clerk(client: Client, name: str, seconds: float, done: Counter[str]) -> None:
    """Fails for one order in twenty, and for every hundredth order always; sends a mail for each handled order."""
    chance, mail = random.Random(name), client.queue("shop/mail/out")
    async with asyncio.timeout(seconds):
        async for message in client.queue("shop/orders/new").consume(consumer=name, prefetch=20):
            with contextlib.suppress(ValueError, TimeoutError):
                async with message:
                    await asyncio.sleep(chance.expovariate(1 / 0.004))
                    order = message.value["order"]
                    if order % 100 == 0:
                        done["poisoned"] += 1
                        raise ValueError(f"order {order} is poisoned")
                    if chance.random() < 0.05:
                        done["timeouts"] += 1
                        raise TimeoutError(f"the payment service did not answer within {chance.randrange(5, 9)} s")
                    await mail.publish({"order": order})
                    done["orders"] += 1


async def postman(client: Client, seconds: float, done: Counter[str]) -> None:
    async with asyncio.timeout(seconds):
        async for batch in client.queue("shop/mail/out").consume_batches(max=100, consumer="postman"):
            await batch.ack()
            done["mails"] += len(batch)


async def traffic(url: str, seconds: float) -> Counter[str]:
    done: Counter[str] = Counter()
    async with Client(url) as client:
        await client.create_queue(
            "shop/orders/new", max_retries=2, backoff={"kind": "fixed", "base_ms": 300}, dead_letter=True
        )
        await client.create_queue("shop/mail/out")
        working = [clerk(client, f"clerk-{n}", seconds + 3, done) for n in range(4)]
        await asyncio.gather(
            customers(client, seconds), postman(client, seconds + 4, done), *working, return_exceptions=True
        )
    return done


# -- the broker ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def broker(home: Path) -> Iterator[str]:
    """The URL of the broker, while it runs."""
    command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "off"]
    command += ["--data-dir", str(home / "data"), *(["--lake", str(home / "lake")] if has_lake() else [])]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        ready = server.stdout.readline()
        yield ready.split("http=")[1].split()[0]
    finally:
        server.terminate()
        server.wait()


def has_lake() -> bool:
    from importlib.util import find_spec

    return find_spec("deltalake") is not None


# -- what became of it --------------------------------------------------------------------------------------------


def say(what: str) -> None:
    console.print(f"\n[bold]{what}[/bold]")


def show(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return "" if value is None else str(value)


def look(url: str) -> None:
    """The broker's own statistics."""
    say("The queues now")
    listed = Remote(url).get("/v1/queues")["queues"]
    stats = [Remote(url).get("/v1/stats", queue=entry["queue"]) for entry in listed]
    show(
        [{**each, **each["totals"]} for each in stats],
        ("queue", "depth", "leased", "scheduled", "dead", "published", "delivered", "acked", "retried"),
    )


def count(url: str, home: Path, out: Path) -> bool:
    """The history with Spark; False if it does not balance."""
    from penstock.pipeline.analytics import Analysis
    from penstock.pipeline.audit import audit
    from penstock.pipeline.connect import BrokerCalls
    from penstock.pipeline.lake.archive import Archive
    from penstock.pipeline.lake.tables import Lake
    from penstock.pipeline.session import spark_session

    say("Spark copies the history into a lake, and counts it")
    spark = spark_session("penstock demo", spark_sql_shuffle_partitions="2")
    spark.sparkContext.setLogLevel("OFF")
    lake = home / "lake"
    rows = Archive(spark, Lake.open_or_create(lake), BrokerCalls(url, None, 60.0)).once()
    console.print(f"archived {rows} rows as Delta tables")
    for step in Analysis(spark, lake, url).run():
        console.print(f"analysed batch {step.batch}: {step.events} events in {step.seconds:.1f} s")
    say("Audit: published = acked + dead + … + live")
    report = audit(spark, url, lake=lake)
    show(
        report.as_dict()["groups"],
        ("queue", "group", "published", "acked", "dead", "removed", "expired", "cancelled", "live", "verdict"),
    )
    analytics(url)
    say("Plots")
    for path in draw(spark, url, out):
        console.print(f"wrote {path}")
    spark.stop()
    return report.balances


def analytics(url: str) -> None:
    """The analytics of the broker, now that its history was counted."""
    ask = Remote(url).get
    now_ms = int(time.time() * 1000)
    span = {"from_ms": now_ms - 600_000, "to_ms": now_ms, "step_ms": 60_000}
    found = {path: ask("/v1/analytics/queue", queue=path, **span) for path in ("shop/orders/new", "shop/mail/out")}
    say("Times in ms, by GET /v1/analytics/queue")
    show(
        [
            {"queue": path, "time": name, **one[name]}
            for path, one in found.items()
            for name in ("wait", "processing", "end_to_end")
        ],
        ("queue", "time", "count", "p50_ms", "p95_ms", "p99_ms", "max_ms"),
    )
    say("Consumers")
    workers = [worker for one in found.values() for worker in one["consumers"]]
    show(workers, ("queue", "consumer", "delivered", "acked", "failed", "lost", "error_rate", "mean_processing_ms"))
    say("Dead letters by what they died of")
    show(found["shop/orders/new"]["failures"], ("messages", "pattern", "fingerprint", "error"))


def draw(spark: Any, url: str, out: Path) -> Iterator[Path]:
    """Second by second, from the lifecycles of the orders."""
    from pyspark.sql import functions as F

    from penstock.pipeline.lifecycle_table import lifecycles

    events = spark.read.format("penstock").options(url=url, table="events").load()
    orders = lifecycles(events).where("queue = 'shop/orders/new' and `group` = 'default'").persist()
    second = F.unix_seconds(F.date_trunc("second", "ended_at"))
    ended = orders.where("ended_at is not null").groupBy(second.alias("at")).agg(
        F.count_if(F.col("fate") == "acked").alias("acked"),
        F.count_if(F.col("fate") == "dead").alias("dead"),
        *(F.percentile(name, 0.95).alias(name) for name in ("wait_ms", "processing_ms", "end_to_end_ms")),
    )  # fmt: skip
    came = orders.groupBy(F.unix_seconds(F.date_trunc("second", "published_at")).alias("at")).count()
    seconds = {row.at: row for row in ended.collect()}
    published = {row.at: row["count"] for row in came.collect()}
    start = min(*seconds, *published)
    out.mkdir(parents=True, exist_ok=True)

    def line(name: str, values: dict[int, float]) -> Line:
        places = sorted(values)
        return Line(name, [at - start for at in places], [values[at] for at in places])

    rates = [line("published", dict(published))]
    rates += [line(name, {at: row[name] for at, row in seconds.items()}) for name in ("acked", "dead")]
    yield plot(out / "throughput.svg", "Orders a second", "second", rates)
    times = [
        line(name.removesuffix("_ms"), {at: row[name] for at, row in seconds.items() if row[name] is not None})
        for name in ("wait_ms", "processing_ms", "end_to_end_ms")
    ]
    yield plot(out / "latency.svg", "Orders: milliseconds that 95 % did not take longer than", "second", times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=30.0, help="of traffic")
    parser.add_argument("--out", type=Path, default=Path("demo-plots"), help="where the plots go")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as url:
        say(f"A broker at {url}, and {options.seconds:.0f} seconds of traffic")
        done = asyncio.run(traffic(url, options.seconds))
        console.print(", ".join(f"{count} {what}" for what, count in sorted(done.items())))
        look(url)
        try:
            from penstock.pipeline.java import NoJava, ensure_java

            ensure_java()
            return 0 if count(url, Path(directory), options.out) else 1
        except ModuleNotFoundError as missing:
            say(f"{missing.name} is not installed, so the rest is left out: pip install 'penstock[server,spark]'")
        except NoJava as error:
            say(f"The rest is left out: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
