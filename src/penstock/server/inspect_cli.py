"""`penstock inspect`: read journal files without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.server.terminal import EXIT_REFUSED


def inspect(path: Annotated[Path, typer.Argument(help="A journal file, or a data directory.", exists=True)]) -> None:
    """Print the records of a journal. Read-only; the server may be running.

    Exits with 1 if a part of the journal is damaged or a file is missing.

    Example: penstock inspect ./penstock-data
    """
    from penstock.journal.dump import dump

    damaged = dump(str(path), typer.echo)
    raise typer.Exit(EXIT_REFUSED if damaged else 0)
