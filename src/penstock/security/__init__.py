"""Identity and permission as pure parts: keys, scopes, principals, secrets, token buckets, JWTs.

Nothing here knows the broker or a transport. A transport turns a credential into a `Principal`; the broker asks the
principal whether it may act on a queue.
"""

from penstock.security.buckets import FailureBackoff, Rate, TokenBucket
from penstock.security.credentials import KeyTable
from penstock.security.keys import ApiKey
from penstock.security.principal import Principal
from penstock.security.scopes import VERBS, Scope, parse_scopes
from penstock.security.secret import Secret
from penstock.security.tokens import TokenVerifier

__all__ = [
    "VERBS",
    "ApiKey",
    "FailureBackoff",
    "KeyTable",
    "Principal",
    "Rate",
    "Scope",
    "Secret",
    "TokenBucket",
    "TokenVerifier",
    "parse_scopes",
]
