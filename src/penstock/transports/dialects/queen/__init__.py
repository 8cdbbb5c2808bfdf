"""The dialect `queen`: queues of a task of a namespace, long polls by scope, acks by transaction id."""

from penstock.transports.dialects.queen.routes import ROUTES

__all__ = ["ROUTES"]
