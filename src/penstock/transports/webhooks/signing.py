"""Standard Webhooks signatures, with which receivers verify the sender, the content and the age of a request.

https://github.com/standard-webhooks/standard-webhooks, version 1.0.0, symmetric signatures (`v1`). The id is that of
the message and the same in each attempt, so that receivers can drop repetitions; the time is that of the attempt.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence

from penstock.broker.vault import WebhookSecret


def signed_headers(secrets: Sequence[WebhookSecret], message_id: str, at_ms: int, body: bytes) -> dict[str, str]:
    """One signature for each secret: during a rotation receivers may have either secret."""
    assert secrets, "a request needs a signature"
    timestamp = str(at_ms // 1000)
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = (b64encode(hmac.digest(secret.value, content, "sha256")).decode() for secret in secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
