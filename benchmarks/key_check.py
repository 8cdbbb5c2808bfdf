"""The cost of a key check, and whether its time tells a known id with a wrong secret from an unknown id.

    python -m benchmarks.key_check

Both kinds are checked in random order; Welch's t below 4.5 means that the two distributions are not told apart.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time

from penstock.broker.guarded import guarded_broker
from penstock.security.credentials import KeyEntry, KeyTable
from penstock.security.keys import ApiKey
from penstock.security.principal import Principal
from penstock.security.scopes import parse_scopes
from penstock.security.secret import Secret

CHECKS = 100_000
KEYS = 1_000
SCOPES = parse_scopes(["publish:shop/*", "consume:shop/orders"])


def welch(one: list[int], other: list[int]) -> float:
    spread = statistics.variance(one) / len(one) + statistics.variance(other) / len(other)
    return abs(statistics.fmean(one) - statistics.fmean(other)) / spread**0.5


def timings(table: KeyTable, keys: list[ApiKey]) -> tuple[list[int], list[int]]:
    wrong = [ApiKey.new(key.id).text.reveal() for key in keys]
    unknown = [ApiKey.new().text.reveal() for _ in keys]
    taken: tuple[list[int], list[int]] = ([], [])
    for _ in range(2 * CHECKS):
        kind = random.getrandbits(1)
        text = random.choice((wrong, unknown)[kind])
        begun = time.perf_counter_ns()
        table.find(text, 1)
        taken[kind].append(time.perf_counter_ns() - begun)
    # Interrupts of the machine are not the check: the slowest hundredth of both is left out.
    bound = sorted(taken[0] + taken[1])[int(2 * CHECKS * 0.99)]
    return [each for each in taken[0] if each <= bound], [each for each in taken[1] if each <= bound]


class _Messages:
    def publish(self, parts: object) -> None: ...


class _Broker:
    messages = _Messages()


class _Part:
    queue = "shop/default/orders"


def per_call_us(call: object, *arguments: object) -> float:
    begun = time.process_time()  # the machine may have other work
    for _ in range(CHECKS):
        call(*arguments)  # type: ignore[operator]
    return (time.process_time() - begun) / CHECKS * 1e6


def main() -> None:
    table = KeyTable(Secret(secrets.token_bytes(32)))
    keys = [ApiKey.new() for _ in range(KEYS)]
    table.replace(KeyEntry(key.id, "bench", SCOPES, ((table.hash(key.text.reveal()), 0),), None) for key in keys)
    wrong, unknown = timings(table, keys)
    print(f"known id, wrong secret: {statistics.fmean(wrong) / 1000:.3f} us")
    print(f"unknown id: {statistics.fmean(unknown) / 1000:.3f} us")
    print(f"Welch's t: {welch(wrong, unknown):.2f}")
    print(f"check of a valid key: {per_call_us(table.find, keys[0].text.reveal(), 1):.2f} us")
    guarded = guarded_broker(_Broker(), Principal("key", "k", "k", SCOPES))  # type: ignore[arg-type]
    plain, checked = per_call_us(_Broker.messages.publish, [_Part]), per_call_us(guarded.messages.publish, [_Part])
    print(f"check of a publish of one part: {checked - plain:.2f} us")


if __name__ == "__main__":
    main()
