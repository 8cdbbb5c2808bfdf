"""The `penstock` command.

`serve` runs a broker. All other commands call a running one over its public interface, so a program can do everything
that the command line can do. Exit codes: 0 done, 1 refused, 2 usage error, 69 server unreachable, 78 invalid settings.
"""

from __future__ import annotations

import typer

from penstock._version import __version__
from penstock.server.lazy_commands import CommandReference, LazyCommandGroup

_MESSAGES = "Messages"
_INSPECTION = "Inspect a server"


class _Penstock(LazyCommandGroup):
    references = {
        "serve": CommandReference("penstock.server.serve_cli", "serve"),
        "publish": CommandReference("penstock.server.message_cli", "publish", _MESSAGES),
        "consume": CommandReference("penstock.server.message_cli", "consume", _MESSAGES),
        "tail": CommandReference("penstock.server.message_cli", "tail", _MESSAGES),
        "cancel": CommandReference("penstock.server.cancel_cli", "cancel", _MESSAGES),
        "reschedule": CommandReference("penstock.server.cancel_cli", "reschedule", _MESSAGES),
        "worker": CommandReference("penstock.server.worker_cli", "worker", _MESSAGES),
        "queues": CommandReference("penstock.server.queue_cli", "queues", _INSPECTION),
        "stats": CommandReference("penstock.server.queue_cli", "stats", _INSPECTION),
        "autoscale": CommandReference("penstock.server.queue_cli", "autoscale", _INSPECTION),
        "explain": CommandReference("penstock.server.queue_cli", "explain", _INSPECTION),
        "history": CommandReference("penstock.server.queue_cli", "history", _INSPECTION),
        "bench": CommandReference("penstock.server.bench_cli", "bench", _INSPECTION),
        "inspect": CommandReference("penstock.server.inspect_cli", "inspect"),
        "doctor": CommandReference("penstock.server.serve_cli", "doctor"),
        "version": CommandReference("penstock.server.cli", "version"),
        "schedule": CommandReference("penstock.server.schedule_cli", "schedule"),
        "webhooks": CommandReference("penstock.server.webhook_cli", "webhooks"),
        "groups": CommandReference("penstock.server.group_cli", "groups"),
        "dlq": CommandReference("penstock.server.dlq_cli", "dlq"),
        "pipeline": CommandReference("penstock.server.pipeline_cli", "pipeline"),
    }


app = typer.Typer(
    cls=_Penstock,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def penstock() -> None:
    """A durable message broker you can query.

    Start one with [bold]penstock serve[/bold], then [bold]penstock publish orders '{"order": 1}'[/bold] and \
[bold]penstock consume orders[/bold].
    """


def version() -> None:
    """Print the version."""
    typer.echo(f"penstock {__version__}")
