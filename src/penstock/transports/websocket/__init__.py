"""`/v1/ws` on the HTTP port. `sockets.py` accepts connections, `session.py` handles the frames of one connection."""

from penstock.transports.websocket.sockets import WebSockets

__all__ = ["WebSockets"]
