"""Other interfaces to the same broker: what programs written for another system say, translated.

A dialect is a thin one: each route reads a request in that system's words, asks the one `Broker`, and answers in its
words again. Nothing is remembered here. None is served unless the server is told to (docs/dialects.md, ADR 0023).
"""

from penstock.transports.dialects.table import DIALECTS, sockets_of, with_dialects

__all__ = ["DIALECTS", "sockets_of", "with_dialects"]
