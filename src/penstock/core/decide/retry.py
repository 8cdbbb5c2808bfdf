"""The arithmetic of trying again, in one place.

`max_retries = N` means at most N + 1 deliveries; `attempt` is 1 on the first one. Jitter is derived from what is being
retried, not from chance: the same fact gives the same delay on every machine, and different messages still spread.
"""

from __future__ import annotations

from penstock.core.config import Backoff
from penstock.core.state import Queue, Shard

_MIX = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def exhausted(attempt: int, max_retries: int) -> bool:
    """True if a message that failed on this attempt may not be delivered again."""
    return attempt > max_retries


def retries_of(shard: Shard, queue: Queue, group: int) -> int:
    """How often a message that does not say so itself is tried again in this group: a webhook has its own patience."""
    if shard.webhook_groups:
        webhook = shard.webhook_groups.get((queue.path, queue.group_names[group]))
        if webhook is not None:
            return len(webhook.spec.retry_delays_ms)
    return queue.config.max_retries


def backoff_ms(policy: Backoff, attempt: int, seed: int) -> int:
    """How long to wait after the given attempt failed, spread by the jitter: base * factor^(attempt-1), capped; or the
    step of that attempt."""
    if policy.kind == "none":
        return 0
    if policy.steps_ms:
        wait = float(policy.steps_ms[min(attempt, len(policy.steps_ms)) - 1])
    else:
        # Enough doublings reach any cap; more would only overflow.
        growth = policy.factor ** min(attempt - 1, 128) if policy.kind == "exponential" and policy.base_ms else 1
        wait = min(policy.base_ms * growth, float(policy.cap_ms))
    spread = (_mixed(seed) / _MASK * 2 - 1) * policy.jitter
    return max(0, round(wait * (1 + spread)))


def _mixed(seed: int) -> int:
    """A bijection of 64 bits that scatters neighbours (the finalizer of splitmix64)."""
    value = (seed + _MIX) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
