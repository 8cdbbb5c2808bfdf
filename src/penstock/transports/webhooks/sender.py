"""One request to an endpoint and its result. Faults of endpoints and networks are results, not exceptions.

Only 2xx is success. Redirects are not followed; the result shows their status. The status and `Retry-After` of a
response are used. Its body is read up to a few kilobytes and discarded, so that the connection can be reused.
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
from penstock.transports.webhooks.guard import AddressRefused, Guard
from penstock.transports.webhooks.network import GuardedConnector, GuardedResolver, Lookup, system_lookup
from penstock.transports.webhooks.send_result import SendResult, result_of_status

CONNECTIONS_MAX = 512
IDLE_S = 30


class Sender:
    """Sends requests that the guard allows. Create it inside a running event loop."""

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

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int, now_ms: int) -> SendResult:
        try:
            self._guard.check_url(url)
            async with (
                asyncio.timeout(timeout_ms / 1000),
                self._session.post(
                    URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                await _discard_body(response)
                return result_of_status(response.status, response.headers.get("retry-after"), now_ms)
        except InvalidRequest as error:
            return SendResult("refused", error=error.message)
        except AddressRefused as refused:
            return SendResult("refused", error=str(refused))
        except TimeoutError:
            return SendResult("timeout", error=f"no answer within {timeout_ms / 1000:g} s")
        except aiohttp.ClientConnectorCertificateError:
            return SendResult("unreachable", error="the certificate of the endpoint is not valid")
        except aiohttp.ClientConnectorDNSError:
            return SendResult("unreachable", error="the host name cannot be resolved")
        except (aiohttp.ClientSSLError, ssl.SSLError):
            return SendResult("unreachable", error="the TLS handshake failed")
        except aiohttp.ClientConnectorError:
            return SendResult("unreachable", error="the endpoint could not be connected to")
        except (aiohttp.ClientError, OSError, ValueError):
            # ValueError: the response is not HTTP.
            return SendResult("unreachable", error="the connection was lost before a response arrived")

    async def close(self) -> None:
        await self._session.close()


async def _discard_body(response: aiohttp.ClientResponse) -> None:
    left = limits.WEBHOOK_ANSWER_BYTES_MAX
    while left > 0:
        piece = await response.content.read(left)
        if not piece:
            return
        left -= len(piece)
    response.close()
