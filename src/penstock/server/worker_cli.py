"""`penstock worker module:client`: run the functions that a module declared with `@client.worker`."""

from __future__ import annotations

import importlib
import socket
import sys
import time
from typing import Annotated, Any

import typer

from penstock.client.lowlevel import GRACE_S
from penstock.server.config import Address
from penstock.server.logging import configure_logging
from penstock.server.times import duration_option

CONNECT_TIMEOUT_S = 5.0
CONNECT_EVERY_S = 0.5


def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:CLIENT", help="Like shop.mail:client, looked for in this directory first.")
    ],
    grace: Annotated[
        float, duration_option("Time that running handlers get after the stop signal.", default="25s")
    ] = GRACE_S,
) -> None:
    """Run the workers of a program until SIGTERM or Ctrl-C.

    Waits for a broker that is not there yet. On a signal running handlers finish and messages whose handler has not
    started return to the queue. Exits with 0, or with 1 if a handler had to be cancelled.

    Example: penstock worker shop.mail:client
    """
    configure_logging("auto", "info")
    client = _client(target)
    if client.address is not None:
        _wait_for_broker(target, Address(*client.address))
    raise typer.Exit(client.run(grace=grace))


def _wait_for_broker(target: str, address: Address) -> None:
    """Return when the address accepts connections. Prints that it waits, and when the workers start."""
    waiting = False
    while True:
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_S).close()
            break
        except OSError as error:
            if not waiting:
                typer.echo(f"{target}: waiting for the broker at {address}: {error.strerror or error}", err=True)
            waiting = True
            time.sleep(CONNECT_EVERY_S)
    typer.echo(f"{target}: running with the broker at {address}; Ctrl-C stops it", err=True)


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
