"""Encrypted records: only in their place, only under their key, and never twice under one nonce."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.core.records import EncryptedPublished, Published
from penstock.encryption import record_cipher
from penstock.encryption.keyring import RANDOM_BYTES, Keyring, Unit
from penstock.encryption.record_cipher import NotDecrypted, RecordCipher
from penstock.journal.codec import decode_at, encode

PATH = "shop/default/orders"
KEYRING = Keyring.new(bytes(range(RANDOM_BYTES)))


def new_cipher(keyring: Keyring = KEYRING, term: int = 1) -> RecordCipher:
    return RecordCipher(keyring, term, bytes(16))


def record(payloads: list[bytes], keys: list[bytes] | None = None, headers: list[bytes] | None = None) -> Published:
    columns: dict[int, Any] = {layout.PRIORITY: [7] * len(payloads)}
    if keys is not None:
        columns[layout.KEY] = keys
    if headers is not None:
        columns[layout.HEADERS] = headers
    batch = Batch.open(build(payloads, kind=layout.KIND_BYTES, columns=columns))
    return Published(1_000, 5, 2, 40, 77 << 80, batch, "billing", 3, [9, 9 + len(payloads)])


def plain(found: Published) -> tuple[Any, ...]:
    return (
        found.at, found.queue, found.partition, found.offset, found.id, bytes(found.batch.frame), found.producer,
        found.epoch, found.seqs,
    )  # fmt: skip


texts = st.binary(max_size=40)


@given(st.data(), st.integers(1, 9))
def test_decrypted_records_are_what_was_encrypted(data, count):
    columns = st.lists(texts, min_size=count, max_size=count)
    keys = data.draw(st.none() | st.lists(st.sampled_from([b"", b"a", b"b", b"c"]), min_size=count, max_size=count))
    given_record = record(data.draw(columns), keys, data.draw(st.none() | columns))
    cipher = new_cipher()
    for _ in range(2):
        encrypted = cipher.encrypt(given_record, PATH)
        assert len(encrypted.batch.frame) == len(given_record.batch.frame)
        stored, _ = decode_at(b"".join(encode(encrypted)), 0)
        assert isinstance(stored, EncryptedPublished)
        # Another process reads it: another term, another salt.
        reader = RecordCipher(KEYRING, 2, os.urandom(16))
        decrypted = reader.decrypt(stored)
        assert decrypted.erased == [] and [plain(each) for each in decrypted.records] == [plain(given_record)]


def test_a_run_of_a_batch_is_encrypted_alone():
    whole = record([b"one", b"two", b"three"])
    run = Published(1, 5, 2, 41, 9, whole.batch.run(1, 2))
    stored = new_cipher().encrypt(run, PATH)
    assert new_cipher().decrypt(stored).records[0].batch.payloads() == [b"two"]


def test_ciphertext_shows_neither_payloads_nor_headers():
    secret = record([b"payload of alice", b"payload of bob"], [b"a", b"b"], [b'{"card":"4111"}', b'{"card":"5500"}'])
    frame = bytes(new_cipher().encrypt(secret, PATH).batch.frame)
    for text in (b"alice", b"bob", b"4111", b"5500", b"card"):
        assert text not in frame
    assert new_cipher().encrypt(secret, PATH).batch.strings(layout.KEY) == [b"a", b"b"]


@pytest.mark.parametrize(
    "change",
    [
        {"queue": 6}, {"partition": 3}, {"offset": 41}, {"id": (77 << 80) + 1}, {"at": 1_001},
        {"path": "shop/default/invoices"}, {"path": "bank/default/orders"},
    ],
    ids=str,
)  # fmt: skip
def test_a_record_in_another_context_is_refused(change):
    stored = new_cipher().encrypt(record([b"one", b"two"], [b"a", b"b"]), PATH)
    moved = msgspec.structs.replace(stored, **change)
    with pytest.raises(NotDecrypted):
        new_cipher().decrypt(moved)


def test_swapped_records_are_refused():
    cipher = new_cipher()
    first = cipher.encrypt(record([b"one"]), PATH)
    second = cipher.encrypt(msgspec.structs.replace(record([b"two"]), offset=41), PATH)
    for place, content in ((first, second), (second, first)):
        with pytest.raises(NotDecrypted):
            cipher.decrypt(msgspec.structs.replace(place, batch=content.batch, seal=content.seal))


def test_rows_of_one_key_cannot_be_given_to_another():
    cipher = new_cipher()
    stored = cipher.encrypt(record([b"one", b"two"], [b"a", b"b"]), PATH)
    swapped = stored.batch.pick([1, 0])
    with pytest.raises(NotDecrypted):
        cipher.decrypt(msgspec.structs.replace(stored, batch=swapped))


@given(st.data())
def test_any_changed_byte_is_refused(data):
    stored = new_cipher().encrypt(record([b"first payload", b"second"], [b"a", b"b"], [b'{"h":"1"}', b""]), PATH)
    frame = bytearray(stored.batch.frame)
    at = data.draw(st.integers(stored.batch.located(0)[1], len(frame) - 1))
    frame[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(NotDecrypted):
        new_cipher().decrypt(msgspec.structs.replace(stored, batch=Batch.open(bytes(frame))))


@given(st.data())
def test_any_changed_byte_of_the_seal_is_refused(data):
    stored = new_cipher().encrypt(record([b"first payload"]), PATH)
    seal = bytearray(stored.seal)
    seal[data.draw(st.integers(0, len(seal) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(NotDecrypted):
        new_cipher().decrypt(msgspec.structs.replace(stored, seal=bytes(seal)))
    for wrong in (b"", stored.seal[:-1], stored.seal + bytes(16)):
        with pytest.raises(NotDecrypted):
            new_cipher().decrypt(msgspec.structs.replace(stored, seal=wrong))


def test_another_keyring_cannot_decrypt():
    stored = new_cipher().encrypt(record([b"one"]), PATH)
    with pytest.raises(NotDecrypted):
        new_cipher(Keyring.new(os.urandom(RANDOM_BYTES))).decrypt(stored)


def test_erased_rows_are_left_out_and_the_others_stay():
    cipher = new_cipher()
    keys = [b"a", b"b", b"a", b"a", b"c"]
    stored = cipher.encrypt(record([b"%d" % row for row in range(5)], keys), PATH)
    cipher.use(KEYRING.erased([Unit("shop", PATH, b"a")]))
    decrypted = cipher.decrypt(stored)
    assert decrypted.erased == [(40, 41), (42, 44)]
    assert [(each.offset, each.id - (77 << 80), each.batch.payloads()) for each in decrypted.records] == [
        (41, 1, [b"1"]), (44, 4, [b"4"]),
    ]  # fmt: skip
    later = cipher.encrypt(record([b"new"], [b"a"]), PATH)
    assert cipher.decrypt(later).records[0].batch.payloads() == [b"new"]
    cipher.use(cipher.keyring.erased([Unit("shop", PATH)]))
    assert cipher.decrypt(stored) == ([], [(40, 45)])
    assert cipher.decrypt(later) == ([], [(40, 41)])


def test_no_nonce_is_used_twice_within_one_open(monkeypatch):
    used: set[tuple[bytes, bytes]] = set()

    class Recording:
        def __init__(self, key: bytes):
            self._key, self._cipher = key, aesgcm(key)

        def encrypt(self, nonce: bytes, data: bytes, context: bytes) -> bytes:
            assert (self._key, nonce) not in used
            used.add((self._key, nonce))
            return self._cipher.encrypt(nonce, data, context)

    aesgcm = record_cipher.AESGCM
    monkeypatch.setattr(record_cipher, "AESGCM", Recording)
    cipher = new_cipher()
    for _ in range(50):
        cipher.encrypt(record([b"one", b"two", b"three"], [b"a", b"b", b"a"]), PATH)
        cipher.use(KEYRING)
    for term in (2, 3):
        new_cipher(term=term).encrypt(record([b"one"]), PATH)
    assert len(used) == 102


def test_ciphers_are_kept_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(record_cipher, "CIPHERS_MAX", 3)
    cipher = new_cipher()
    stored = [cipher.encrypt(record([b"%d" % n], [b"user-%d" % n]), PATH) for n in range(9)]
    assert [cipher.decrypt(each).records[0].batch.payloads()[0] for each in stored] == [b"%d" % n for n in range(9)]
    assert len(cipher._writing) == len(cipher._reading) == 3
