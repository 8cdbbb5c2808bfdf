"""The dialect `disheap`, its HTTP part: heaps, enqueue with a producer's numbers, leases by token."""

from penstock.transports.dialects.disheap.routes import ROUTES

__all__ = ["ROUTES"]
