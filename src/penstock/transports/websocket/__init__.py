"""`/v1/ws` on the HTTP port: `sockets.py` is the door, `session.py` what one connection means."""

from penstock.transports.websocket.sockets import WebSockets

__all__ = ["WebSockets"]
