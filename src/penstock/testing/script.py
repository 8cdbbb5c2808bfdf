"""The machine on paper: a story of commands in, records and replies out, as text.

A transcript is a file of blocks, separated by empty lines. A block is one command or several, a line `----`, and what
came of them. Lines that start with `#` tell the story. Time stands still except where a command moves it, and is shown
relative to the beginning. `run` returns the same text with the outcomes as they are now, so comparing is a string
comparison and regenerating is writing the result back.

    queue NAME key=value …                      create or change; `backoff.kind=fixed` for what is nested
    publish NAME PAYLOAD[{column=value,…}] … [producer=ID/EPOCH/SEQ] [+ NAME PAYLOAD …]
    lease NAME [group=G] [max=N] [lease_ms=MS] [consumer=WHO]
    ack | reject | release LEASE:FIRST[-LAST] …    nack … [delay_ms=MS] [error=TEXT]    extend … lease_ms=MS
    cancel NAME PARTITION:OFFSET …              reschedule NAME PARTITION:OFFSET … in=MS
    trim NAME PARTITION START                   purge NAME    delete NAME
    time +MS                                    let time pass; what ends by itself becomes records
    restart snapshot|journal                    build the state again, from either
    open [after=MS]                             a node takes the shard, after nobody had it for so long
    show NAME                                   where every message is, per group
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.records import Record
from penstock.core.slices import encoded
from penstock.core.state import Partition, Progress, Shard
from penstock.errors import PenstockError
from penstock.ids import parse_queue, ulid_text

START_MS = 1_760_000_000_000
SEPARATOR = "----"
_INTEGERS = {
    "priority": layout.PRIORITY, "delay_ms": layout.DELAY_MS, "in": layout.DELIVER_AT_MS, "ttl_ms": layout.TTL_MS,
    "max_retries": layout.MAX_RETRIES,
}  # fmt: skip
_TEXTS = {"key": layout.KEY, "id": layout.ID, "tenant": layout.TENANT}
_TIMES = frozenset({"at", "due"})
_LISTS = frozenset({"seqs"})


class BadScript(Exception):
    """A line that is not a command; the message shows it."""


class Script:
    """One shard without a journal, a clock or a network."""

    def __init__(self) -> None:
        self.shard = Shard()
        self.now_ms = START_MS
        self.records: list[Record] = []
        self._entropy = 0
        self._nonces: dict[int, int] = {}
        """What the leases' receipts would carry."""
        self._out: list[str] = []

    def run(self, text: str) -> str:
        """The transcript with its outcomes as they are now."""
        return "\n\n".join(self._block(block) for block in text.strip().split("\n\n")) + "\n"

    def _block(self, block: str) -> str:
        lines = block.split("\n")
        if SEPARATOR in lines:
            lines = lines[: lines.index(SEPARATOR)]
        told = [line for line in lines if line.strip() and not line.startswith("#")]
        if not told:
            return "\n".join(lines)
        self._out = []
        for line in told:
            self._line(line)
        return "\n".join([*lines, SEPARATOR, *self._out])

    def _line(self, line: str) -> None:
        name, *words = shlex.split(line)
        do: Callable[[list[str], dict[str, str]], None] | None = getattr(self, f"_do_{name}", None)
        if do is None:
            raise BadScript(f"{line!r}: there is no command {name!r}")
        # The columns of a message stand in braces; what is left with a `=` belongs to the command.
        options = dict(word.split("=", 1) for word in words if "=" in word.partition("{")[0])
        try:
            do([word for word in words if "=" not in word.partition("{")[0]], options)
        except (ValueError, IndexError, KeyError) as error:
            raise BadScript(f"{line!r}: {error!r}") from error
        invariants.check(self.shard)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _submit(self, command: commands.Command) -> Any:
        """As the shard's loop does it: time first, then the decision. A refusal is written down and returns None."""
        self._let_time_work()
        try:
            decision = decide(self.shard, command, self.now_ms)
        except PenstockError as error:
            self._out.append(f"refused: {error.code}: {error.message}")
            return None
        self._applied(decision.records)
        return decision.reply

    def _let_time_work(self) -> None:
        while self.shard.next_deadline_ms() <= self.now_ms:
            advance(self.shard, self.now_ms)
            if self.shard.needs_tick():
                self._applied(decide(self.shard, commands.Tick(), self.now_ms).records)

    def _applied(self, made: list[Record]) -> None:
        for record in made:
            apply(self.shard, record)
            self.records.append(record)
            self._out.append(f"  {self._described(record)}")

    # -- commands ------------------------------------------------------------------------------------------------------

    def _do_queue(self, words: list[str], options: dict[str, str]) -> None:
        path = parse_queue(words[0])
        values: dict[str, Any] = {}
        for name, text in options.items():
            outer, _, inner = name.partition(".")
            if inner:
                values.setdefault(outer, {})[inner] = _value(text)
            else:
                values[name] = _value(text)
        number = self.shard.paths.get(path)
        try:
            config = parse_config(values, self.shard.queues[number].config) if number else parse_config(values)
        except PenstockError as error:
            self._out.append(f"refused: {error.code}: {error.message}")
            return
        self._submit(commands.ConfigureQueue(path, config))

    def _do_publish(self, words: list[str], options: dict[str, str]) -> None:
        parts, names = [], []
        for part in " ".join(words).split(" + "):
            name, *messages = part.split()
            names.append(name)
            parts.append(commands.Part(self._queue(name), self._batch(messages)))
        self._entropy += 1
        producer, epoch, seq = (options.get("producer") or "/0/0").split("/")
        reply = self._submit(commands.Publish(parts, self._entropy << 20, producer, int(epoch), int(seq)))
        for run in sorted(reply or [], key=lambda run: (run.part, (run.rows or [0])[0])):
            rows = list(range(run.count)) if run.rows is None else run.rows
            self._out.append(
                f"{names[run.part]} rows {_span(rows)}: {'duplicate of' if run.duplicate else 'stored as'} "
                f"{run.partition}:{_span(list(range(run.offset, run.offset + run.count)))}"
            )

    def _do_lease(self, words: list[str], options: dict[str, str]) -> None:
        self._entropy += 1
        command = commands.Lease(
            self._queue(words[0]),
            options.get("group", "default"),
            int(options.get("max", "1")),
            self._entropy,
            int(options["lease_ms"]) if "lease_ms" in options else None,
            options.get("consumer", ""),
        )
        known = command.group in self.shard.queues[command.queue].groups
        reply = self._submit(command)
        if not known:
            reply = self._submit(command)  # the first call made the group
        for run in reply or []:
            self._nonces[run.lease] = run.nonce
            until = "settled by its delivery" if run.settled else f"until {self._time(run.deadline)}"
            self._out.append(
                f"lease {run.lease}: {run.partition}:{_span(list(range(run.first, run.first + run.count)))} "
                f"attempt {run.attempt}, {until}"
            )
        if not reply:
            self._out.append("nothing")

    def _do_ack(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._settle(words, commands.Ack)

    def _do_nack(self, words: list[str], options: dict[str, str]) -> None:
        delay_ms = int(options["delay_ms"]) if "delay_ms" in options else None
        self._settle(words, lambda claims: commands.Nack(claims, delay_ms, options.get("error", "")))

    def _do_reject(self, words: list[str], options: dict[str, str]) -> None:
        self._settle(words, lambda claims: commands.Reject(claims, options.get("error", "")))

    def _do_release(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._settle(words, commands.Release)

    def _do_extend(self, words: list[str], options: dict[str, str]) -> None:
        self._settle(words, lambda claims: commands.Extend(claims, int(options["lease_ms"])))

    def _settle(self, words: list[str], make: Callable[[list[commands.Claim]], commands.Command]) -> None:
        claims = []
        for word in words:
            lease, _, span = word.partition(":")
            first, _, last = span.partition("-")
            nonce = self._nonces.get(int(lease), 0)
            claims.append(commands.Claim(int(lease), nonce, int(first), int(last or first) + 1))
        for claim, outcomes in zip(claims, self._submit(make(claims)) or [], strict=False):
            for part in outcomes:
                at = "" if part.at is None else f" {self._time(part.at)}"
                self._out.append(f"{claim.lease}:{_span(list(range(part.first, part.stop)))} {part.status}{at}")

    def _do_cancel(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        places = _places(words[1:])
        self._touched(words[1:], self._submit(commands.Cancel(self._queue(words[0]), places)))

    def _do_reschedule(self, words: list[str], options: dict[str, str]) -> None:
        due = self.now_ms + int(options["in"])
        self._touched(words[1:], self._submit(commands.Reschedule(self._queue(words[0]), _places(words[1:]), due)))

    def _touched(self, places: list[str], statuses: list[str] | None) -> None:
        self._out += [f"{place} {status}" for place, status in zip(places, statuses or [], strict=False)]

    def _do_trim(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.TrimPartition(self._queue(words[0]), int(words[1]), int(words[2])))

    def _do_purge(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.PurgeQueue(self._queue(words[0])))

    def _do_delete(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.DeleteQueue(self._queue(words[0])))

    def _do_time(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self.now_ms += int(words[0])
        self._let_time_work()
        self._out.append(f"it is {self._time(self.now_ms)}")

    def _do_restart(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        before = snapshot.digest(self.shard)
        if words == ["snapshot"]:
            written = b"".join(encoded(snapshot.capture(self.shard)))
            self.shard = snapshot.load(msgspec.msgpack.decode(written))
        elif words == ["journal"]:
            by_ms = self.shard.advanced_ms
            self.shard = Shard()
            for record in self.records:
                apply(self.shard, record)
            advance(self.shard, max(self.shard.now_ms, by_ms))
        else:
            raise ValueError("restart from 'snapshot' or from 'journal'")
        same = snapshot.digest(self.shard) == before
        self._out.append("the state is the same" if same else "THE STATE DIFFERS")

    def _do_open(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        # Time does its work only after it: leases that ran out while nobody was here start over.
        self.now_ms += int(options.get("after", "0"))
        command = commands.Open(self.shard.term + 1, ulid_text(self.shard.term + 1))
        self._applied(decide(self.shard, command, self.now_ms).records)
        self._let_time_work()

    def _do_show(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        queue = self.shard.queues[self._queue(words[0])]
        for number, partition in enumerate(queue.partitions):
            self._out.append(f"partition {number}: offsets {partition.start} to {partition.end}")
            for group, progress in sorted(partition.progress.items()):
                places: dict[str, list[int]] = {}
                for offset in range(partition.start, partition.end):
                    places.setdefault(self._state(partition, progress, offset), []).append(offset)
                told = "; ".join(f"{state} {_span(offsets)}" for state, offsets in sorted(places.items()))
                self._out.append(f"  {queue.group_names[group]}: {told or 'nothing'}")
            for (group, offset), letter in sorted(partition.dead.items()):
                self._out.append(
                    f"  dead letter of {queue.group_names[group]}: {offset}, {letter.reason} after attempt "
                    f"{letter.attempts}{': ' + letter.error if letter.error else ''}"
                )

    def _state(self, partition: Partition, progress: Progress, offset: int) -> str:
        if offset in partition.gone:
            return "gone"
        if progress.is_done(offset):
            return "done"
        if offset in progress.leased:
            return "leased"
        retry = progress.retries.get(offset)
        if retry is not None and retry.due > self.now_ms:
            return f"waiting until {self._time(retry.due)}"
        return "scheduled" if offset in partition.scheduled else "ready"

    # -- words ---------------------------------------------------------------------------------------------------------

    def _queue(self, name: str) -> int:
        return self.shard.paths[parse_queue(name)]

    def _batch(self, words: list[str]) -> Batch:
        payloads, rows = [], []
        for word in words:
            payload, brace, columns = word.partition("{")
            payloads.append(payload.encode())
            rows.append(dict(pair.split("=") for pair in columns.rstrip("}").split(",")) if brace else {})
        present: dict[int, Any] = {}
        for name, column in _INTEGERS.items():
            if any(name in row for row in rows):
                nothing = -1 if name == "max_retries" else 0
                base = self.now_ms if name == "in" else 0
                present[column] = [base + int(row[name]) if name in row else nothing for row in rows]
        for name, column in _TEXTS.items():
            if any(name in row for row in rows):
                present[column] = [row.get(name, "").encode() for row in rows]
        return Batch.open(build(payloads, kind=layout.KIND_BYTES, columns=present))

    def _time(self, ms: int) -> str:
        return f"{ms - START_MS:+d} ms"

    def _described(self, record: Record) -> str:
        """The record's kind and what is not as usual in it; the batch as its payloads, times from the beginning."""
        told = []
        usual = {field.name: field.default for field in msgspec.structs.fields(record)}
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if value == usual[name] or (name in _LISTS and not value):
                continue
            if isinstance(value, Batch):
                told.append(f"payloads={','.join(payload.decode() for payload in value.payloads())}")
            elif name in _TIMES:
                told.append(f"{name}={value - START_MS:+d}")
            elif name == "config":
                given, general = _flat(msgspec.to_builtins(value)), _flat(msgspec.to_builtins(type(value)()))
                told += [f"{key}={given[key]}" for key in given if given[key] != general[key]]
            elif name not in ("id", "nonce"):
                told.append(f"{name}={value}")
        return f"{type(record).__struct_config__.tag} {' '.join(told)}"


def _value(text: str) -> Any:
    """A number, true, false or null as what it is; anything else as text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"{name}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _span(numbers: list[int]) -> str:
    """`3`, `3-7` or `3,5-7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _places(words: list[str]) -> list[tuple[int, int]]:
    return [(int(partition), int(offset)) for partition, _, offset in (word.partition(":") for word in words)]
