"""The keyring: erased units have no keys, others keep theirs, and a unit can be used again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.encryption.keyring import RANDOM_BYTES, Keyring, Unit

ORDERS, INVOICES, OTHER = "shop/default/orders", "shop/default/invoices", "bank/default/orders"
PATHS = (ORDERS, INVOICES, OTHER)
SUBJECTS = (b"", b"user-1", b"user-2")
UNITS = [
    *(Unit(path.partition("/")[0]) for path in PATHS),
    *(Unit(path.partition("/")[0], path) for path in PATHS),
    *(Unit(path.partition("/")[0], path, subject) for path in PATHS for subject in SUBJECTS),
]


def new() -> Keyring:
    return Keyring.new(bytes(range(RANDOM_BYTES)))


def covers(unit: Unit, path: str, subject: bytes) -> bool:
    return path.startswith(f"{unit.namespace}/") and unit.queue in (None, path) and unit.subject in (None, subject)


@given(st.lists(st.sampled_from(UNITS), max_size=5))
def test_an_erasure_destroys_the_keys_of_its_unit_alone(erased):
    keyring = new()
    keys: dict[tuple[str, bytes, int], bytes] = {}
    for unit in [*erased, None]:
        for path in PATHS:
            for subject in SUBJECTS:
                key = keyring.data_key(path, subject, keyring.generation)
                assert key is not None
                keys[path, subject, keyring.generation] = key
        if unit is not None:
            keyring = Keyring.load(keyring.erased([unit]).dump())
    for (path, subject, generation), key in keys.items():
        gone = any(covers(unit, path, subject) for unit in erased[generation:])
        assert keyring.data_key(path, subject, generation) == (None if gone else key)


@given(st.lists(st.sampled_from(UNITS), min_size=1, max_size=5))
def test_keys_of_different_subjects_and_times_differ(erased):
    keyring, seen = new(), dict[bytes, tuple[str, bytes, int]]()
    for unit in erased:
        keyring = keyring.erased([unit])
    times = {
        (path, subject): sum(covers(unit, path, subject) for unit in erased) for path in PATHS for subject in SUBJECTS
    }
    for (path, subject), count in times.items():
        key = keyring.data_key(path, subject, keyring.generation)
        assert key is not None
        assert seen.setdefault(key, (path, subject, count)) == (path, subject, count)
        if count:
            assert key != new().data_key(path, subject, 0)


def test_names_of_erased_units_are_not_stored():
    stored = new().erased([Unit("shop", ORDERS, b"alice@example.com"), Unit("shop", INVOICES)]).dump()
    assert b"alice" not in stored and b"invoices" not in stored


def test_several_units_are_one_generation():
    keyring = new().erased([Unit("shop", ORDERS, b"user-1"), Unit("shop", ORDERS, b"user-2")])
    assert keyring.generation == 1
    assert keyring.data_key(ORDERS, b"user-1", 0) is None and keyring.data_key(ORDERS, b"user-2", 0) is None
    assert keyring.data_key(ORDERS, b"user-3", 0) == new().data_key(ORDERS, b"user-3", 0)


def test_an_erased_message_key_adds_about_seven_kilobytes():
    keyring = new()
    first = len(keyring.erased([Unit("shop", ORDERS, b"user-0")]).dump())
    many = len(keyring.erased([Unit("shop", ORDERS, b"user-%d" % n) for n in range(50)]).dump())
    assert (many - first) / 49 < 7_500
