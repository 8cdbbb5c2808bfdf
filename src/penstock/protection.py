"""Client-side encryption and signatures: `Client(url, protection=Protection(…))`. Needs `penstock[crypto]`."""

from penstock.client.protection import ENCRYPTION_HEADER, SIGNATURE_HEADER, NotAuthentic, Protection

__all__ = ["ENCRYPTION_HEADER", "SIGNATURE_HEADER", "NotAuthentic", "Protection"]
