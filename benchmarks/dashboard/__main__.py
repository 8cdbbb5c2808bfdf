"""Figures of the dashboard, of the minute series and of tracing.

    python -m benchmarks.dashboard series       space of the minute series of 500 busy queues
    python -m benchmarks.dashboard views        first paint and bytes of every view at 1,000 queues, 1M dead letters, 10M messages
    python -m benchmarks.dashboard open_pages   cost of 20 open pages for publish, lease and ack
    python -m benchmarks.dashboard idle_pages   CPU of the server for each open page of a minute
    python -m benchmarks.dashboard tracing      cost of tracing: off, and on at 1 %

Costs are CPU time of one server, in slices that alternate, so that neither other work on the machine nor a difference
between two processes counts. `--quick` after a name: a hundredth of the messages, a fourth of the rounds. `views` and
`idle_pages` need Chromium and the test dependencies.
"""  # noqa: E501

from __future__ import annotations

import sys

from benchmarks.dashboard.idle_pages import idle_pages
from benchmarks.dashboard.open_pages import open_pages
from benchmarks.dashboard.series import series
from benchmarks.dashboard.tracing import tracing
from benchmarks.dashboard.views import views

NAMED = {each.__name__: each for each in (series, views, open_pages, idle_pages, tracing)}


def main(name: str = "", *options: str) -> None:
    if name not in NAMED or set(options) - {"--quick"}:
        sys.exit(f"python -m benchmarks.dashboard {'|'.join(NAMED)} [--quick]")
    NAMED[name](quick="--quick" in options)


if __name__ == "__main__":
    main(*sys.argv[1:])
