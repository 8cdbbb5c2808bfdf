"""TLS of the listeners: version 1.3, certificates from files, reloaded without dropping connections.

HTTP and WebSocket have one `SSLContext` for the life of the process, and a second one with the current files, which
each handshake changes to: a certificate that was loaded into a context, and a CA that was trusted, stay in it. Open
connections are left alone. gRPC asks for its certificate at each handshake.

A client certificate is checked against the client CA and against revocation lists, which are in a file of their own or
in that of the CA. HTTP refuses a revoked certificate in the handshake. gRPC for Python knows no lists, so each call of
one is refused (`is_revoked`). A list that is out of date refuses every certificate, as OpenSSL does. Sessions are not
resumed where client certificates are asked for: a resumed session has no certificate in its handshake, so a list that
names it would not be looked at.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import grpc
from cryptography import x509

from penstock.logs import get_logger
from penstock.server.config import ConfigError

_log = get_logger("penstock.tls")
_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_CERTIFICATES_KNOWN = 1_000
"""Client certificates whose serial number is kept; above this all are forgotten."""


class _Files(NamedTuple):
    """The content of the files, read together."""

    cert: bytes
    key: bytes
    client_ca: bytes
    client_crl: bytes

    @property
    def revocation_lists(self) -> list[bytes]:
        return _CRL.findall(self.client_ca + b"\n" + self.client_crl)


class RevokedCertificates:
    """The revocation lists, for connections whose library does not check them. Raises ConfigError for a broken list."""

    def __init__(self, lists: list[bytes]):
        try:
            found = [x509.load_pem_x509_crl(each) for each in lists]
        except ValueError as error:
            raise ConfigError(f"tls_client_crl: a revocation list cannot be read: {error}") from None
        self._lists = [(each.issuer, each.next_update_utc, {one.serial_number for one in each}) for each in found]
        self._known: dict[bytes, tuple[x509.Name, int]] = {}

    def has(self, certificate: bytes) -> bool:
        if not self._lists:
            return False
        known = self._known.get(certificate)
        if known is None:
            shown = x509.load_pem_x509_certificate(certificate)
            if len(self._known) >= _CERTIFICATES_KNOWN:
                self._known.clear()
            known = self._known[certificate] = (shown.issuer, shown.serial_number)
        issuer, serial = known
        now = datetime.now(UTC)
        lists = [(until, serials) for of, until, serials in self._lists if of == issuer]
        return not lists or any(serial in serials or (until is not None and until < now) for until, serials in lists)


class ServerTls:
    """The certificates of a server. Raises ConfigError if they cannot be used."""

    def __init__(self, cert: str, key: str, client_ca: str = "", client_crl: str = ""):
        self._paths = [
            ("tls_cert", cert), ("tls_key", key), ("tls_client_ca", client_ca), ("tls_client_crl", client_crl)
        ]  # fmt: skip
        self._files = self._read()
        self._revoked = RevokedCertificates(self._files.revocation_lists)
        self._grpc_files = self._files
        self._current = self._context(self._files)
        self.context = self._context(self._files)
        """For the listener. It passes each handshake on to the context with the current files."""
        self.context.sni_callback = self._begin_handshake
        if self.asks_for_certificates:
            self.context.num_tickets = 0

    @property
    def asks_for_certificates(self) -> bool:
        return bool(self._files.client_ca)

    def reload(self) -> bool:
        """Read the files again; True if they changed. If they cannot be used, the former ones stay, and a log event
        says why."""
        try:
            files = self._read()
            if files == self._files:
                return False
            current = self._context(files)
        except ConfigError as error:
            _log.error("tls_reload_failed", reason=str(error))
            return False
        self._files, self._current = files, current
        # A connection has these of its first context.
        self.context.verify_mode, self.context.verify_flags = current.verify_mode, current.verify_flags
        self._revoked = RevokedCertificates(files.revocation_lists)
        _log.info("tls_reloaded")
        return True

    def _begin_handshake(self, secure: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        secure.context = self._current

    def is_revoked(self, certificate: bytes) -> bool:
        """Whether a client certificate (PEM) must be refused: a list names it, or a list of its CA is out of date."""
        return self._revoked.has(certificate)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._grpc_configuration(),
            self._changed_grpc_configuration,  # type: ignore[arg-type] # None is documented
            bool(self._files.client_ca),
        )

    def _grpc_configuration(self) -> grpc.ServerCertificateConfiguration:
        files = self._grpc_files = self._files
        return grpc.ssl_server_certificate_configuration([(files.key, files.cert)], files.client_ca or None)

    def _changed_grpc_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC at each handshake; None: the configuration is as before."""
        return None if self._grpc_files is self._files else self._grpc_configuration()

    def _read(self) -> _Files:
        contents = []
        for name, path in self._paths:
            try:
                contents.append(Path(path).read_bytes() if path else b"")
            except OSError as error:
                raise ConfigError(f"{name}: cannot read {path}: {error.strerror or error}") from None
        return _Files(*contents)

    def _context(self, files: _Files) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])
        self._load(context, files)
        return context

    def _load(self, context: ssl.SSLContext, files: _Files) -> None:
        paths = dict(self._paths)
        try:
            context.load_cert_chain(paths["tls_cert"], paths["tls_key"], password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(
                f"tls_cert, tls_key: {paths['tls_cert']} and {paths['tls_key']} are not a certificate and its key: "
                f"{error}"
            ) from None
        if files.client_ca:
            try:
                context.load_verify_locations(cadata=files.client_ca.decode("ascii"))
            except (ssl.SSLError, UnicodeDecodeError) as error:
                raise ConfigError(f"tls_client_ca: {paths['tls_client_ca']} has no certificates: {error}") from None
            context.verify_mode = ssl.CERT_REQUIRED
            for name in ("tls_client_ca", "tls_client_crl"):
                if _CRL.search(getattr(files, name.removeprefix("tls_"))):
                    # Only a file, not its content, can be loaded with revocation lists.
                    context.load_verify_locations(paths[name])
                    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
            if files.client_crl and not _CRL.search(files.client_crl):
                raise ConfigError(f"tls_client_crl: {paths['tls_client_crl']} has no revocation list (PEM)")


def _no_password() -> str:
    raise ValueError("the key is encrypted; store it decrypted, readable for the server alone")
