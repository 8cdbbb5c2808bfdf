"""The `penstock` command.

`serve` runs a broker. Everything else talks to a running one over its public interface, so that whatever the command
line can do, a program can do as well. Exit codes: 0 done, 1 refused, 2 misused, 69 no server there, 78 bad settings.
"""

from __future__ import annotations

import typer

from penstock._version import __version__
from penstock.server.commands import Commands, Place

_MESSAGES = "Messages"
_LOOKS = "A look at a server"


class _Penstock(Commands):
    places = {
        "serve": Place("penstock.server.serve_cli", "serve"),
        "publish": Place("penstock.server.message_cli", "publish", _MESSAGES),
        "consume": Place("penstock.server.message_cli", "consume", _MESSAGES),
        "tail": Place("penstock.server.message_cli", "tail", _MESSAGES),
        "cancel": Place("penstock.server.waiting_cli", "cancel", _MESSAGES),
        "reschedule": Place("penstock.server.waiting_cli", "reschedule", _MESSAGES),
        "worker": Place("penstock.server.worker_cli", "worker", _MESSAGES),
        "queues": Place("penstock.server.queue_cli", "queues", _LOOKS),
        "stats": Place("penstock.server.queue_cli", "stats", _LOOKS),
        "autoscale": Place("penstock.server.queue_cli", "autoscale", _LOOKS),
        "explain": Place("penstock.server.queue_cli", "explain", _LOOKS),
        "history": Place("penstock.server.queue_cli", "history", _LOOKS),
        "bench": Place("penstock.server.bench", "bench", _LOOKS),
        "inspect": Place("penstock.server.inspect_cli", "inspect"),
        "doctor": Place("penstock.server.serve_cli", "doctor"),
        "version": Place("penstock.server.cli", "version"),
        "schedule": Place("penstock.server.schedule_cli", "schedule"),
        "webhooks": Place("penstock.server.webhook_cli", "webhooks"),
        "groups": Place("penstock.server.group_cli", "groups"),
        "dlq": Place("penstock.server.dlq", "dlq"),
        "pipeline": Place("penstock.server.pipeline_cli", "pipeline"),
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
