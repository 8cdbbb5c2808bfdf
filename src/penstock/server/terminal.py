"""What all commands share: options, output, and how a refusal looks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from penstock.errors import Conflict, PenstockError
from penstock.server import completion
from penstock.server.config import ConfigError
from penstock.server.remote import Unreachable
from penstock.server.tables import Listing, print_listing, print_object

EXIT_REFUSED = 1
EXIT_NO_SERVER = 69
EXIT_BAD_SETTINGS = 78


class Output(StrEnum):
    table = "table"
    json = "json"


Url = Annotated[str, typer.Option("--url", envvar="PENSTOCK_URL", help="The server to talk to.")]
QueueArgument = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help="Like orders, email/high or shop/mail/high.", autocompletion=completion.complete_queue
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to show the answer.")]
URL_DEFAULT = completion.URL_DEFAULT


@contextlib.contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Whatever a user can run into ends as one line on standard error and an exit code, never as a traceback."""
    try:
        yield
    except ConfigError as error:
        code, text = EXIT_BAD_SETTINGS, str(error)
    except Unreachable as error:
        code, text = EXIT_NO_SERVER, f"{error.message}: start one with `penstock serve`, or name another with --url"
    except PenstockError as error:
        code, text = EXIT_REFUSED, error.message
    except BrokenPipeError:
        # Whoever reads our output has seen enough. Python would complain once more while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    else:
        return
    typer.echo(f"penstock: {' '.join(text.split())}", err=True)
    raise typer.Exit(code)


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirmed(call: Callable[[dict[str, str]], Any], question: Callable[[dict[str, int]], str], yes: bool) -> Any:
    """The answer to a destructive call, which takes its token as a query; `question` says what would be lost.

    Raises typer.Abort if the user does not mean it.
    """
    try:
        return call({})
    except Conflict as error:
        if "confirm" not in error.details:
            raise
        if not yes:
            typer.confirm(f"{question(error.details['would_lose'])} This cannot be undone.", abort=True, err=True)
        return call({"confirm": error.details["confirm"]})


def show(answer: Any, output: Output, listing: Listing | None = None) -> None:
    if output is Output.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
    elif listing is not None:
        print_listing(answer, listing)
    else:
        print_object(answer)


def value_of(text: bytes) -> Any:
    """A JSON value as what it is, anything else as the bytes it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


@contextlib.contextmanager
def progress(label: str, total: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, for people only; the function says how much is done by now."""
    if not show or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(label), BarColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total or None)
        yield lambda done: bar.update(task, completed=done)


class Told:
    """Whether somebody has asked us to end, with Ctrl-C or SIGTERM. It interrupts what is going on, unless that is to
    be finished first."""

    def __init__(self) -> None:
        self._finishing = False
        self._came = False

    def hear(self, *_: Any) -> None:
        self._came = True
        if not self._finishing:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """This is done whole: what is half settled nobody could settle any more."""
        self._finishing = True
        try:
            yield
        finally:
            self._finishing = False
        if self._came:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within `finishing`, what may take for ever."""
        self._finishing = False
        try:
            if self._came:
                raise KeyboardInterrupt
            yield
        finally:
            self._finishing = True


@contextlib.contextmanager
def until_told() -> Iterator[Told]:
    """For what goes on until Ctrl-C or SIGTERM, and then ends in order."""
    told = Told()
    in_charge = threading.current_thread() is threading.main_thread()  # others are not told of signals
    before = {number: signal.signal(number, told.hear) for number in (signal.SIGINT, signal.SIGTERM) if in_charge}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def working(label: str) -> Iterator[None]:
    """Say on standard error what is going on, while it does; for people only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
