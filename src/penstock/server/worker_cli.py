"""`penstock worker module:client`: run the functions that a module declared with `@client.worker`."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Annotated, Any

import typer

from penstock.client.lowlevel import GRACE_S
from penstock.server.terminal import errors_in_one_line


def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:CLIENT", help="Like shop.mail:client, looked for in this directory first.")
    ],
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time that running handlers get after the stop signal.")
    ] = GRACE_S,
) -> None:
    """Run the workers of a program until SIGTERM or Ctrl-C.

    On a signal running handlers finish and messages whose handler has not started return to the queue. Exits with 0, or
    with 1 if a handler had to be cancelled.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with errors_in_one_line():
        code = _client(target).run(grace=grace)
    raise typer.Exit(code)


def _client(target: str) -> Any:
    """Import the client that a target names. Raises BadParameter if there is none."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise typer.BadParameter(f"{target!r} is not MODULE:CLIENT, like shop.mail:client")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise typer.BadParameter(f"there is no module {error.name!r} here") from None
    client = getattr(module, name, None)
    if client is None or not callable(getattr(client, "run_workers", None)):
        raise typer.BadParameter(f"{module_name} has no client called {name!r}")
    return client
