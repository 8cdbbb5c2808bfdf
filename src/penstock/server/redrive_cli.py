"""`penstock pipeline redrive`: publish archived messages again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.server.spark_terminal import MasterOption, RemoteOption, pipeline_errors, session
from penstock.server.tables import Listing
from penstock.server.terminal import (
    EXIT_REFUSED,
    URL_DEFAULT,
    Output,
    OutputOption,
    Url,
    Yes,
    confirm,
    show,
    spinner,
)
from penstock.server.times import duration_option

if TYPE_CHECKING:
    from penstock.pipeline.lake.redrive import ArchiveRedrive, RedriveOutcome

_SAMPLE = Listing("messages", ("partition", "offset", "id", "key", "priority", "payload"))
RETRY_FOR_S = 60.0


def redrive(
    lake: Annotated[str, typer.Option("--lake", metavar="DIR", help="Directory of the archive.", show_default=False)],
    queue: Annotated[str, typer.Option("--queue", "-q", help="Queue of the archived messages.", show_default=False)],
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="PREDICATE",
            show_default=False,
            help="Spark SQL over the columns of `messages`, and `text`: the payload as text.",
        ),
    ],
    uuid: Annotated[
        str | None, typer.Option(help="Incarnation of the queue, if it was deleted and created again.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Adds columns with the outcome of each message in this group to the predicate: fate, error, …"
        ),
    ] = None,
    target: Annotated[str | None, typer.Option("--to", help="The queue to publish to.  \\[default: the same]")] = None,
    delay: Annotated[float, duration_option("Delay before the delivery.", default="none")] = 0.0,
    priority: Annotated[int | None, typer.Option(help="Priority of the copies instead of the archived one.")] = None,
    rate: Annotated[int, typer.Option(min=1, help="Messages per second.")] = 1_000,
    redrive_id: Annotated[
        str | None, typer.Option("--redrive-id", help="A redrive with the same id resumes and publishes nothing twice.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the messages and show a few.")] = False,
    yes: Yes = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Publish archived messages again: those that match a predicate, each once, at a limited rate.

    Like [bold]--where "key like 'eu-%' and get_json_object(text, '$.amount') > 100"[/bold], or with --group default:
    [bold]--where "fate = 'dead' and error like '%timeout%'"[/bold]. Counts the messages and asks before it publishes.
    The table `redrives` of the lake records the redrive.

    Example: penstock pipeline redrive --lake ./lake --queue orders --where "key = 'eu'" --dry-run
    """
    with pipeline_errors():
        from penstock.pipeline.connect import BrokerCalls
        from penstock.pipeline.lake.redrive import ArchiveRedrive, redrive_spec
        from penstock.pipeline.lake.tables import Lake
        from penstock.server.lake_cli import check_reachable

        spec = redrive_spec(
            queue, where, group=group, target=target, delay_ms=round(delay * 1000), priority=priority, uuid=uuid
        )  # fmt: skip
        found, broker = Lake(lake), BrokerCalls(url, None, RETRY_FOR_S)
        if not dry_run:
            check_reachable(broker)
        with spinner("looking …"):
            spark = session("penstock redrive", master, remote)
            work = ArchiveRedrive(spark, found, broker, spec, redrive_id)
            preview = work.preview() if dry_run or not yes else None
        if dry_run:
            assert preview is not None
            answer: dict[str, Any] = {"messages": preview.sample, "total": preview.messages}
            if output is Output.table:
                typer.echo(f"{preview.messages} messages would be published to {spec.target}")
            show(answer, output, _SAMPLE)
            return
        if preview is not None:
            confirm(f"Publish {preview.messages} messages to {spec.target}?")
        typer.echo(f"redrive {work.id}", err=True)
        try:
            show(_progress_reporter(work, rate)._asdict(), output)
        except KeyboardInterrupt:
            typer.echo(f"stopped; with --redrive-id {work.id} it resumes here", err=True)
            raise typer.Exit(EXIT_REFUSED) from None


def _progress_reporter(work: ArchiveRedrive, rate: int) -> RedriveOutcome:
    """Show the progress on standard error."""
    with contextlib.ExitStack() as stack:
        bar: Any = None
        shown = 0

        def report(done: int, messages: int) -> None:
            nonlocal bar, shown
            if bar is None:
                stderr = typer.get_text_stream("stderr")
                bar = stack.enter_context(typer.progressbar(length=messages, label="redriving", file=stderr))
            bar.update(done - shown)
            shown = done

        return work.run(rate, report)
