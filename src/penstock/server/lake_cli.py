"""`penstock pipeline archive`, `verify` and `compact`: write, check and compact the Delta tables of a lake."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import limits
from penstock.analytics.directory import lake_directory
from penstock.server.spark_terminal import EveryOption, MasterOption, RemoteOption, pipeline_errors, session
from penstock.server.terminal import EXIT_REFUSED, URL_DEFAULT, Output, OutputOption, Url, show

if TYPE_CHECKING:
    from penstock.pipeline.connect import BrokerCalls
    from penstock.pipeline.lake.archive import BatchProgress

LakeOption = Annotated[str, typer.Option("--lake", metavar="DIR", help="Directory of the tables.", show_default=False)]
RETRY_FOR_S = 60.0


def archive(
    lake: LakeOption,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            help="Archive this queue only; may be given more than once.  \\[default: all queues with retention "
            "keep that are not encrypted]",
        ),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Archive the events of messages as well.")
    ] = True,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until interrupted.")] = False,
    every: EveryOption = 10.0,
    batch_rows: Annotated[int, typer.Option(min=1, help="Upper bound of rows in a batch.")] = 1_000_000,
    hold_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Bytes that the broker keeps for the archive before retention applies again.  \\[default: 10 GiB]",
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Set the hold of this lake again after it was removed or lost, and continue."),
    ] = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Copy queues and events into a lake of Delta tables, each row once.

    Each run resumes after the last archived row. A hold makes the broker keep messages that are not archived yet, even
    if every group has acked them.

    Example: penstock pipeline archive --lake ./lake --follow
    """
    with pipeline_errors():
        from penstock.pipeline.lake.archive import Archive
        from penstock.pipeline.lake.tables import Lake

        broker = _broker(url)
        lake_directory(lake)
        check_reachable(broker)
        made = Lake.open_or_create(lake)
        with made.locked("archive"):
            pass  # refuses a second archive before Spark starts, which takes seconds
        spark = session("penstock archive", master, remote)
        work = Archive(
            spark, made, broker, queues=queue, events=events, rows_per_batch=batch_rows, hold_bytes=hold_bytes,
            adopt=adopt, report=_print_progress,
        )  # fmt: skip
        try:
            if follow:
                with _stop_event() as stopping:
                    work.follow(every, stopping)
                typer.echo("stopped; the next run resumes here", err=True)
            else:
                show({"rows": work.once(), "lake": str(made.directory)}, output)
        finally:
            spark.stop()


def verify(
    lake: LakeOption,
    url: Annotated[
        str | None, typer.Option("--url", help="Check as well that this broker still has the next offsets.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Verify a lake: recount files, offsets and checksums. Exits with 1 on any fault, and names it.

    Example: penstock pipeline verify --lake ./lake
    """
    with pipeline_errors():
        from penstock.pipeline.lake.tables import Lake
        from penstock.pipeline.lake.verify import verify as recount

        report = recount(Lake(lake), None if url is None else _broker(url))
        if output is Output.json:
            show(
                {"sound": report.sound, "files": report.files, "rows": report.rows, "bytes": report.size,
                 "versions": report.versions, "strays": report.strays,
                 "faults": [fault._asdict() for fault in report.faults]},
                output,
            )  # fmt: skip
        else:
            for fault in report.faults:
                typer.echo(f"{fault.table}: {fault.where}: {fault.what}")
            typer.echo(
                f"{report.files} files with {report.rows} rows: "
                + ("sound" if report.sound else f"unsound, {len(report.faults)} faults")
            )
    raise typer.Exit(0 if report.sound else EXIT_REFUSED)


def compact(
    lake: LakeOption,
    target_mb: Annotated[int, typer.Option(metavar="MB", min=1, help="Target size of the files.")] = 128,
    output: OutputOption = Output.table,
) -> None:
    """Merge many small files into few large ones. May run at the same time as an archive.

    Example: penstock pipeline compact --lake ./lake --target-mb 256
    """
    with pipeline_errors():
        from penstock.pipeline.lake.compact import compact as exchange
        from penstock.pipeline.lake.tables import Lake

        done = exchange(Lake(lake), target_mb * limits.MIB)
        show({"files_replaced": done.before, "files_made": done.after}, output)


def _broker(url: str) -> BrokerCalls:
    from penstock.pipeline.connect import BrokerCalls

    return BrokerCalls(url, None, RETRY_FOR_S)


def check_reachable(broker: BrokerCalls) -> None:
    """Call the broker once, so that a wrong address is reported before Spark starts, which takes seconds."""
    from penstock.client import lowlevel as calls

    broker.ask(calls.operation("list_queues", dict, limit=1))


def _print_progress(progress: BatchProgress) -> None:
    typer.echo(
        f"{progress.source}: batch {progress.batch}, {progress.rows} rows, {progress.rows_per_second:,.0f} rows/s",
        err=True,
    )


@contextlib.contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set.

    The first signal raises nothing: an exception in the middle of a call to the JVM would leave the reply on the
    connection for the next call. A second signal raises KeyboardInterrupt.
    """
    stopping = threading.Event()

    def interrupt(*_: Any) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
