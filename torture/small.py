"""The broker as it is shipped, but with journal files of 256 KiB: files are closed, sealed and removed all the time."""

from __future__ import annotations

from penstock import limits

limits.JOURNAL_SEGMENT_BYTES = 256 * limits.KIB

if __name__ == "__main__":
    from penstock.server.cli import app

    app()
