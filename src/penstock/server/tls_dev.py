"""A local certificate authority with a server and a client certificate, to try TLS in a minute."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 825
"""The longest lifetime that common clients accept."""


def make_certificates(directory: Path, hosts: Sequence[str], client: str) -> list[Path]:
    """Write `ca.pem`, `server.pem`, `client.pem` and their keys. Raises FileExistsError: nothing is overwritten."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key = generate_private_key(SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Penstock development CA")])
    ca = _sign(
        _builder(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True),
        ca_key,
        ca_key,
    )
    written = [*_write(directory, "ca", ca, ca_key)]
    for name, names, usage in (
        ("server", hosts, ExtendedKeyUsageOID.SERVER_AUTH),
        ("client", [client], ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        key = generate_private_key(SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"penstock {name}")])
        leaf = (
            _builder(subject, ca_name, key)
            .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        written += _write(directory, name, _sign(leaf, key, ca_key), key)
    return written


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _sign(
    builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, ca_key: EllipticCurvePrivateKey
) -> x509.Certificate:
    return (
        builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, SHA256())
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=ca, crl_sign=ca, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general_name(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(directory: Path, name: str, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> list[Path]:
    parts = {
        f"{name}.pem": (certificate.public_bytes(Encoding.PEM), 0o644),
        f"{name}.key": (key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600),
    }
    for file, (data, mode) in parts.items():
        with os.fdopen(os.open(directory / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
            opened.write(data)
    return [directory / file for file in parts]
