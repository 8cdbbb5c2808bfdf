"""One of each key at a time, in order; parked keys."""

from __future__ import annotations

from penstock.core.keys import KeyGate


def everything(_place: int) -> bool:
    return True


def test_the_first_goes_through_and_the_others_follow_in_order():
    gate = KeyGate()
    assert gate.enter(7, 1, fresh=True)
    assert not gate.enter(7, 2, fresh=True)
    assert not gate.enter(7, 3, fresh=True)
    assert gate.enter(8, 4, fresh=True), "another key"
    assert gate.enter(0, 5, fresh=True) and gate.enter(0, 6, fresh=True), "no key"
    assert gate.blocked == 1
    assert gate.leave(7, 2, everything) is None, "it does not have the key"
    assert gate.leave(7, 1, everything) == 2
    assert gate.leave(7, 2, everything) == 3
    assert gate.leave(7, 3, everything) is None
    assert gate.blocked == 0 and gate.holder(7) is None


def test_who_ended_while_waiting_is_passed_over():
    gate = KeyGate()
    for place in range(1, 5):
        gate.enter(7, place, fresh=True)
    assert gate.leave(7, 1, lambda place: place > 3) == 4
    assert gate.lets(7, 4) and not gate.lets(7, 3)


def test_what_was_delivered_has_the_key_whoever_was_let_through():
    gate = KeyGate()
    gate.enter(7, 1, fresh=True)
    gate.seize(7, 9)
    assert gate.holder(7) == 9
    assert gate.leave(7, 9, everything) == 1, "the one before it waits behind it"


def test_a_parked_key_waits_for_every_message_that_it_is_parked_for():
    gate = KeyGate()
    gate.enter(7, 1, fresh=True)
    gate.enter(7, 2, fresh=True)
    gate.park(7, 1)
    assert gate.leave(7, 1, everything) is None
    assert not gate.enter(7, 3, fresh=True), "nobody follows, nobody enters"
    gate.park(7, 0)
    assert gate.parked_for(7) == [0, 1]
    assert gate.unpark(7, 1, everything) is None
    assert gate.unpark(7, 5, everything) is None, "it was not parked for that one"
    assert gate.unpark(7, 0, everything) == 2
    assert gate.leave(7, 2, everything) == 3


def test_a_parked_message_that_is_brought_back_has_its_key_and_the_others_follow_it():
    gate = KeyGate()
    gate.enter(7, 1, fresh=True)
    gate.enter(7, 2, fresh=True)
    gate.park(7, 1)
    gate.seize(7, 1)
    assert gate.parked_for(7) == []
    assert gate.leave(7, 1, everything) == 2
