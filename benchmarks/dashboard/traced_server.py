"""`penstock` with tracing that SIGUSR1 turns on and SIGUSR2 off, in one process: `--trace` alone needs two servers."""

from __future__ import annotations

import asyncio
import signal

from penstock.__main__ import main
from penstock.server import compose
from penstock.server.config import Settings
from penstock.server.tracing import ServerTracing
from penstock.transports.http.app import HttpApp

_open_tracing = compose._open_tracing


def _open_switched(settings: Settings, app: HttpApp) -> ServerTracing | None:
    tracing = _open_tracing(settings, app)
    if tracing is not None:
        loop, known = asyncio.get_running_loop(), tracing
        loop.add_signal_handler(signal.SIGUSR1, lambda: app.observe("tracing", known.observe))
        loop.add_signal_handler(signal.SIGUSR2, lambda: app.observe("tracing", None))
    return tracing


if __name__ == "__main__":
    compose._open_tracing = _open_switched
    main()
