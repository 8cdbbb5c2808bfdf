"""One request to an endpoint, and what came of it. It never raises for what an endpoint or a network does.

Only 2xx is success. Redirects are not followed: an endpoint that has moved says so to the person who registered it. Of
the answer the status counts and `Retry-After`; its body is read up to a few kilobytes, so that the connection can be
used again, and thrown away.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import aiohttp
from yarl import URL

from penstock import limits
from penstock._version import __version__
from penstock.errors import InvalidRequest
from penstock.transports.webhooks.guard import Guard, Refused
from penstock.transports.webhooks.network import GuardedConnector, GuardedResolver, Lookup, system_lookup
from penstock.transports.webhooks.sent import Sent, answered

CONNECTIONS_MAX = 512
IDLE_S = 30


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


async def _read_little(response: aiohttp.ClientResponse) -> None:
    left = limits.WEBHOOK_ANSWER_BYTES_MAX
    while left > 0:
        piece = await response.content.read(left)
        if not piece:
            return
        left -= len(piece)
    # Whatever more there is, nobody wants it.
    response.close()
