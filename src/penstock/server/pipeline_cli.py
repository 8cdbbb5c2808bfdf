"""`penstock pipeline`: the data pipeline on Spark."""

from __future__ import annotations

from penstock.server.analytics_cli import analyze, audit
from penstock.server.lake_cli import archive, compact, verify
from penstock.server.lazy_commands import command_group
from penstock.server.redrive_cli import redrive

pipeline = command_group("The data pipeline on Spark: archive messages and events in a lake, aggregate and audit them.")
for command in (archive, verify, compact, analyze, audit, redrive):
    pipeline.command()(command)
