from __future__ import annotations

import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.security.buckets import Rate, parse_rate
from penstock.security.credentials import KeyEntry, KeyTable
from penstock.security.keys import ApiKey, parse_key, shown_id
from penstock.security.scopes import parse_scopes
from penstock.security.secret import Secret

HASH_KEY = Secret(bytes(range(32)))
SCOPES = parse_scopes(["publish:shop/*"])


def entry(table: KeyTable, key: ApiKey, ends_at_ms: int = 0, rate: Rate | None = None) -> KeyEntry:
    return KeyEntry(key.id, "billing", SCOPES, ((table.hash(key.text.reveal()), ends_at_ms),), rate)


def test_new_keys_have_the_documented_form_and_differ():
    texts = {ApiKey.new().text.reveal() for _ in range(1000)}
    assert len(texts) == 1000
    assert {len(text) for text in texts} == {4 + 12 + 1 + 43 + 1 + 6}
    assert all(text.startswith("psk_") and text.replace("_", "").isalnum() for text in texts)


def test_key_is_parsed_again():
    key = ApiKey.new()
    assert parse_key(key.text.reveal()) == key
    assert shown_id(key.text.reveal()) == key.id


@given(st.integers(0, 66), st.sampled_from("0Az_-."))
def test_check_part_finds_every_changed_character(position, letter):
    text = "psk_0123456789Ab_" + "Qq0" * 14 + "x_"
    key = ApiKey.new().text.reveal()
    changed = key[:position] + letter + key[position + 1 :]
    if changed != key:
        with pytest.raises(InvalidRequest) as refused:
            parse_key(changed)
        assert key[17:60] not in str(refused.value)
    with pytest.raises(InvalidRequest):
        parse_key(text)


@given(st.text())
def test_any_text_is_a_key_or_refused_and_never_found(text):
    table = KeyTable(HASH_KEY)
    table.accept(entry(table, ApiKey.new()))
    assert table.find(text, 0) is None
    with pytest.raises(InvalidRequest):
        parse_key(text)


def test_valid_key_is_found_until_it_expires():
    table, key = KeyTable(HASH_KEY), ApiKey.new()
    table.accept(entry(table, key, ends_at_ms=1000))
    found = table.find(key.text.reveal(), 999)
    assert found is not None and (found.id, found.name, found.scopes) == (key.id, "billing", SCOPES)
    assert table.find(key.text.reveal(), 1000) is None


def test_same_id_with_another_secret_is_not_found():
    table, key = KeyTable(HASH_KEY), ApiKey.new()
    table.accept(entry(table, key))
    assert table.find(ApiKey.new(key.id).text.reveal(), 0) is None


def test_hashes_of_another_hash_key_are_worthless():
    table, other, key = KeyTable(HASH_KEY), KeyTable(Secret(b"k" * 32)), ApiKey.new()
    table.accept(entry(other, key))
    assert table.find(key.text.reveal(), 0) is None


def test_both_secrets_are_accepted_during_a_rotation():
    table, old = KeyTable(HASH_KEY), ApiKey.new()
    new = ApiKey.new(old.id)
    hashes = ((table.hash(new.text.reveal()), 0), (table.hash(old.text.reveal()), 500))
    table.accept(KeyEntry(old.id, "billing", SCOPES, hashes, None))
    assert table.find(old.text.reveal(), 499) and table.find(new.text.reveal(), 499)
    assert table.find(old.text.reveal(), 500) is None and table.find(new.text.reveal(), 500)


def test_principals_that_ended_are_returned_and_the_others_are_kept():
    table, gone, stays = KeyTable(HASH_KEY), ApiKey.new(), ApiKey.new()
    table.accept(entry(table, gone))
    table.accept(entry(table, stays))
    before = table.find(stays.text.reveal(), 0)
    ended = [*table.forget(gone.id), *table.accept(entry(table, stays))]
    assert [principal.id for principal in ended] == [gone.id]
    assert table.find(gone.text.reveal(), 0) is None
    assert table.find(stays.text.reveal(), 0) is before, "its open streams go on"


def test_rate_of_a_key_is_that_of_its_principal():
    table, limited, free = KeyTable(HASH_KEY), ApiKey.new(), ApiKey.new()
    table.accept(entry(table, limited, rate=parse_rate("2/s")))
    table.accept(entry(table, free))
    principal = table.find(limited.text.reveal(), 0)
    assert principal.rate == Rate(2, "s") and table.find(free.text.reveal(), 0).rate is None
    table.accept(entry(table, limited, rate=parse_rate("2/s")))
    assert table.find(limited.text.reveal(), 0) is principal, "an unrelated change keeps the principal"
    table.accept(entry(table, limited, rate=parse_rate("3/s")))
    assert table.find(limited.text.reveal(), 0).rate == Rate(3, "s")


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r}".format, lambda secret: f"{[secret]}"])
def test_secret_is_not_shown(show, caplog):
    secret = ApiKey.new().text
    logging.getLogger("test").warning("key %s", secret)
    assert secret.reveal() not in show(secret) and "***" in show(secret)
    assert secret.reveal() not in caplog.text
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_secrets_compare_by_value():
    assert Secret("a") == Secret("a") and Secret("a") != Secret("b") and Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
