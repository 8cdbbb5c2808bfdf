"""`penstock pipeline`: the data pipeline on Spark."""

from __future__ import annotations

import typer

from penstock.server.lake_cli import archive, compact, verify

pipeline = typer.Typer(
    name="pipeline",
    help="The data pipeline on Spark: every message and its history in a lake.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    rich_help_panel="The pipeline",
)
pipeline.command()(archive)
pipeline.command()(verify)
pipeline.command()(compact)
