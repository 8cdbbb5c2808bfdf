"""TLS of a real server: versions, reload, and client certificates over HTTP, WebSocket and gRPC."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

from penstock.server.tls_dev import make_certificates
from penstock.v1 import broker_pb2 as pb
from penstock.v1 import broker_pb2_grpc as stubs
from tests.acceptance.http_server import Server, running

CLIENT = "spiffe://example/billing"


def tls_flags(certificates: Path, *more: str) -> list[str]:
    return ["--tls-cert", str(certificates / "server.pem"), "--tls-key", str(certificates / "server.key"), *more]


def trusting(certificates: Path, client: Path | None = None, name: str = "client") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    if client is not None:
        context.load_cert_chain(client / f"{name}.pem", client / f"{name}.key")
    return context


def get(server: Server, context: ssl.SSLContext, target: str, **headers: str) -> int:
    connection = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", target, headers={name.replace("_", "-"): text for name, text in headers.items()})
        return connection.getresponse().status


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl is not installed")
def test_only_tls_1_3_is_spoken(tmp_path):
    make_certificates(tmp_path / "tls", ["localhost", "127.0.0.1"], CLIENT)
    with running(tmp_path / "data", *tls_flags(tmp_path / "tls")) as server:
        assert server.url.startswith("https://")
        assert get(server, trusting(tmp_path / "tls"), "/healthz") == 200
        ca = str(tmp_path / "tls" / "ca.pem")
        for port, protocol in ((server.port, "http/1.1"), (int(server.grpc.rpartition(":")[2]), "h2")):
            for version in ("-tls1", "-tls1_1", "-tls1_2", "-tls1_3", ""):
                # With security level 0 the client itself offers the old versions.
                command = [
                    "openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", ca, "-verify_return_error",
                    "-brief", "-alpn", protocol, "-cipher", "ALL:@SECLEVEL=0", *([version] if version else []),
                ]  # fmt: skip
                done = subprocess.run(
                    command, input="", capture_output=True, text=True, errors="replace", timeout=60, check=False
                )
                spoken = "Protocol version: TLSv1.3" in done.stderr
                assert spoken == (version in ("-tls1_3", "")), (port, version, done.stderr)
                assert "CONNECTION ESTABLISHED" not in done.stderr or spoken


def test_certificates_are_reloaded_without_dropping_connections(tmp_path):
    make_certificates(tmp_path / "tls", ["localhost"], CLIENT)
    make_certificates(tmp_path / "next", ["localhost"], CLIENT)
    with running(tmp_path / "data", *tls_flags(tmp_path / "tls")) as server:
        before = http.client.HTTPSConnection("localhost", server.port, context=trusting(tmp_path / "tls"), timeout=20)
        before.request("GET", "/healthz")
        assert before.getresponse().read() == b'{"status":"ok"}'
        for name in ("server.key", "server.pem"):
            shutil.copy(tmp_path / "next" / name, tmp_path / "tls" / f".{name}")
            (tmp_path / "tls" / f".{name}").replace(tmp_path / "tls" / name)
        server.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: "tls_reloaded" in server.log(), timeout=20)
        assert get(server, trusting(tmp_path / "next"), "/healthz") == 200
        before.request("GET", "/healthz")
        assert before.getresponse().status == 200
        before.close()
        channel = grpc.secure_channel(
            f"localhost:{server.grpc.rpartition(':')[2]}",
            grpc.ssl_channel_credentials((tmp_path / "next" / "ca.pem").read_bytes()),
        )
        grpc.channel_ready_future(channel).result(timeout=20)
        channel.close()


def certificate(
    directory: Path,
    ca: Path,
    *names: x509.GeneralName,
    from_days: int = -9,
    until_days: int = 9,
    usage: x509.ObjectIdentifier | None = None,
) -> Path:
    """A client certificate of the CA with these names. Its common name is that of a key, which is no identity."""
    ca_key = load_pem_private_key((ca / "ca.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((ca / "ca.pem").read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    key = load_pem_private_key((ca / "client.key").read_bytes(), None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CLIENT)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=from_days))
        .not_valid_after(now + datetime.timedelta(days=until_days))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    directory.mkdir()
    (directory / "client.pem").write_bytes(builder.sign(ca_key, SHA256()).public_bytes(Encoding.PEM))
    shutil.copy(ca / "client.key", directory / "client.key")
    return directory


IDENTITY = x509.UniformResourceIdentifier(CLIENT)


def test_client_certificate_is_the_key_of_its_name(tmp_path):
    ours = tmp_path / "tls"
    make_certificates(ours, ["localhost", "127.0.0.1"], CLIENT)
    flags = ["--auth", "keys", *tls_flags(ours, "--tls-client-ca", str(ours / "ca.pem"))]
    with running(tmp_path / "data", *flags) as server:
        key = (tmp_path / "data" / "bootstrap.key").read_text().strip()
        own = trusting(ours, ours)
        assert get(server, own, "/v1/queues") == 401, "no key has this name"
        connection = http.client.HTTPSConnection("localhost", server.port, context=own, timeout=20)
        body = json.dumps({"name": CLIENT, "scopes": ["publish:shop/*"]})
        connection.request("POST", "/v1/keys", body, {"x-api-key": key})
        made = json.loads(connection.getresponse().read())
        connection.close()
        assert get(server, own, "/v1/queues") == 200
        assert get(server, own, "/v1/keys") == 403
        credentials = grpc.ssl_channel_credentials(
            (ours / "ca.pem").read_bytes(), (ours / "client.key").read_bytes(), (ours / "client.pem").read_bytes()
        )
        channel = grpc.secure_channel(f"localhost:{server.grpc.rpartition(':')[2]}", credentials)
        assert stubs.BrokerStub(channel).ListQueues(pb.ListQueuesRequest(), timeout=20).total == 0
        connection = http.client.HTTPSConnection("localhost", server.port, context=own, timeout=20)
        connection.request("DELETE", f"/v1/keys/{made['id']}", headers={"x-api-key": key})
        assert connection.getresponse().status == 200
        connection.close()
        assert get(server, own, "/v1/queues") == 401, "the identity was revoked"
        with pytest.raises(grpc.RpcError):
            stubs.BrokerStub(channel).ListQueues(pb.ListQueuesRequest(), timeout=20)
        channel.close()


def revocation_list(ca: Path, *, revoked: Path, until_days: int = 9) -> bytes:
    """A list of the CA that names one client certificate."""
    key = load_pem_private_key((ca / "ca.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((ca / "ca.pem").read_bytes())
    serial = x509.load_pem_x509_certificate((revoked / "client.pem").read_bytes()).serial_number
    now = datetime.datetime.now(datetime.UTC)
    entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - datetime.timedelta(days=30))
        .next_update(now + datetime.timedelta(days=until_days))
        .add_revoked_certificate(entry)
    )
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def test_revoked_client_certificate_is_refused(tmp_path):
    ours = tmp_path / "tls"
    make_certificates(ours, ["localhost", "127.0.0.1"], CLIENT)
    certificate(tmp_path / "good", ours, IDENTITY)
    (tmp_path / "crl.pem").write_bytes(revocation_list(ours, revoked=ours))
    flags = tls_flags(ours, "--tls-client-ca", str(ours / "ca.pem"), "--tls-client-crl", str(tmp_path / "crl.pem"))
    with running(tmp_path / "data", "--auth", "keys", *flags) as server:
        key = (tmp_path / "data" / "bootstrap.key").read_text().strip()
        assert get(server, trusting(ours, tmp_path / "good"), "/v1/queues", x_api_key=key) == 200
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            get(server, trusting(ours, ours), "/v1/queues", x_api_key=key)
        for directory, code in ((tmp_path / "good", None), (ours, grpc.StatusCode.UNAUTHENTICATED)):
            files = [(directory / name).read_bytes() for name in ("client.key", "client.pem")]
            credentials = grpc.ssl_channel_credentials((ours / "ca.pem").read_bytes(), *files)
            with grpc.secure_channel(f"localhost:{server.grpc.rpartition(':')[2]}", credentials) as channel:
                stub, head = stubs.BrokerStub(channel), (("x-api-key", key),)
                for call, asked in (
                    (stub.ListQueues, pb.ListQueuesRequest()),
                    (stub.Call, pb.CallRequest(method="GET", target="/v1/queues")),
                ):
                    found = None
                    try:
                        call(asked, metadata=head, timeout=20)
                    except grpc.RpcError as error:
                        found = error.code()
                    assert found is code


def test_unusable_certificates_are_refused_at_the_start(tmp_path):
    make_certificates(tmp_path / "a", ["localhost"], CLIENT)
    make_certificates(tmp_path / "b", ["localhost"], CLIENT)
    command = [
        sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--data-dir",
        str(tmp_path / "data"), "--tls-cert", str(tmp_path / "a" / "server.pem"), "--tls-key",
        str(tmp_path / "b" / "server.key"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78 and "are not a certificate and its key" in done.stderr


# -- refused client certificates ----------------------------------------------------------------------------------


def http_status(server: Server, ours: Path, client: Path | None) -> int:
    return get(server, trusting(ours, client), "/v1/queues")


def websocket_status(server: Server, ours: Path, client: Path | None) -> int:
    url = f"wss://localhost:{server.port}/v1/ws"
    try:
        with connect(url, ssl=trusting(ours, client), proxy=None, open_timeout=20) as opened:
            assert json.loads(opened.recv())["type"] == "hello"
    except InvalidStatus as refused:
        return refused.response.status_code
    return 200


def grpc_status(server: Server, ours: Path, client: Path | None) -> int:
    files = () if client is None else [(client / name).read_bytes() for name in ("client.key", "client.pem")]
    credentials = grpc.ssl_channel_credentials((ours / "ca.pem").read_bytes(), *files)
    with grpc.secure_channel(f"localhost:{server.grpc.rpartition(':')[2]}", credentials) as channel:
        try:
            stubs.BrokerStub(channel).ListQueues(pb.ListQueuesRequest(), timeout=20)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise ssl.SSLError(error.details()) from None
            return {grpc.StatusCode.UNAUTHENTICATED: 401}[error.code()]
    return 200


STATUS_OVER: dict[str, Callable[[Server, Path, Path | None], int]] = {
    "http": http_status,
    "websocket": websocket_status,
    "grpc": grpc_status,
}


def accepted(server: Server, ours: Path, client: Path | None) -> set[str]:
    """The protocols that accept the certificate: as the identity of a key, and not only in the handshake."""
    found = set()
    for protocol, status in STATUS_OVER.items():
        with contextlib.suppress(ssl.SSLError, ConnectionError, http.client.HTTPException, WebSocketException):
            if status(server, ours, client) == 200:
                found.add(protocol)
    return found


def identify(server: Server, ours: Path, client: Path, name: str = CLIENT) -> None:
    """A key with the name of the certificate."""
    key = (server.log_path.with_suffix("") / "bootstrap.key").read_text().strip()
    context = trusting(ours, client)
    connection = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=20)
    with contextlib.closing(connection):
        body = json.dumps({"name": name, "scopes": ["publish:shop/*", "consume:shop/*"]})
        connection.request("POST", "/v1/keys", body, {"x-api-key": key})
        assert connection.getresponse().status == 201


def test_certificates_that_are_refused_by_every_protocol(tmp_path):
    ours, stranger = tmp_path / "tls", tmp_path / "stranger"
    make_certificates(ours, ["localhost", "127.0.0.1"], CLIENT)
    make_certificates(stranger, ["localhost"], CLIENT)
    forged = tmp_path / "forged"
    shutil.copytree(stranger, forged)  # a CA of the same name with another key
    good = certificate(tmp_path / "good", ours, IDENTITY)
    revoked = certificate(tmp_path / "revoked", ours, IDENTITY)
    refused = {
        "none": None,
        "expired": certificate(tmp_path / "expired", ours, IDENTITY, until_days=-1),
        "not_yet": certificate(tmp_path / "not_yet", ours, IDENTITY, from_days=1),
        "wrong_ca": stranger,
        "self_signed_by_name": certificate(tmp_path / "by_name", forged, IDENTITY),
        "common_name_only": certificate(tmp_path / "common", ours),
        "wrong_name": certificate(tmp_path / "wrong", ours, x509.UniformResourceIdentifier(f"{CLIENT}2")),
        "part_of_the_name": certificate(tmp_path / "part", ours, x509.UniformResourceIdentifier(CLIENT[:-1])),
        "name_in_another_case": certificate(tmp_path / "case", ours, x509.UniformResourceIdentifier(CLIENT.upper())),
        "wildcard": certificate(tmp_path / "wildcard", ours, x509.DNSName("*")),
        "name_as_mail": certificate(tmp_path / "mail", ours, x509.RFC822Name("billing@example.com")),
        "for_servers": certificate(tmp_path / "server", ours, IDENTITY, usage=ExtendedKeyUsageOID.SERVER_AUTH),
        "revoked": revoked,
    }
    (tmp_path / "crl.pem").write_bytes(revocation_list(ours, revoked=revoked))
    flags = tls_flags(ours, "--tls-client-ca", str(ours / "ca.pem"), "--tls-client-crl", str(tmp_path / "crl.pem"))
    with running(tmp_path / "data", "--auth", "keys", *flags) as server:
        for name in (CLIENT, "billing@example.com"):
            identify(server, ours, good, name)
        assert accepted(server, ours, good) == {*STATUS_OVER}
        for name, client in refused.items():
            assert not accepted(server, ours, client), name
        assert accepted(server, ours, good) == {*STATUS_OVER}


def replace(path: Path, data: bytes) -> None:
    written = path.with_suffix(".new")
    written.write_bytes(data)
    written.replace(path)


def reload(server: Server, times: int) -> None:
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: server.log().count("tls_reloaded") == times, timeout=20)


def test_client_ca_that_was_replaced_is_trusted_no_longer(tmp_path):
    ours, former, later = tmp_path / "tls", tmp_path / "former", tmp_path / "later"
    for each in (ours, former, later):
        make_certificates(each, ["localhost", "127.0.0.1"], CLIENT)
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes((former / "ca.pem").read_bytes())
    flags = tls_flags(ours, "--tls-client-ca", str(trusted))
    with running(tmp_path / "data", "--auth", "keys", *flags) as server:
        identify(server, ours, former)
        assert accepted(server, ours, former) == {*STATUS_OVER} and not accepted(server, ours, later)
        replace(trusted, (later / "ca.pem").read_bytes())
        reload(server, 1)
        assert accepted(server, ours, later) == {*STATUS_OVER}
        assert not accepted(server, ours, former)


def test_revoked_certificate_does_not_resume_a_session(tmp_path):
    """A session that is resumed has no certificate in its handshake, so none is checked."""
    ours = tmp_path / "tls"
    make_certificates(ours, ["localhost", "127.0.0.1"], CLIENT)
    lists = tmp_path / "crl.pem"
    lists.write_bytes(revocation_list(ours, revoked=certificate(tmp_path / "other", ours, IDENTITY)))
    flags = tls_flags(ours, "--tls-client-ca", str(ours / "ca.pem"), "--tls-client-crl", str(lists))
    with running(tmp_path / "data", "--auth", "keys", *flags) as server:
        identify(server, ours, ours)
        context = trusting(ours, ours)

        def status(session: ssl.SSLSession | None) -> tuple[int, ssl.SSLSession | None]:
            with (
                socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain,
                context.wrap_socket(plain, server_hostname="localhost", session=session) as secure,
            ):
                secure.sendall(b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = secure.recv(100)
                return int(answer.split()[1]) if answer else 0, secure.session

        found, session = status(None)
        assert found == 200
        replace(lists, revocation_list(ours, revoked=ours))
        reload(server, 1)
        for each in (session, None):
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                assert status(each)[0] != 200
