"""`penstock store`: the store of the journals, without a server."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from penstock.server.terminal import Output, OutputOption, errors_in_one_line, show

store = typer.Typer(no_args_is_help=True, help="The store of the journals.")


@store.callback()
def _group() -> None:
    pass


@store.command()
def init(
    url: Annotated[
        str, typer.Argument(metavar="URL", envvar="PENSTOCK_STORE", help="URL of the store, as in `serve --store`.")
    ],
    output: OutputOption = Output.table,
) -> None:
    """Create the schema and the tables of a PostgreSQL store, or check those that are there.

    `penstock serve` does the same at its first start. Run it as a role that may create schemas if the broker's may not.

    Example: penstock store init postgres://admin@db.example/app?schema=penstock
    """
    from penstock.engines import open_engine, without_password
    from penstock.errors import InvalidRequest
    from penstock.journal.port import EngineError
    from penstock.server.config import ConfigError, StoreRefused

    async def check() -> None:
        try:
            engine = open_engine(url, data_dir="")
        except InvalidRequest as error:
            raise ConfigError(error.message) from None
        try:
            await engine.check()
        except EngineError as error:
            raise StoreRefused(f"the store cannot be used: {error}") from error
        finally:
            await engine.close()

    with errors_in_one_line():
        if not url.startswith(("postgres:", "postgresql:")):
            raise ConfigError("only a PostgreSQL store has to be created: postgres://…")
        asyncio.run(check())
    if output is Output.json:
        show({"store": without_password(url), "ready": True}, output)
    else:
        typer.echo(f"{without_password(url)} is ready")
