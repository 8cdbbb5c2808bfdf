"""Encryption and signatures by clients that do not trust the broker. Without I/O.

A `Protection` is given to a client. Each message that the client publishes is encrypted, signed or both; each message
that it receives is verified and decrypted before the program sees it. The broker stores and delivers the bytes and two
headers, and needs no key. Guide: docs/security.md.

    penstock-encryption   {"alg": "A256GCM-HKDF", "kid": …, "kind": "json" | "bytes"}
    penstock-signature    {"alg": "Ed25519", "kid": …, "at_ms": …, "queue": …, "headers": […], "sig": base64}

An encrypted payload is `salt:16 ciphertext tag:16`: AES-256-GCM under HKDF-Expand (SHA-256) of the key with the info
`penstock message ` and the salt; the nonce is zero, because each salt is used once; the associated data is the value of
the header. The signature covers, as a MessagePack array: the text `penstock message v1`, queue, key, time, the kind and
the bytes of the payload as they are stored, and the named headers with their values. A message is encrypted first.
"""

from __future__ import annotations

import os
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from penstock.batch import Batch, build, layout
from penstock.client.messages.stored import MessageRun
from penstock.client.publish.frames import FRAME_BYTES_TARGET, ROW_BYTES_MAX, EncodedFrame, Row, encode_headers
from penstock.errors import InvalidRequest
from penstock.ids import parse_queue, ulid_text, ulid_value

ENCRYPTION_HEADER = "penstock-encryption"
SIGNATURE_HEADER = "penstock-signature"
KEY_BYTES = 32
_SALT_BYTES = 16
_NONCE = bytes(12)
_SHA256 = SHA256()
_KINDS = ("bytes", "json")

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
R = TypeVar("R", bound=MessageRun)


class NotAuthentic(InvalidRequest):
    """A message that is not signed or encrypted as the key set demands. The text has the message and the reason."""


class _Encrypted(msgspec.Struct):
    alg: Literal["A256GCM-HKDF"]
    kid: str
    kind: Literal["json", "bytes"]


class _Signed(msgspec.Struct):
    alg: Literal["Ed25519"]
    kid: str
    at_ms: int
    queue: str
    headers: list[str]
    sig: str


class Refused(NamedTuple):
    """A message that is not handed to the program."""

    offset: int
    receipt: str | None
    """The prefix of its receipt."""
    error: NotAuthentic


class _Content(NamedTuple):
    """The part of a message that is protected."""

    payload: bytes
    is_json: bool
    headers: dict[str, str]


class Protection:
    """The keys of a client, by name. Every name may be any text; the broker and all readers of headers see it.

    `encrypt_with`  (name, 32 bytes): messages are encrypted
    `decrypt_with`  name -> 32 bytes: messages that are not encrypted with one of these keys are refused
    `sign_with`     (name, Ed25519 private key, or its 32 bytes): messages are signed
    `verify_with`   name -> Ed25519 public key, or its 32 bytes: messages without a valid signature by one of these keys
                    are refused. A signature names its queue; messages of other queues are refused,
    `queues`        except those that were signed for one of these: targets of redrives get copies of other queues
    `on_invalid`    of a message that is refused: "reject" moves it to the dead letters with the reason; "raise" raises
                    NotAuthentic from the loop of the consumer, and the message is delivered again as after an error

    A reader of the log leaves refused messages out, or raises. Headers that the signature does not name were added on
    the way, and are removed.
    """

    def __init__(
        self, *, encrypt_with: tuple[str, bytes] | None = None, decrypt_with: Mapping[str, bytes] | None = None,
        sign_with: tuple[str, Ed25519PrivateKey | bytes] | None = None,
        verify_with: Mapping[str, Ed25519PublicKey | bytes] | None = None, queues: Iterable[str] = (),
        on_invalid: Literal["reject", "raise"] = "reject",
    ):  # fmt: skip
        for name, key in [*([encrypt_with] if encrypt_with else ()), *(decrypt_with or {}).items()]:
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise InvalidRequest(f"encryption key {name!r} has {KEY_BYTES} bytes", details={"field": "key"})
        if on_invalid not in ("reject", "raise"):
            raise InvalidRequest("on_invalid is reject or raise", details={"field": "on_invalid"})
        self._encrypt_with = encrypt_with
        self._decrypt_with = decrypt_with
        self._sign_with = None if sign_with is None else (sign_with[0], _private_key(sign_with[1]))
        self._verify_with = None if verify_with is None else {n: _public_key(key) for n, key in verify_with.items()}
        self._queues = frozenset(map(parse_queue, queues))
        self.on_invalid = on_invalid

    def __repr__(self) -> str:
        return "<Protection>"

    # -- out ----------------------------------------------------------------------------------------------------------

    def protect_row(self, row: Row, queue: str) -> Row:
        options = row.options
        headers = _decode_headers(options.headers) if options.headers else {}
        sealed = self._seal(_Content(row.payload, row.kind == layout.KIND_JSON, headers), queue, options.key)
        changed = options._replace(headers=encode_headers(sealed.headers))
        size = row.size - len(row.payload) - options.size + len(sealed.payload) + changed.size
        return Row(sealed.payload, layout.KIND_JSON if sealed.is_json else layout.KIND_BYTES, changed, size)

    def protect_frames(self, frames: Iterable[EncodedFrame], queue: str) -> Iterator[EncodedFrame]:
        """The same messages in frames that are as large as they may be."""
        for frame in frames:
            batch = Batch.open(frame.data)
            keys = batch.strings(layout.KEY) if batch.has(layout.KEY) else [b""] * batch.count
            contents = [self._seal(content, queue, key) for content, key in zip(_contents(batch), keys, strict=True)]
            yield from _encoded(batch, contents, 0, batch.count)

    def protect_item(self, item: dict[str, Any]) -> dict[str, Any]:
        """A message of a transaction, as the API takes it."""
        is_json = "payload" in item
        payload = bytes(item["payload"]) if is_json else b64decode(item["payload_b64"])
        headers = _decode_headers(item["headers"]) if "headers" in item else {}
        content = _Content(payload, is_json, headers)
        sealed = self._seal(content, parse_queue(item["queue"]), str(item.get("key", "")).encode())
        kept = {name: value for name, value in item.items() if name not in ("payload", "payload_b64")}
        if sealed.is_json:
            return {**kept, "payload": msgspec.Raw(sealed.payload), "headers": sealed.headers}
        return {**kept, "payload_b64": b64encode(sealed.payload).decode(), "headers": sealed.headers}

    def _seal(self, content: _Content, queue: str, key: bytes) -> _Content:
        payload, is_json, headers = content
        if taken := headers.keys() & {ENCRYPTION_HEADER, SIGNATURE_HEADER}:
            raise InvalidRequest(f"header {min(taken)} is set by the client itself", details={"field": "headers"})
        if self._encrypt_with is not None:
            name, secret = self._encrypt_with
            value = _text(_Encrypted("A256GCM-HKDF", name, "json" if is_json else "bytes"))
            salt = os.urandom(_SALT_BYTES)
            payload = salt + _cipher(secret, salt).encrypt(_NONCE, payload, value.encode())
            is_json, headers = False, {**headers, ENCRYPTION_HEADER: value}
        if self._sign_with is not None:
            name, private = self._sign_with
            signed = _Signed("Ed25519", name, time.time_ns() // 1_000_000, queue, sorted(headers), "")
            content = _Content(payload, is_json, headers)
            signed.sig = b64encode(private.sign(_signed_bytes(signed, content, key))).decode()
            headers = {**headers, SIGNATURE_HEADER: _text(signed)}
        return _Content(payload, is_json, headers)

    # -- in -----------------------------------------------------------------------------------------------------------

    def open_runs(self, runs: Sequence[R]) -> tuple[list[R], list[Refused]]:
        """The runs with the messages as they were published, and those messages that are refused."""
        opened: list[R] = []
        refused: list[Refused] = []
        for run in runs:
            self._open_run(run, opened, refused)
        return opened, refused

    def open(
        self, payload: bytes, headers: Mapping[str, str], *, queue: str, key: str = "", is_json: bool = False
    ) -> bytes:
        """The payload of one message that came on another way, like a dead letter. Raises NotAuthentic."""
        content = _Content(payload, is_json, dict(headers))
        return self._open(content, parse_queue(queue), key.encode(), "the message").payload

    def _open_run(self, run: R, opened: list[R], refused: list[Refused]) -> None:
        batch, meta = run.batch, run.meta
        keys = batch.strings(layout.KEY) if batch.has(layout.KEY) else [b""] * batch.count
        good: dict[int, _Content] = {}
        for row, (content, key) in enumerate(zip(_contents(batch), keys, strict=True)):
            offset = meta.offset + row
            try:
                good[row] = self._open(content, meta.queue, key, f"{meta.queue}[{meta.partition}] offset {offset}")
            except NotAuthentic as error:
                refused.append(Refused(offset, meta.receipt, error))
        first_id = ulid_value(meta.id)
        for first, stop in _stretches(good):
            (frame,) = _encoded(batch, [good[row] for row in range(first, stop)], first, stop, split=False)
            part = msgspec.structs.replace(
                meta, offset=meta.offset + first, count=stop - first, id=ulid_text(first_id + first),
                length=len(frame.data),
            )  # fmt: skip
            opened.append(type(run)(part, Batch.open(frame.data, known=True)))

    def _open(self, content: _Content, queue: str, key: bytes, where: str) -> _Content:
        if self._verify_with is not None:
            content = self._verified(content, queue, key, where, self._verify_with)
        if self._decrypt_with is not None:
            content = _decrypted(content, where, self._decrypt_with)
        return content

    def _verified(
        self, content: _Content, queue: str, key: bytes, where: str, keys: Mapping[str, Ed25519PublicKey]
    ) -> _Content:
        signed = _parsed(content.headers.get(SIGNATURE_HEADER), _Signed, where, "signed")
        public = keys.get(signed.kid)
        if public is None:
            raise NotAuthentic(f"{where}: it is signed with key {signed.kid[:100]!r}, which the key set does not have")
        if signed.queue != queue and signed.queue not in self._queues:
            raise NotAuthentic(f"{where}: it was signed for queue {signed.queue[:200]!r}")
        headers = {name: content.headers[name] for name in signed.headers if name in content.headers}
        content = content._replace(headers=headers)
        try:
            public.verify(b64decode(signed.sig, validate=True), _signed_bytes(signed, content, key))
        except (InvalidSignature, ValueError):
            raise NotAuthentic(f"{where}: its signature does not match") from None
        return content


def _decrypted(content: _Content, where: str, keys: Mapping[str, bytes]) -> _Content:
    value = content.headers.get(ENCRYPTION_HEADER)
    about = _parsed(value, _Encrypted, where, "encrypted")
    secret = keys.get(about.kid)
    if secret is None:
        raise NotAuthentic(f"{where}: it is encrypted with key {about.kid[:100]!r}, which the key set does not have")
    salt, sealed = content.payload[:_SALT_BYTES], content.payload[_SALT_BYTES:]
    try:
        payload = _cipher(secret, salt).decrypt(_NONCE, sealed, str(value).encode())
    except (InvalidTag, ValueError):
        raise NotAuthentic(f"{where}: it cannot be decrypted: it was changed, or encrypted with another key") from None
    headers = {name: text for name, text in content.headers.items() if name != ENCRYPTION_HEADER}
    return _Content(payload, about.kind == "json", headers)


S = TypeVar("S")


def _parsed(value: str | None, shape: type[S], where: str, word: str) -> S:
    if value is None:
        raise NotAuthentic(f"{where}: it is not {word}")
    try:
        return msgspec.json.decode(value, type=shape)
    except (msgspec.DecodeError, UnicodeError):
        raise NotAuthentic(f"{where}: its header does not say how it is {word}") from None


def _signed_bytes(signed: _Signed, content: _Content, key: bytes) -> bytes:
    headers = [[name, content.headers.get(name)] for name in signed.headers]
    return msgspec.msgpack.encode(
        ["penstock message v1", signed.queue, key, signed.at_ms, _KINDS[content.is_json], content.payload, headers]
    )


def _cipher(secret: bytes, salt: bytes) -> AESGCM:
    return AESGCM(HKDFExpand(_SHA256, KEY_BYTES, b"penstock message " + salt).derive(secret))


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _private_key(key: Ed25519PrivateKey | bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(key) if isinstance(key, bytes) else key


def _public_key(key: Ed25519PublicKey | bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(key) if isinstance(key, bytes) else key


def _contents(batch: Batch) -> Iterator[_Content]:
    headers = batch.strings(layout.HEADERS) if batch.has(layout.HEADERS) else [b""] * batch.count
    for payload, kind, text in zip(batch.payloads(), batch.kinds(), headers, strict=True):
        yield _Content(payload, kind == layout.KIND_JSON, _decode_headers(text) if text else {})


def _encoded(
    batch: Batch, contents: Sequence[_Content], first: int, stop: int, *, split: bool = True
) -> Iterator[EncodedFrame]:
    """Rows `first` to `stop` of the batch with other contents; in halves, as long as they are too large."""
    columns: dict[int, Any] = {
        layout.HEADERS: [encode_headers(each.headers) if each.headers else b"" for each in contents]
    }
    for bit in range(32):
        column = 1 << bit
        if batch.has(column) and column not in (layout.HEADERS, layout.PAYLOAD_KIND):
            values = batch.integers(column) if bit < layout.VAR_SHIFT else batch.strings(column)
            columns[column] = values[first:stop]
    if not any(columns[layout.HEADERS]):
        del columns[layout.HEADERS]
    texts = [values for column, values in columns.items() if column >= 1 << layout.VAR_SHIFT]
    size = sum(len(each.payload) for each in contents) + sum(len(text) for values in texts for text in values)
    if split and stop - first > 1 and size + ROW_BYTES_MAX * (stop - first) > FRAME_BYTES_TARGET:
        middle = (stop - first) // 2
        yield from _encoded(batch, contents[:middle], first, first + middle)
        yield from _encoded(batch, contents[middle:], first + middle, stop)
    else:
        kinds = [int(each.is_json) for each in contents]
        yield EncodedFrame(build([each.payload for each in contents], kinds=kinds, columns=columns), stop - first)


def _stretches(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending rows as half-open ranges."""
    first = stop = -1
    for row in rows:
        if row != stop:
            if first >= 0:
                yield first, stop
            first = row
        stop = row + 1
    if first >= 0:
        yield first, stop
