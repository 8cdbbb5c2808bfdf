"""`penstock pipeline`: the data pipeline on Spark."""

from __future__ import annotations

import typer

from penstock.server.analytics_cli import analyze, audit

pipeline = typer.Typer(
    name="pipeline",
    help="The data pipeline on Spark: audits and analytics of every message's history.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    rich_help_panel="The pipeline",
)
pipeline.command()(analyze)
pipeline.command()(audit)
