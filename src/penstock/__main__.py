"""`penstock` and `python -m penstock`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, which needs the server extra; without it, print how to install it."""
    try:
        from penstock.server.cli import app
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "penstock":
            raise
        sys.exit(f"penstock: the command needs the server: pip install 'penstock[server]' ({error.name} is missing)")
    app(prog_name="penstock")


if __name__ == "__main__":
    main()
