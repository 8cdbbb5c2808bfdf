"""`penstock tls`: certificates for trying TLS on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.server.terminal import Output, OutputOption, show

tls = typer.Typer(no_args_is_help=True, help="Certificates for trying TLS.")


@tls.callback()
def _group() -> None:
    pass


@tls.command()
def dev(
    directory: Annotated[Path, typer.Argument(help="Directory of the files; nothing in it is overwritten.")] = Path(
        "penstock-tls"
    ),
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Name or address of the server besides localhost; may be given more than once."
        ),
    ] = None,
    client: Annotated[
        str, typer.Option(metavar="NAME", help="Name in the client certificate.")
    ] = "client.penstock.local",
    output: OutputOption = Output.table,
) -> None:
    """Make a local CA, a server certificate and a client certificate.

    For development: the key of the CA is in the same directory, and signs certificates for any name.

    Example: penstock tls dev penstock-tls --host broker.example
    """
    from penstock.errors import InvalidRequest
    from penstock.server.tls_dev import make_certificates

    try:
        written = make_certificates(directory, ["localhost", "127.0.0.1", "::1", *(host or ())], client)
    except FileExistsError as error:
        raise InvalidRequest(f"{error.filename} exists already; name another directory") from None
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot write certificates to {directory}: {error}") from None
    if output is Output.json:
        show({"files": [str(path) for path in written]}, output)
        return
    for path in written:
        typer.echo(path)
    typer.echo(
        f"penstock serve --auth keys --tls-cert {directory}/server.pem --tls-key {directory}/server.key", err=True
    )
