"""`penstock pipeline`: the data pipeline on Spark."""

from __future__ import annotations

import typer

from penstock.server.analytics_cli import analyze, audit
from penstock.server.lake_cli import archive, compact, verify
from penstock.server.redrive_cli import redrive

pipeline = typer.Typer(
    name="pipeline",
    help="The data pipeline on Spark: archive messages and events in a lake, aggregate and audit them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    rich_help_panel="The pipeline",
)
for command in (archive, verify, compact, analyze, audit, redrive):
    pipeline.command()(command)
