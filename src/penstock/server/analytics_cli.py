"""`penstock pipeline audit` and `analyze`: balance the records of every message, and aggregate events into tables."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from penstock.analytics.directory import lake_directory
from penstock.server.spark_terminal import EveryOption, MasterOption, RemoteOption, pipeline_errors, session
from penstock.server.tables import Listing
from penstock.server.terminal import (
    EXIT_REFUSED,
    URL_DEFAULT,
    Output,
    OutputOption,
    Url,
    show,
    spinner,
    until_interrupted,
)

_LINES = Listing(
    "groups",
    ("queue", "group", "published", "acked", "dead", "removed", "expired", "cancelled", "purged", "deleted", "trimmed",
     "live", "verdict"),
)  # fmt: skip


def audit(
    lake: Annotated[
        str | None, typer.Option(metavar="DIR", help="The lake that holds the events which the journal has trimmed.")
    ] = None,
    url: Url = URL_DEFAULT,
    master: MasterOption = None,
    remote: RemoteOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Prove that every message is accounted for.

    Counts the records of every message in every group: published = acked + dead + removed + expired + cancelled +
    purged + deleted + trimmed + live. Compares the sums with the counters of the broker. Exits with 1 if they differ,
    and names the messages.

    Example: penstock pipeline audit --lake ./lake
    """
    with pipeline_errors():
        if lake is not None:
            lake_directory(lake)
        with spinner("reading the records …"):
            spark = session("penstock audit", master, remote)
            from penstock.pipeline.audit import audit as run

            report = run(spark, url, lake=lake)
        answer = report.as_dict()
        if output is Output.table:
            show(answer, output, _LINES)
            for discrepancy in report.discrepancies:
                group = "" if discrepancy.group is None else f", group {discrepancy.group}"
                typer.echo(f"{discrepancy.queue}{group}: {discrepancy.what} ({discrepancy.messages} messages)")
                for name in discrepancy.named:
                    typer.echo(f"    {name}")
            typer.echo(_verdict(report))
        else:
            show(answer, output)
    raise typer.Exit(0 if report.balances else EXIT_REFUSED)


def _verdict(report: Any) -> str:
    if report.balances:
        return f"It balances, up to frame {report.last_frame} of the journal."
    if report.first_frame:
        return (
            f"The journal begins after frame {report.first_frame}: earlier frames are trimmed and cannot be audited. "
            "Archive the events from the start (penstock pipeline archive), and name the lake with --lake."
        )
    return "It does not balance."


def analyze(
    lake: Annotated[str, typer.Option(metavar="DIR", help="Directory of the tables.", envvar="PENSTOCK_LAKE")],
    url: Url = URL_DEFAULT,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new events until Ctrl-C.")] = False,
    every: EveryOption = 10.0,
    events_per_batch: Annotated[int, typer.Option(min=1, help="Upper bound of events in one batch.")] = 1_000_000,
    skip_missing: Annotated[
        bool,
        typer.Option("--skip-missing", help="Continue after events that the journal trimmed before they were counted."),
    ] = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Aggregate events: throughput, times, depth and failures per queue, group and minute.

    Each run resumes after the last counted frame, so its cost depends on the new events alone. A hold keeps the journal
    until its events are counted. [bold]penstock serve --lake DIR[/bold] answers /v1/analytics/… from the tables.

    Example: penstock pipeline analyze --lake ./lake --follow --every 1m
    """
    with pipeline_errors():
        lake_directory(lake)
        with spinner("starting Spark …"):
            spark = session("penstock analyze", master, remote)
            from penstock.pipeline.analytics import Analysis

            analysis = Analysis(spark, lake, url, events_per_batch=events_per_batch, skip_missing=skip_missing)
        steps = []
        with until_interrupted():
            for step in analysis.run(until_caught_up=not follow, pause_s=every):
                steps.append(step)
                if output is Output.table:
                    typer.echo(
                        f"batch {step.batch}: {step.events} events in {step.seconds:.1f} s, "
                        f"frame {step.until_frame} of {step.end_frame}"
                    )
                else:
                    typer.echo(msgspec.json.encode(step._asdict()).decode())
        if not steps and output is Output.table:
            typer.echo("nothing new")
