"""The dialect `pulsar-proxy`: topics that many clients follow, by long polls and over WebSocket."""

from penstock.transports.dialects.pulsar_proxy.routes import ROUTES

__all__ = ["ROUTES"]
