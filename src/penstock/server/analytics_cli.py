"""`penstock pipeline audit` and `analyze`: whether all is accounted for, and how it went."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from penstock.analytics.directory import lake_directory
from penstock.server.spark_terminal import Master, Remote, pipeline_errors, session
from penstock.server.tables import Listing
from penstock.server.terminal import (
    EXIT_REFUSED,
    URL_DEFAULT,
    Output,
    OutputOption,
    Url,
    errors_in_one_line,
    show,
    until_told,
    working,
)

_LINES = Listing(
    "groups",
    ("queue", "group", "published", "acked", "dead", "removed", "expired", "cancelled", "purged", "deleted", "trimmed",
     "live", "verdict"),
)  # fmt: skip


def audit(
    lake: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where to find what the journal no longer has.")
    ] = None,
    url: Url = URL_DEFAULT,
    master: Master = None,
    remote: Remote = None,
    output: OutputOption = Output.table,
) -> None:
    """Prove that every message is accounted for.

    Counts the records of every message in every group: published = acked + dead + removed + expired + cancelled +
    purged + deleted + trimmed + live. Compares with what the broker has now. Exits with 1 if it does not balance,
    and names the messages.
    """
    with errors_in_one_line(), pipeline_errors():
        if lake is not None:
            lake_directory(lake)
        with working("reading the records …"):
            spark = session("penstock audit", master, remote)
            from penstock.pipeline.audit import audit as run

            report = run(spark, url, lake=lake)
        answer = report.as_dict()
        if output is Output.table:
            show({**answer, "total": 0, "page": 1}, output, _LINES)
            for trouble in report.troubles:
                group = "" if trouble.group is None else f", group {trouble.group}"
                typer.echo(f"{trouble.queue}{group}: {trouble.what} ({trouble.messages} messages)")
                for name in trouble.named:
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
            f"The journal begins behind frame {report.first_frame}: what was before is not there to be audited. "
            "Archive the events from the start (penstock pipeline archive), and name the lake with --lake."
        )
    return "It does not balance."


def analyze(
    lake: Annotated[str, typer.Option(metavar="DIR", help="Where the tables are kept.", envvar="PENSTOCK_LAKE")],
    url: Url = URL_DEFAULT,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as events come, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="With --follow: how often to look.")] = 10.0,
    events_per_batch: Annotated[int, typer.Option(min=1, help="At most so many events in one batch.")] = 1_000_000,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Go on where the journal has lost events that were not counted.")
    ] = False,
    master: Master = None,
    remote: Remote = None,
    output: OutputOption = Output.table,
) -> None:
    """Count what happened: throughput, times, depth and failures per queue, group and minute.

    Goes on where it was, whenever it is started; what it costs follows from what is new. The journal is held until it
    was counted. Let [bold]penstock serve --lake DIR[/bold] answer /v1/analytics/… from it.
    """
    with errors_in_one_line(), pipeline_errors():
        lake_directory(lake)
        with working("starting Spark …"):
            spark = session("penstock analyze", master, remote)
            from penstock.pipeline.analytics import Analysis

            analysis = Analysis(spark, lake, url, events_per_batch=events_per_batch, skip_missing=skip_missing)
        steps = []
        with until_told():
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
