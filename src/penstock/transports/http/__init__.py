"""HTTP/JSON and binary batches: `protocol.py`: a connection, `app.py`: requests, `routes.py`: operations."""

from penstock.transports.http.app import HttpApp

__all__ = ["HttpApp"]
