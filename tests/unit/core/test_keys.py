"""One of each key at a time, in order; parked keys."""

from __future__ import annotations

from penstock.core.order.keys import KeyGate


def everything(_place: int) -> bool:
    return True


def test_the_first_goes_through_and_the_others_follow_in_order():
    gate = KeyGate()
    assert gate.enter(7, 1, fresh=True)
    assert not gate.enter(7, 2, fresh=True)
    assert not gate.enter(7, 3, fresh=True)
    assert gate.enter(8, 4, fresh=True), "another key"
    assert gate.enter(0, 5, fresh=True) and gate.enter(0, 6, fresh=True), "no key"
    assert gate.blocked == 0, "they wait their turn"
    assert gate.leave(7, 2, everything) is None, "it does not have the key"
    assert gate.leave(7, 1, everything) == 2
    assert gate.leave(7, 2, everything) == 3
    assert gate.leave(7, 3, everything) is None
    assert gate.blocked == 0 and gate.holder(7) is None


def test_message_that_ended_while_waiting_is_skipped():
    gate = KeyGate()
    for place in range(1, 5):
        gate.enter(7, place, fresh=True)
    assert gate.leave(7, 1, lambda place: place > 3) == 4
    assert gate.lets(7, 4) and not gate.lets(7, 3)


def test_delivered_message_holds_its_key():
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
    assert not gate.enter(7, 3, fresh=True), "no message follows, none enters"
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


def test_blocked_are_the_keys_behind_one_that_failed_or_was_given_up():
    gate = KeyGate()
    for key in (1, 2, 3):
        gate.enter(key, 10 * key, fresh=True)
        gate.seize(key, 10 * key)
        gate.enter(key, 10 * key + 1, fresh=True)
    gate.enter(4, 40, fresh=True)
    gate.wait(4, 40)
    assert gate.blocked == 0, "three wait behind one that is leased, one has none behind it"
    gate.wait(1, 10)
    gate.wait(2, 99)
    gate.park(3, 30)
    assert gate.blocked == 2
    gate.enter(4, 41, fresh=True)
    assert gate.blocked == 3
    assert gate.enter(1, 10, fresh=False) and gate.blocked == 2, "it is ready again"
    gate.wait(1, 10)
    gate.seize(1, 10)
    assert gate.blocked == 2, "it is leased again"
    gate.wait(1, 10)
    assert gate.leave(1, 10, everything) == 11 and gate.blocked == 2
    assert gate.unpark(3, 30, everything) == 31 and gate.blocked == 1
    assert gate.leave(4, 40, lambda _place: False) is None and gate.blocked == 0, "the message behind it has ended"


def test_parked_key_is_blocked_until_released():
    gate = KeyGate()
    gate.enter(7, 1, fresh=True)
    gate.park(7, 1)
    gate.park(7, 0)
    assert gate.blocked == 0, "no message waits"
    gate.enter(7, 2, fresh=True)
    assert gate.blocked == 1
    gate.seize(7, 0)
    assert gate.blocked == 1, "for the other one"
    gate.seize(7, 1)
    assert gate.blocked == 0, "brought back, and leased"


def test_one_that_waits_for_its_next_attempt_is_still_the_one_that_is_let_through():
    gate = KeyGate()
    assert gate.enter(7, 1, fresh=True) and not gate.enter(7, 2, fresh=True)
    gate.wait(7, 1)
    assert gate.lets(7, 1) and not gate.lets(7, 2) and gate.holder(7) == 1 and gate.blocked == 1
    gate.seize(7, 1)
    assert list(gate.waiting(7)) == [2] and gate.holder(7) == 1 and gate.blocked == 0
    gate.wait(7, 1)
    gate.park(7, 1)
    assert gate.holder(7) is None and gate.parked_for(7) == [1] and gate.blocked == 1
