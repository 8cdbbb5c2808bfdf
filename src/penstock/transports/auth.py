"""From a credential to a principal, for every protocol.

A credential is an API key, a JWT, or a client certificate whose name is the name of a key; in browsers the session of a
person (`login.py`), and for a WebSocket a ticket. A request with a credential that is not accepted is refused, whatever
else it has. Failures are counted per address: after a few a minute they are answered with 429. Valid credentials are
accepted all the same, because clients behind one proxy share an address.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from prometheus_client.core import CounterMetricFamily, Metric

from penstock import limits
from penstock.broker.audit import AuditTrail
from penstock.broker.guarded import guarded_broker
from penstock.broker.metering import Metering
from penstock.clock import Clock
from penstock.errors import Forbidden, RateLimited, Unauthenticated
from penstock.security.addresses import Headers, TrustedProxies, counted_address
from penstock.security.buckets import FailureBackoff, parse_rate
from penstock.security.credentials import KeyTable
from penstock.security.keys import PREFIX, shown_id
from penstock.security.passwords import PasswordHashes
from penstock.security.principal import Principal
from penstock.security.quotas import AccessLimits, Quotas
from penstock.security.scopes import not_covered
from penstock.security.sessions import Tickets, UserSession
from penstock.security.tokens import TokenVerifier
from penstock.transports.login import Login

if TYPE_CHECKING:
    from penstock.broker.service import Broker
    from penstock.transports.http.request import Peer

SETTLING = frozenset({"ack", "ack_batch", "nack", "reject", "release", "extend"})
"""Operations by which consumers finish what they have, also those of dialects: a rate does not refuse them."""


def settles(operation: str) -> bool:
    """Whether an operation only finishes what a consumer has. Those of dialects begin with the name of the dialect."""
    return operation.rpartition(".")[2] in SETTLING


SUBPROTOCOL_PREFIX = "bearer."
"""A browser cannot set headers of a WebSocket: it offers the subprotocol `bearer.<credential>` as well."""


class Authenticator:
    """Finds the principal of a request, and ends the streams of principals that are accepted no longer."""

    def __init__(
        self, broker: Broker, keys: KeyTable, tokens: TokenVerifier | None, clock: Clock,
        audit: AuditTrail | None = None, bounds: AccessLimits | None = None, hashes: PasswordHashes | None = None,
        proxies: TrustedProxies | None = None,
    ):  # fmt: skip
        """Without hashes of passwords there is no login for people."""
        bounds = bounds or AccessLimits()
        self._broker = broker
        self._audit = audit
        self._keys = keys
        self.tokens = tokens
        self._clock = clock
        self._proxies = proxies or TrustedProxies()
        self._failures = FailureBackoff(bounds.address_failures)
        self.quotas = Quotas(bounds, clock.monotonic)
        self._metering = Metering(broker, self.quotas)
        self._tickets = Tickets()
        self.login = None if hashes is None else Login(broker, hashes, clock, audit, bounds.address_failures, self._end)
        self.is_revoked: Callable[[bytes], bool] = lambda _: False
        """Whether a revocation list names a client certificate (PEM). The server sets it."""
        self._streams: dict[Principal, set[Callable[[], None]]] = {}
        self._certificates: WeakValueDictionary[tuple[str, ...], Principal] = WeakValueDictionary()
        """By the names of a certificate: those that were seen last, and those with open streams or tickets."""
        self._last_certificates: OrderedDict[tuple[str, ...], Principal] = OrderedDict()
        broker.keys.attach(keys, self._end)

    # -- requests -----------------------------------------------------------------------------------------------------

    def client_behind(self, peer: Peer, headers: Headers) -> Peer:
        """The client behind a trusted proxy; any other peer is the client itself."""
        if self._proxies and self._proxies.trusts(peer.address):
            return peer._replace(address=self._proxies.client(peer.address, headers))
        return peer

    def authenticate(
        self, credential: str | None, address: str, certificate: Sequence[str] = (), *, settles: bool = False
    ) -> Principal:
        """Raises Unauthenticated, or RateLimited. `certificate` has the names of the client certificate. With a valid
        credential a request that settles messages is not refused for its address."""
        try:
            self.quotas.demand_address(address)
        except RateLimited:
            known = self._recognized(credential, certificate) if settles else None
            if known is None:
                raise
            return known
        try:
            principal = self._principal(credential, certificate)
        except Unauthenticated as error:
            if credential is not None:
                if self._audit is not None:
                    self._audit.note(None, "authenticate", shown_id(credential), error.code)
                wait_s = self._failures.failed(counted_address(address), self._clock.monotonic())
                if wait_s:
                    self.quotas.refused["address_failures"] += 1
                    raise RateLimited(
                        "too many wrong credentials from this address", retry_after_ms=int(wait_s * 1000) + 1,
                        details={"limit": "address_failures"},
                    ) from None  # fmt: skip
            raise error from None
        if principal.kind == "key":
            self._broker.keys.used(principal.id, self._clock.now_ms())
        return principal

    def _recognized(self, credential: str | None, certificate: Sequence[str]) -> Principal | None:
        """The principal, as far as that is known without the cost of a signature."""
        now_ms = self._clock.now_ms()
        if credential is not None and self.tokens is not None and not credential.startswith(PREFIX):
            return self.tokens.known(credential, now_ms)
        try:
            return self._principal(credential, certificate)
        except Unauthenticated:
            return None

    def session_of(self, cookie: str, address: str, *, settles: bool = False) -> UserSession:
        """The session of a cookie. Raises Unauthenticated, or RateLimited."""
        session = self.login.find(cookie) if self.login is not None else None
        if session is None or not settles:
            self.quotas.demand_address(address)
        if session is None:
            raise Unauthenticated("this session has ended; log in again")
        return session

    def issue_ticket(self, principal: Principal) -> tuple[str, int]:
        """A ticket that opens one WebSocket, and the time at which it ends."""
        return self._tickets.issue(principal, self._clock.now_ms())

    def take_ticket(self, ticket: str, address: str) -> Principal:
        """The principal of a ticket. Raises Unauthenticated."""
        self.quotas.demand_address(address)
        principal = self._tickets.take(ticket, self._clock.now_ms())
        if principal is None or (principal.expires_at_ms and principal.expires_at_ms <= self._clock.now_ms()):
            self._failures.failed(counted_address(address), self._clock.monotonic())
            raise Unauthenticated(
                "this is not an unused ticket of the last 30 s; get one by POST /v1/tickets. Keys and tokens are not "
                "taken from a URL, which proxies log: rotate a key that was in one"
            )
        return principal

    def renew(self, former: Principal, credential: str, address: str) -> Principal:
        """The principal of another credential of the same identity, with at least the same scopes.

        A stream keeps the scopes that it was opened with. Raises Unauthenticated, RateLimited or Forbidden.
        """
        principal = self.authenticate(credential, address)
        if (principal.kind, principal.id) != (former.kind, former.id):
            raise Forbidden("a stream is renewed with a credential of the same identity; open another stream instead")
        missing = not_covered(former.scopes, principal.scopes)
        if missing:
            raise Forbidden(
                f"this credential lacks {', '.join(map(str, missing))}, which the stream has; open another stream",
                details={"scopes": [str(scope) for scope in missing]},
            )
        return principal

    def _principal(self, credential: str | None, certificate: Sequence[str]) -> Principal:
        now_ms = self._clock.now_ms()
        if credential is None:
            if certificate:
                return self._certified(tuple(certificate), now_ms)
            raise Unauthenticated(
                "this server needs a credential: send `Authorization: Bearer <key or JWT>` or `X-Api-Key: <key>`"
            )
        # Both forms are checked by their own rules; the prefix only decides which rules, and is no secret.
        if self.tokens is not None and not credential.startswith(PREFIX):
            return self.tokens.verify(credential, now_ms)
        principal = self._keys.find(credential, now_ms)
        if principal is None:
            raise Unauthenticated("this key is unknown, expired or revoked")
        return principal

    def _certified(self, names: tuple[str, ...], now_ms: int) -> Principal:
        """The principal of the keys that have a name of the certificate as theirs."""
        known = self._certificates.get(names)
        if known is not None and (not known.expires_at_ms or known.expires_at_ms > now_ms):
            return known
        found = [
            (key, scopes)
            for key, scopes in self._broker.keys.certificate_entries(names)
            if not key.expires_at or key.expires_at > now_ms
        ]
        if not found:
            raise Unauthenticated("no key has a name of this client certificate as its name")
        scopes = [scope for _, each in found for scope in each]
        expires = min((key.expires_at for key, _ in found if key.expires_at), default=0)
        rate = next((parse_rate(key.rate) for key, _ in found if key.rate), None)
        principal = Principal("certificate", found[0][0].name, found[0][0].name, scopes, expires, rate)
        self._certificates[names] = self._last_certificates[names] = principal
        if len(self._last_certificates) > limits.CERTIFICATES_CACHED_MAX:
            self._last_certificates.popitem(last=False)
        return principal

    def broker_for(self, principal: Principal) -> Broker:
        found: Broker | None = principal.kept.get(self)
        if found is None:
            found = principal.kept[self] = guarded_broker(self._broker, principal, self._audit, self._metering)
        return found

    def quotas_families(self) -> Iterator[Metric]:
        refused = CounterMetricFamily(
            "penstock_access_limited", "Requests that a limit of an address, key, namespace or queue refused.",
            labels=["limit"],
        )  # fmt: skip
        for name, count in sorted(self.quotas.refused.items()):
            refused.add_metric([name], count)
        yield refused

    # -- streams ------------------------------------------------------------------------------------------------------

    def follow(self, principal: Principal, end: Callable[[], None]) -> Callable[[], None]:
        """Call `end` when the principal is accepted no longer. Returns the function that stops it."""
        self._streams.setdefault(principal, set()).add(end)

        def stop() -> None:
            ends = self._streams.get(principal)
            if ends is not None:
                ends.discard(end)
                if not ends:
                    del self._streams[principal]

        return stop

    def open_stream(self, principal: Principal, end: Callable[[], None]) -> Callable[[], None]:
        """As `follow`, for a stream that counts. Raises RateLimited."""
        close = self.quotas.open_stream(principal)
        stop = self.follow(principal, end)

        def stop_and_close() -> None:
            stop()
            close()

        return stop_and_close

    def end_expired(self) -> None:
        """End the streams of credentials whose time is over. Called every second."""
        now_ms = self._clock.now_ms()
        if expired := [each for each in self._streams if each.expires_at_ms and each.expires_at_ms <= now_ms]:
            self._end(expired)
        if self.login is not None:
            self.login.end_expired()

    def _end(self, principals: Iterable[Principal]) -> None:
        ended = [*principals, *self._changed_certificates()]
        if len(self._tickets):
            self._tickets.forget(set(ended), self._clock.now_ms())
        for principal in ended:
            for end in list(self._streams.pop(principal, ())):
                end()

    def _changed_certificates(self) -> list[Principal]:
        """The principals of certificates whose keys have changed; the next request finds the new ones."""
        before, self._certificates = list(self._certificates.items()), WeakValueDictionary()
        ended = []
        for names, principal in before:
            try:
                now = self._certified(names, self._clock.now_ms())
            except Unauthenticated:
                ended.append(principal)
                continue
            if (now.scopes, now.expires_at_ms) == (principal.scopes, principal.expires_at_ms):
                self._certificates[names] = self._last_certificates[names] = principal
            else:
                ended.append(principal)
        return ended


def credential_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The credential in HTTP headers with names in lower case; None: there is none. Raises Unauthenticated for two."""
    found: list[str] = []
    for name, value in headers:
        if name == b"authorization":
            scheme, _, rest = value.decode("latin-1").partition(" ")
            if scheme.lower() != "bearer" or not rest:
                raise Unauthenticated("send `Authorization: Bearer <key or JWT>`; other schemes are not known here")
            found.append(rest.strip())
        elif name == b"x-api-key":
            found.append(value.decode("latin-1"))
    if len(found) > 1:
        raise Unauthenticated("send one credential, not several")
    return found[0] if found else None


def offered_credential(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The credential among the offered subprotocols of a WebSocket handshake."""
    for name, value in headers:
        if name == b"sec-websocket-protocol":
            for offer in value.decode("latin-1").split(","):
                if offer.strip().startswith(SUBPROTOCOL_PREFIX):
                    return offer.strip().removeprefix(SUBPROTOCOL_PREFIX)
    return None
