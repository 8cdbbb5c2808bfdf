"""HTTP and WebSocket interfaces of other message systems, served by the same broker.

Each route of a dialect decodes a request, calls the `Broker` and encodes the reply in the form of that system. Dialects
keep no state. The server serves only the dialects that its settings name (docs/dialects.md, ADR 0023).
"""

from penstock.transports.dialects.table import DIALECTS, sockets_of, with_dialects

__all__ = ["DIALECTS", "sockets_of", "with_dialects"]
