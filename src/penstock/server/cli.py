"""The `penstock` command.

`serve` runs a broker. All other commands call a running one over its public interface, so a program can do everything
that the command line can do. Exit codes: 0 done, 1 refused, 2 usage error, 69 server unreachable, 74 disk failed, 75
store taken over by another broker, 78 invalid settings, 130 ended by Ctrl-C.
"""

from __future__ import annotations

from typing import Annotated

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
        "stats": CommandReference("penstock.server.inspection_cli", "stats", _INSPECTION),
        "top": CommandReference("penstock.server.top_cli", "top", _INSPECTION),
        "autoscale": CommandReference("penstock.server.inspection_cli", "autoscale", _INSPECTION),
        "scheduled": CommandReference("penstock.server.inspection_cli", "scheduled", _INSPECTION),
        "explain": CommandReference("penstock.server.inspection_cli", "explain", _INSPECTION),
        "history": CommandReference("penstock.server.inspection_cli", "history", _INSPECTION),
        "bench": CommandReference("penstock.server.bench_cli", "bench", _INSPECTION),
        "inspect": CommandReference("penstock.server.inspect_cli", "inspect"),
        "doctor": CommandReference("penstock.server.serve_cli", "doctor"),
        "version": CommandReference("penstock.server.cli", "version"),
        "schedule": CommandReference("penstock.server.schedule_cli", "schedule"),
        "webhooks": CommandReference("penstock.server.webhook_cli", "webhooks"),
        "groups": CommandReference("penstock.server.group_cli", "groups"),
        "holds": CommandReference("penstock.server.hold_cli", "holds"),
        "logs": CommandReference("penstock.server.log_cli", "logs"),
        "dlq": CommandReference("penstock.server.dlq_cli", "dlq"),
        "audit": CommandReference("penstock.server.audit_cli", "audit"),
        "encryption": CommandReference("penstock.server.encryption_cli", "encryption"),
        "store": CommandReference("penstock.server.store_cli", "store"),
        "keys": CommandReference("penstock.server.keys_cli", "keys"),
        "users": CommandReference("penstock.server.users_cli", "users"),
        "tls": CommandReference("penstock.server.tls_cli", "tls"),
        "pipeline": CommandReference("penstock.server.pipeline_cli", "pipeline", "The pipeline"),
    }


app = typer.Typer(
    cls=_Penstock,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def penstock(
    _version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A durable message broker you can query.

    Start one with [bold]penstock serve[/bold], then [bold]penstock publish orders '{"order": 1}'[/bold] and \
[bold]penstock consume orders[/bold].
    """


def version() -> None:
    """Print the version.

    Example: penstock version
    """
    typer.echo(f"penstock {__version__}")
