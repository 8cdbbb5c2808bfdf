"""Standard Webhooks: what a receiver needs to know that a request is ours, whole, and not an old one.

https://github.com/standard-webhooks/standard-webhooks, version 1.0.0, symmetric signatures (`v1`). The id is that of
the message and the same in each attempt, so that a receiver can tell a repetition; the time is that of the attempt.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence

from penstock.broker.vault import Secret


def signed_headers(secrets: Sequence[Secret], message_id: str, at_ms: int, body: bytes) -> dict[str, str]:
    """One signature for each secret: during a rotation receivers may know either."""
    assert secrets, "nothing leaves unsigned"
    timestamp = str(at_ms // 1000)
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = (b64encode(hmac.digest(secret.value, content, "sha256")).decode() for secret in secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
