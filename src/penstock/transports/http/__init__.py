"""HTTP/JSON and binary batches: `app.py` is the door, `routes.py` the map."""

from penstock.transports.http.app import HttpApp

__all__ = ["HttpApp"]
