"""Cross-origin requests of pages whose origin is allowed (`--allowed-origin`): preflights, and headers of answers.

Without an allowed origin the server sends none of these headers, and browsers show its answers to its own pages alone.
Cookies are never shared: the pages of other origins send a key or a token.
"""

from __future__ import annotations

from penstock.transports.http.answer import Answer
from penstock.transports.http.request import Request

MAX_AGE_S = 600
"""For so long a browser does not ask again."""
REQUEST_HEADERS = b"authorization, content-type, traceparent, x-api-key, x-request-id"
ANSWER_HEADERS = b"retry-after, x-request-id"


def is_preflight(request: Request) -> bool:
    """Browsers ask so before a request. It has no credential. The origin was checked, as that of every request."""
    return (
        request.method == "OPTIONS"
        and request.fields.origin is not None
        and any(name == b"access-control-request-method" for name, _ in request.fields.headers)
    )


def options_answer(request: Request, methods: list[str]) -> Answer:
    """The methods that a path takes."""
    if not is_preflight(request):
        return Answer(204, b"", headers=((b"allow", ", ".join(methods).encode()),))
    headers = (
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", REQUEST_HEADERS),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
    )
    return Answer(204, b"", headers=headers)


def shared_answer(answer: Answer, origin: bytes) -> Answer:
    """The answer, for pages of this origin."""
    headers = (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", ANSWER_HEADERS),
        (b"vary", b"origin"),
    )
    return answer._replace(headers=answer.headers + headers)
