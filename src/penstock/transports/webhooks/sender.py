"""One request to an endpoint, and what came of it. It never raises for what an endpoint or a network does.

Only 2xx is success. Redirects are not followed: an endpoint that has moved says so to the person who registered it. Of
the answer the status counts and `Retry-After`; its body is read up to a few kilobytes, so that the connection can be
used again, and thrown away.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

import aiohttp
from yarl import URL

from penstock import limits
from penstock._version import __version__
from penstock.errors import InvalidRequest
from penstock.transports.webhooks.guard import Guard, Refused
from penstock.transports.webhooks.network import GuardedConnector, GuardedResolver, Lookup, system_lookup
from penstock.wire.webhooks import Outcome

CONNECTIONS_MAX = 512
IDLE_S = 30
_PATIENT = frozenset((429, 502, 503, 504))
"""Answers that ask for patience rather than say that something is wrong."""


class Sent(NamedTuple):
    outcome: Outcome
    status: int | None = None
    error: str | None = None
    retry_after_ms: int | None = None


class Sender:
    """Requests through the guard. To be made inside a running event loop."""

    def __init__(self, guard: Guard, *, lookup: Lookup = system_lookup, tls: ssl.SSLContext | None = None):
        self._guard = guard
        self._session = aiohttp.ClientSession(
            connector=GuardedConnector(
                guard,
                GuardedResolver(guard, lookup),
                ssl=tls or ssl.create_default_context(),
                limit=CONNECTIONS_MAX,
                keepalive_timeout=IDLE_S,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={"user-agent": f"penstock/{__version__}", "accept-encoding": "identity", "accept": "*/*"},
        )

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int, now_ms: int) -> Sent:
        try:
            self._guard.check_url(url)
            async with (
                asyncio.timeout(timeout_ms / 1000),
                self._session.post(
                    URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                await _read_little(response)
                return answered(response.status, response.headers.get("retry-after"), now_ms)
        except InvalidRequest as error:
            return Sent("refused", error=error.message)
        except Refused as refused:
            return Sent("refused", error=str(refused))
        except TimeoutError:
            return Sent("timeout", error=f"no answer within {timeout_ms / 1000:g} s")
        except aiohttp.ClientConnectorCertificateError:
            return Sent("unreachable", error="its certificate is not valid")
        except aiohttp.ClientConnectorDNSError:
            return Sent("unreachable", error="its name cannot be resolved")
        except (aiohttp.ClientSSLError, ssl.SSLError):
            return Sent("unreachable", error="TLS could not be agreed on")
        except aiohttp.ClientConnectorError:
            return Sent("unreachable", error="no connection")
        except (aiohttp.ClientError, OSError, ValueError):
            # ValueError: what came back is no HTTP.
            return Sent("unreachable", error="the connection broke before there was an answer")

    async def close(self) -> None:
        await self._session.close()


def answered(status: int, retry_after: str | None, now_ms: int) -> Sent:
    """What an answer means."""
    if 200 <= status < 300:
        return Sent("delivered", status)
    try:
        words = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        words = ""
    error = f"the endpoint answered {status}{words}"
    if status == HTTPStatus.GONE:
        return Sent("gone", status, error)
    if status in _PATIENT:
        return Sent("throttled", status, error, retry_after_ms(retry_after, now_ms))
    if 300 <= status < 400:
        error += ", and redirects are not followed"
    return Sent("failed", status, error)


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    """Seconds, or a date; not more than a day. None for what is neither."""
    if value is None or len(value) > 64:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        wait_ms = int(value) * 1000
    else:
        try:
            wait_ms = round(parsedate_to_datetime(value).timestamp() * 1000) - now_ms
        except (ValueError, OverflowError, OSError):
            return None
    return min(max(wait_ms, 0), limits.WEBHOOK_RETRY_AFTER_MS_MAX)


async def _read_little(response: aiohttp.ClientResponse) -> None:
    left = limits.WEBHOOK_ANSWER_BYTES_MAX
    while left > 0:
        piece = await response.content.read(left)
        if not piece:
            return
        left -= len(piece)
    # Whatever more there is, nobody wants it.
    response.close()
