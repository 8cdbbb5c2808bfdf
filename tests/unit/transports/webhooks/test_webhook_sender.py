"""One webhook request: results by status, redirects, timeouts, TLS, signatures, the circuit breaker."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from email.utils import format_datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks import Webhook, WebhookVerificationError
from webhook_endpoint import answering, endpoint

from penstock import limits
from penstock.broker.vault import Vault, WebhookSecret
from penstock.errors import Unavailable
from penstock.transports.webhooks.breaker import FAILURES_IN_A_ROW, OPEN_S, OPEN_S_MAX, CircuitBreaker
from penstock.transports.webhooks.endpoint import retry_delay_ms
from penstock.transports.webhooks.guard import Guard, parse_networks
from penstock.transports.webhooks.send_result import result_of_status, retry_after_ms
from penstock.transports.webhooks.sender import Sender
from penstock.transports.webhooks.signing import signed_headers

LOOPBACK = Guard(parse_networks("127.0.0.0/8"))
NOW_MS = 1_760_000_000_000


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "delivered"), (201, "delivered"), (204, "delivered"), (299, "delivered"),
        (301, "failed"), (304, "failed"), (307, "failed"), (400, "failed"), (404, "failed"), (410, "gone"),
        (429, "throttled"), (500, "failed"), (501, "failed"), (502, "throttled"), (503, "throttled"),
        (504, "throttled"), (599, "failed"), (799, "failed"),
    ],
)  # fmt: skip
def test_only_2xx_is_success(status, outcome):
    sent = result_of_status(status, "7", NOW_MS)
    assert (sent.outcome, sent.status) == (outcome, status)
    assert (sent.error is None) == (outcome == "delivered")
    assert (sent.retry_after_ms is not None) == (outcome == "throttled")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), ("", None), ("0", 0), ("120", 120_000), (" 5 ", 5_000), ("-1", None), ("1.5", None), ("?", None),
        ("9" * 40, limits.WEBHOOK_RETRY_AFTER_MS_MAX), ("9" * 100, None), ("86401", limits.WEBHOOK_RETRY_AFTER_MS_MAX),
        ("Thu, 09 Oct 2025 08:53:50 GMT", 30_000), ("Thu, 09 Oct 2025 08:00:00 GMT", 0), ("٣", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", limits.WEBHOOK_RETRY_AFTER_MS_MAX), ("Thu, 99 Oct 2025 08:53:50 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_parsed(value, expected):
    assert retry_after_ms(value, NOW_MS) == expected


def test_retry_after_accepts_dates():
    moment = datetime.datetime.fromtimestamp(NOW_MS / 1000 + 10, datetime.UTC)
    assert retry_after_ms(format_datetime(moment, usegmt=True), NOW_MS) == 10_000


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 4_000), (0.5, 5_000), (1.0, 6_000)])
def test_retry_delay_has_jitter_of_20_percent(chance, expected):
    assert retry_delay_ms(5_000, None, chance) == expected
    assert retry_delay_ms(5_000, 4_500, chance) == max(expected, 4_500)
    assert retry_delay_ms(0, None, chance) == 0


def test_redirect_is_not_followed_even_to_an_allowed_address():
    async def story():
        async with endpoint() as here, endpoint() as elsewhere:
            sender = Sender(LOOPBACK)
            for status in (301, 302, 303, 307, 308):
                here.answer = answering(status, location=elsewhere.url)
                sent = await sender.send(here.url, {}, b"{}", 5_000, NOW_MS)
                assert (sent.outcome, sent.status) == ("failed", status)
            assert elsewhere.deliveries == []
            await sender.close()

    run(story)


def test_endless_response_body_is_cut_off():
    async def story():
        cut_off = asyncio.Event()

        async def endless(reader, writer):
            await reader.readuntil(b"{}")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:
                    writer.write(bytes(65_536))
                    await writer.drain()
            writer.close()
            cut_off.set()

        server = await asyncio.start_server(endless, "127.0.0.1", 0)
        sender = Sender(LOOPBACK)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            assert (await sender.send(url, {}, b"{}", 30_000, NOW_MS)).outcome == "delivered"
            await cut_off.wait()
        await sender.close()

    run(story)


def test_missing_response_is_a_timeout():
    async def story():
        async with endpoint() as here:
            here.answer = lambda _delivery: asyncio.sleep(60)
            sender = Sender(LOOPBACK)
            assert (await sender.send(here.url, {}, b"{}", 100, NOW_MS)).outcome == "timeout"
            await sender.close()

    run(story)


def test_response_that_is_not_http_is_unreachable():
    async def story():
        async def serve(reader, writer):
            await reader.readuntil(b"{}")
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        sender = Sender(LOOPBACK)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            assert (await sender.send(url, {}, b"{}", 5_000, NOW_MS)).outcome == "unreachable"
        sent = await sender.send(url, {}, b"{}", 5_000, NOW_MS)
        assert (sent.outcome, sent.error) == ("unreachable", "the endpoint could not be connected to")
        await sender.close()

    run(story)


# -- TLS ----------------------------------------------------------------------------------------------------------


def certificate(name: str, directory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS contexts for a server with this name and for a client that trusts only its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = directory / "server.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))


def test_tls_checks_the_name_in_the_url(tmp_path):
    server, client = certificate("hooks.example.test", tmp_path)

    def lookup(_host, port):
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    async def story():
        async with endpoint(server) as here:
            sender = Sender(LOOPBACK, lookup=lookup, tls=client)
            url = f"https://hooks.example.test:{here.port}/hook?x=%2F"
            sent = await sender.send(url, {}, b"{}", 5_000, NOW_MS)
            assert sent.outcome == "delivered"
            assert here.server_names == ["hooks.example.test"]
            (delivery,) = here.deliveries
            assert delivery.headers["host"] == f"hooks.example.test:{here.port}" and delivery.path == "/hook?x=%2F"
            other = await sender.send(f"https://other.example.test:{here.port}/", {}, b"{}", 5_000, NOW_MS)
            assert (other.outcome, other.error) == ("unreachable", "the certificate of the endpoint is not valid")
            await sender.close()
            strict = Sender(LOOPBACK, lookup=lookup)
            assert (
                await strict.send(url, {}, b"{}", 5_000, NOW_MS)
            ).error == "the certificate of the endpoint is not valid"
            await strict.close()
            assert len(here.deliveries) == 1

    run(story)


def test_proxy_environment_variables_are_ignored(monkeypatch):
    async def story():
        async with endpoint() as here, endpoint() as proxy:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            sender = Sender(LOOPBACK)
            assert (await sender.send(here.url, {}, b"{}", 5_000, NOW_MS)).outcome == "delivered"
            assert proxy.deliveries == []
            await sender.close()

    run(story)


# -- signing ------------------------------------------------------------------------------------------------------


def test_standardwebhooks_library_accepts_signatures():
    now_ms = round(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    old, new, other = WebhookSecret.new(), WebhookSecret.new(), WebhookSecret.new()
    body = '{"größe": 1}'.encode()
    headers = signed_headers([new, old], "01JP", now_ms, body)
    for secret in (old, new):
        assert Webhook(secret.text).verify(body, headers) == {"größe": 1}
    for bad in (Webhook(other.text), Webhook(new.text)):
        with pytest.raises(WebhookVerificationError):
            bad.verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new.text).verify(body, signed_headers([new], "01JP", now_ms - 600_000, body))


def test_signature_matches_the_library():
    secret = WebhookSecret(b"\xc0\xa0\x8d\xf5\xc1\xf0" * 4)
    headers = signed_headers([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330_000, b'{"test": 2432232314}')
    theirs = Webhook(secret.text).sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        datetime.datetime.fromtimestamp(1_614_265_330, datetime.UTC),
        '{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == theirs and headers["webhook-timestamp"] == "1614265330"


def test_sealed_secret_opens_only_for_its_webhook_and_key():
    vault, secret = Vault(lambda: bytes(32)), WebhookSecret.new()
    sealed = vault.seal(secret, "a")
    assert secret.value not in sealed and vault.seal(secret, "a") != sealed
    assert vault.open(sealed, "a").value == secret.value
    for opener, bytes_, owner in (
        (vault, sealed, "b"),
        (Vault(lambda: b"\1" * 32), sealed, "a"),
        (vault, sealed[:-1] + bytes([sealed[-1] ^ 1]), "a"),
        (vault, b"\2" + sealed[1:], "a"),
        (vault, b"", "a"),
    ):
        with pytest.raises(Unavailable, match="cannot be opened"):
            opener.open(bytes_, owner)
    assert repr(secret) == "***" and secret.text not in f"{secret} {secret!r} {[secret]}"


# -- the circuit breaker ------------------------------------------------------------------------------------------


def test_consecutive_failures_open_the_circuit_and_a_probe_closes_it():
    breaker = CircuitBreaker()
    for _ in range(FAILURES_IN_A_ROW - 1):
        breaker.failed(0.0)
    breaker.succeeded()
    for _ in range(FAILURES_IN_A_ROW):
        assert breaker.state(0.0) == "closed" and breaker.free_slots(0.0, 1, 4) == 3
        breaker.failed(0.0)
    assert (breaker.state(0.0), breaker.free_slots(0.0, 0, 4), breaker.wait_s(1.0)) == ("open", 0, OPEN_S - 1)
    breaker.failed(1.0)
    assert breaker.wait_s(1.0) == OPEN_S - 1, "requests from before it opened do not extend its time"
    assert (breaker.state(OPEN_S), breaker.free_slots(OPEN_S, 0, 4), breaker.free_slots(OPEN_S, 1, 4)) == (
        "probing",
        1,
        0,
    )
    breaker.failed(OPEN_S)
    assert breaker.wait_s(OPEN_S) == 2 * OPEN_S
    breaker.failed(10 * OPEN_S)
    for _ in range(20):
        breaker.failed(1e9)
    now = 1e9
    for _ in range(20):
        now += breaker.wait_s(now) or 0
        breaker.failed(now)
    assert breaker.wait_s(now) == OPEN_S_MAX
    breaker.succeeded()
    assert breaker.state(now) == "closed" and breaker.wait_s(now) is None


def test_retry_after_opens_the_circuit_for_that_time():
    breaker = CircuitBreaker()
    breaker.failed(0.0, 3_600.0)
    assert breaker.state(0.0) == "open" and breaker.wait_s(600.0) == 3_000.0
    assert breaker.free_slots(3_600.0, 0, 4) == 1
