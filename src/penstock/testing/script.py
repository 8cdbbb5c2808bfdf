"""Transcripts of the state machine for golden tests: commands in, records and replies out, as text.

A transcript is a file of blocks, separated by empty lines. A block is one or more commands, a line `----`, and their
output. Lines that start with `#` are comments. Only commands advance the clock; times are relative to the
beginning. `run` returns the transcript with the current output, so a test compares two strings and regenerating writes
the result back.

    queue NAME key=value …                      create or change; `backoff.kind=fixed` for nested fields
    publish NAME PAYLOAD[{column=value,…}] … [producer=ID/EPOCH/SEQ] [+ NAME PAYLOAD …]
    lease NAME [group=G] [max=N] [lease_ms=MS] [consumer=NAME] [member=NAME generation=N]
    ack | reject | release LEASE:FIRST[-LAST] …    nack … [delay_ms=MS] [error=TEXT]    extend … lease_ms=MS
    transact LEASE:FIRST[-LAST] … + NAME PAYLOAD … [+ NAME PAYLOAD …]
    join NAME MEMBER [group=G] [session_ms=MS] [drain_ms=MS]         leave NAME MEMBER [group=G]
    heartbeat NAME MEMBER generation=N [group=G] [released=P,P]
    begin NAME group=G starts=OFFSET,OFFSET [may_let_go=true]        seek NAME to=OFFSET,-1 [group=G]
    delete_group NAME [group=G]
    cancel NAME PARTITION:OFFSET[/CLIENT_ID] …  reschedule NAME PARTITION:OFFSET … in=MS
    trim NAME PARTITION START                   purge NAME    delete NAME
    redrive NAME ID PARTITION:OFFSET … [group=G] [target=NAME] [delay_ms=MS]    begins if ID is new, one step
    end_redrive NAME ID [outcome=finished]      delete_letters NAME PARTITION:OFFSET … [group=G]    prune NAME
    schedule NAME QUEUE PAYLOAD cron=CRON [timezone=ZONE] [catch_up=HOW] [starts_in=MS] [ends_in=MS]
    pause NAME                                  resume NAME    unschedule NAME    next NAME (its fire times)
    keep NAME CLIENT PARTITION:OFFSET …         forget NAME CLIENT
    hold ID [NAME PARTITION:OFFSET …] [frame=N]    end_hold ID [reason=max_bytes]
    webhook ID NAME [group=G] [retries=MS,MS]   register, or change; switch ID active|paused|disabled [reason=TEXT]
    rotate ID overlap_ms=MS                     unhook ID    secrets ID (those that sign now)
    key ID SCOPE … [expires_in=MS] [rate=RATE]  rotate_key ID overlap_ms=MS    revoke_key ID    keys (all of them)
    user EMAIL ROLE                             change_user EMAIL [role=R] [password=1]    remove_user EMAIL    users
    time +MS                                    advance the clock; timers that fire produce records
    restart snapshot|journal                    rebuild the state from the snapshot or from the journal
    open [after=MS]                             a node acquires the shard, which had no owner for this time
    show NAME                                   the state of every message per group, and the next ones of a dispatcher
    members NAME [group=G]                      the owner of every partition
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.decide.schedules import upcoming
from penstock.core.rebuild import end_replay
from penstock.core.records import Record, ScheduleSpec, Template, Transacted, WebhookSpec
from penstock.core.slices import encoded
from penstock.core.state import Partition, Progress, Shard
from penstock.core.state.members import Share
from penstock.errors import PenstockError
from penstock.ids import parse_queue, ulid_text
from penstock.testing.script_access import AccessLines

START_MS = 1_760_000_000_000
SEPARATOR = "----"
_INTEGERS = {
    "priority": layout.PRIORITY, "delay_ms": layout.DELAY_MS, "in": layout.DELIVER_AT_MS, "ttl_ms": layout.TTL_MS,
    "max_retries": layout.MAX_RETRIES,
}  # fmt: skip
_TEXTS = {"key": layout.KEY, "id": layout.ID, "tenant": layout.TENANT}
_SHOWN_MAX = 20
_TIMES = frozenset({"at", "due", "next", "retry_at", "skipped_from", "until"})
_LISTS = frozenset({"freed", "ids", "seqs"})


class BadScript(Exception):
    """A line is not a command; the message shows it."""


class Script(AccessLines):
    """One shard without a journal, a clock or a network."""

    def __init__(self) -> None:
        self.shard = Shard()
        self.now_ms = START_MS
        self.records: list[Record] = []
        self._entropy = 0
        self._nonces: dict[int, int] = {}
        """The nonces of the receipts, by lease."""
        self._out: list[str] = []

    def run(self, text: str) -> str:
        """The transcript with its current output."""
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
        # Columns of a message are in braces; other words with a `=` are options of the command.
        options = dict(word.split("=", 1) for word in words if "=" in word.partition("{")[0])
        try:
            do([word for word in words if "=" not in word.partition("{")[0]], options)
        except (ValueError, IndexError, KeyError) as error:
            raise BadScript(f"{line!r}: {error!r}") from error
        invariants.check(self.shard)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _submit(self, command: commands.Command) -> Any:
        """Like the shard's loop: run the timers, then decide. A refusal is printed and returns None."""
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
            options.get("consumer", options.get("member", "")),
            options.get("member", ""),
            int(options.get("generation", "0")),
        )
        known = command.member or command.group in self.shard.queues[command.queue].groups
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

    def _do_begin(self, words: list[str], options: dict[str, str]) -> None:
        """`begin QUEUE group=G starts=1,0`: create a group at these offsets instead of the oldest message."""
        starts = [int(start) for start in options["starts"].split(",")]
        may_let_go = options.get("may_let_go", "false") == "true"
        new = self._submit(commands.CreateGroup(self._queue(words[0]), options["group"], starts, may_let_go))
        self._out.append("begun" if new else "it is there already")

    def _do_seek(self, words: list[str], options: dict[str, str]) -> None:
        """`seek QUEUE group=G to=5,-1`: begin anew at these offsets; -1 where the group stays as it is."""
        offsets = [int(offset) for offset in options["to"].split(",")]
        moved = self._submit(commands.SeekGroup(self._queue(words[0]), options.get("group", "default"), offsets))
        self._out += [
            f"partition {each.partition} from {each.to_offset}: {each.again} again, {each.skipped} skipped, "
            f"{each.leased} leased"
            for each in moved or ()
        ]

    def _do_delete_group(self, words: list[str], options: dict[str, str]) -> None:
        queue = self._queue(words[0])
        name = options.get("group", "default")
        number = self.shard.queues[queue].groups.get(name, -1)
        deleted = self._submit(commands.DeleteGroup(queue, name, number))
        if deleted is not None:
            self._out.append("deleted" if deleted else "there is no such group")

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

    def _do_transact(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        shown, *published = " ".join(words).split(" + ")
        named = [part.split() for part in published]
        parts = [commands.Part(self._queue(name), self._batch(messages)) for name, *messages in named]
        self._entropy += 1
        done = self._submit(commands.Transact(self._claims(shown.split()), parts, self._entropy << 20))
        if done is not None:
            self._out.append(
                "stale, nothing happened"
                if done.runs is None
                else f"done, and stored {[(run.queue, run.offset, run.duplicate) for run in done.runs]}"
            )

    def _settle(self, words: list[str], make: Callable[[list[commands.Claim]], commands.Command]) -> None:
        claims = self._claims(words)
        for claim, outcomes in zip(claims, self._submit(make(claims)) or [], strict=False):
            for part in outcomes:
                at = "" if part.at is None else f" {self._time(part.at)}"
                self._out.append(f"{claim.lease}:{_span(list(range(part.first, part.stop)))} {part.status}{at}")

    def _claims(self, words: list[str]) -> list[commands.Claim]:
        claims = []
        for word in words:
            lease, _, span = word.partition(":")
            first, _, last = span.partition("-")
            nonce = self._nonces.get(int(lease), 0)
            claims.append(commands.Claim(int(lease), nonce, int(first), int(last or first) + 1))
        return claims

    def _do_join(self, words: list[str], options: dict[str, str]) -> None:
        session_ms, drain_ms = int(options.get("session_ms", "30000")), int(options.get("drain_ms", "30000"))
        group = options.get("group", "default")
        self._shared(self._submit(commands.Join(self._queue(words[0]), group, words[1], session_ms, drain_ms)))

    def _do_heartbeat(self, words: list[str], options: dict[str, str]) -> None:
        released = [int(number) for number in options.get("released", "").split(",") if number]
        group, generation = options.get("group", "default"), int(options["generation"])
        self._shared(self._submit(commands.Heartbeat(self._queue(words[0]), group, words[1], generation, released)))

    def _do_leave(self, words: list[str], options: dict[str, str]) -> None:
        generation = int(options["generation"]) if "generation" in options else None
        group = options.get("group", "default")
        left = self._submit(commands.Leave(self._queue(words[0]), group, words[1], generation))
        self._out += {True: ["left"], False: ["was not there"], None: []}[left]

    def _shared(self, share: Share | None) -> None:
        if share is not None:
            awaited = f", awaits {_span(share.awaited)}" if share.awaited else ""
            giving_up = f", gives up {_span(share.giving_up)}" if share.giving_up else ""
            told = f"partitions {_span(share.assigned) or 'none'}{awaited}{giving_up}"
            self._out.append(f"generation {share.generation}: {told}")

    def _do_members(self, words: list[str], options: dict[str, str]) -> None:
        queue = self.shard.queues[self._queue(words[0])]
        membership = queue.memberships[queue.groups[options.get("group", "default")]]
        self._out.append(f"generation {membership.generation}: {' '.join(membership.members) or 'none'}")
        for number, slot in enumerate(membership.slots):
            until = f", after {slot.giver or 'unknown'}, until {self._time(slot.until)}" if slot.until else ""
            self._out.append(f"  {number}: {slot.owner or 'none'} since {slot.since}{until}")

    def _do_cancel(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        places = [word.partition("/")[0] for word in words[1:]]
        own = [word.partition("/")[2].encode() for word in words[1:]]
        self._touched(words[1:], self._submit(commands.Cancel(self._queue(words[0]), _places(places), own)))

    def _do_reschedule(self, words: list[str], options: dict[str, str]) -> None:
        due = self.now_ms + int(options["in"])
        self._touched(words[1:], self._submit(commands.Reschedule(self._queue(words[0]), _places(words[1:]), due)))

    def _touched(self, places: list[str], statuses: list[str] | None) -> None:
        self._out += [f"{place} {status}" for place, status in zip(places, statuses or [], strict=False)]

    def _do_redrive(self, words: list[str], options: dict[str, str]) -> None:
        queue, redrive = self._queue(words[0]), words[1]
        target = options.get("target", "")
        delay_ms = int(options.get("delay_ms", "0"))
        if redrive not in self.shard.queues[queue].redrives:
            path = parse_queue(target) if target else ""
            self._submit(commands.StartRedrive(queue, redrive, filter="", target=path, delay_ms=delay_ms))
        letters = self._letters(queue, words[2:], options)
        part = None
        if target and letters:
            part = commands.Part(self._queue(target), self._batch([f"copy-of-{word}" for word in words[2:]]))
        self._entropy += 1
        moved = self._submit(commands.RedriveLetters(queue, redrive, letters, part, self._entropy << 20))
        self._out.append(f"{moved} redriven, {self.shard.queues[queue].redrives[redrive].redriven} in all")

    def _do_end_redrive(self, words: list[str], options: dict[str, str]) -> None:
        outcome: Any = options.get("outcome", "finished")
        self._submit(commands.EndRedrive(self._queue(words[0]), words[1], outcome))

    def _do_delete_letters(self, words: list[str], options: dict[str, str]) -> None:
        queue = self._queue(words[0])
        removed = self._submit(commands.DeleteLetters(queue, self._letters(queue, words[1:], options)))
        self._out.append(f"{removed} deleted")

    def _do_prune(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._out.append(f"{self._submit(commands.PruneLetters(self._queue(words[0])))} let go")

    def _letters(self, queue: int, words: list[str], options: dict[str, str]) -> list[commands.Letter]:
        """The dead letters at these positions; positions without one are skipped."""
        group = self.shard.queues[queue].groups[options.get("group", "default")]
        letters = []
        for partition, offset in _places(words):
            letter = self.shard.queues[queue].partitions[partition].dead.get(group, offset)
            letters.append(commands.Letter(partition, group, offset, letter.dead_at if letter else -1))
        return letters

    def _do_trim(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.TrimPartition(self._queue(words[0]), int(words[1]), int(words[2])))

    def _do_purge(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.PurgeQueue(self._queue(words[0])))

    def _do_delete(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.DeleteQueue(self._queue(words[0])))

    def _do_schedule(self, words: list[str], options: dict[str, str]) -> None:
        name, queue, payload = words
        spec = ScheduleSpec(
            parse_queue(queue),
            options["cron"],
            Template(payload.encode()),
            options.get("timezone", "UTC"),
            options.get("catch_up", "latest"),  # type: ignore[arg-type]
            self.now_ms + int(options["starts_in"]) if "starts_in" in options else None,
            self.now_ms + int(options["ends_in"]) if "ends_in" in options else None,
        )
        self._submit(commands.SetSchedule(name, spec))

    def _do_pause(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.PauseSchedule(words[0], True))

    def _do_resume(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.PauseSchedule(words[0], False))
        self._let_time_work()

    def _do_unschedule(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.RemoveSchedule(words[0]))

    def _do_next(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        schedule = self.shard.schedules[words[0]]
        times = ", ".join(self._time(time) for time in upcoming(schedule, 3)) or "never again"
        self._out.append(f"next {times}" + (f", failing: {schedule.error}" if schedule.error else ""))

    def _do_webhook(self, words: list[str], options: dict[str, str]) -> None:
        name, queue = words
        delays = [int(delay) for delay in options.get("retries", "1000,2000").split(",") if delay]
        spec = WebhookSpec(parse_queue(queue), options.get("group", "default"), f"https://{name}.example", delays)
        self._submit(commands.SetWebhook(name, spec, b"" if name in self.shard.webhooks else b"first"))

    def _do_rotate(self, words: list[str], options: dict[str, str]) -> None:
        self._entropy += 1
        self._submit(commands.RotateWebhook(words[0], b"number %d" % self._entropy, int(options["overlap_ms"])))

    def _do_switch(self, words: list[str], options: dict[str, str]) -> None:
        self._submit(commands.SwitchWebhook(words[0], words[1], options.get("reason", "")))  # type: ignore[arg-type]

    def _do_unhook(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.RemoveWebhook(words[0]))

    def _do_secrets(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        for secret in self.shard.webhooks[words[0]].secrets_at(self.now_ms):
            until = "" if secret.until is None else f" until {self._time(secret.until)}"
            self._out.append(f"signs with {secret.sealed.decode()}{until}")

    def _do_keep(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        kept = self._submit(commands.KeepOffsets(self._queue(words[0]), words[1], dict(_places(words[2:]))))
        if kept is not None:
            told = " ".join(f"{partition}:{offset}" for partition, offset in sorted(kept.offsets.items()))
            self._out.append(f"{words[1]} is at {told or 'nothing'} since {self._time(kept.used_at)}")

    def _do_forget(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.ForgetOffsets(self._queue(words[0]), words[1]))

    def _do_hold(self, words: list[str], options: dict[str, str]) -> None:
        offsets = {self._queue(words[1]): dict(_places(words[2:]))} if len(words) > 1 else {}
        self._submit(commands.SetHold(words[0], int(options.get("frame", 0)), offsets, 1000))

    def _do_end_hold(self, words: list[str], options: dict[str, str]) -> None:
        self._submit(commands.EndHold(words[0], options.get("reason", "removed")))  # type: ignore[arg-type]

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
            self.shard.replaying = True
            for record in self.records:
                apply(self.shard, record)
            end_replay(self.shard)
            advance(self.shard, max(self.shard.now_ms, by_ms))
        else:
            raise ValueError("restart from 'snapshot' or from 'journal'")
        same = snapshot.digest(self.shard) == before
        self._out.append("the state is the same" if same else "THE STATE DIFFERS")

    def _do_open(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        # Timers run after the open: leases that expired while the shard had no owner start again.
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
                behind = [at for at in range(progress.floor, partition.start) if not progress.is_done(at)]
                for offset in (*behind, *range(partition.start, partition.end)):
                    places.setdefault(self._state(partition, progress, offset), []).append(offset)
                told = "; ".join(f"{state} {_span(offsets)}" for state, offsets in sorted(places.items()))
                self._out.append(f"  {queue.group_names[group]}: {told or 'nothing'}")
            for (group, offset), letter in sorted(partition.dead.items()):
                self._out.append(
                    f"  dead letter of {queue.group_names[group]}: {offset}, {letter.reason} after attempt "
                    f"{letter.attempts}{': ' + letter.error if letter.error else ''}"
                )

        for group, dispatcher in sorted(queue.dispatchers.items()):
            upcoming = [f"{number}:{offset}" for number, offset in islice(dispatcher.upcoming(self.now_ms), _SHOWN_MAX)]
            self._out.append(f"next for {queue.group_names[group]}: {', '.join(upcoming) or 'none'}")

    def _state(self, partition: Partition, progress: Progress, offset: int) -> str:
        if progress.is_done(offset):
            return "gone" if offset in partition.gone else "done"
        if offset in progress.leased:
            return "leased"
        retry = progress.retries.get(offset)
        if retry is not None and retry.due > self.now_ms:
            return f"waiting until {self._time(retry.due)}"
        return "scheduled" if offset in partition.scheduled else "ready"

    # -- parsing and formatting ----------------------------------------------------------------------------------------

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
        """The record's kind and its fields that differ from the default; the batch as payloads, times relative."""
        told = []
        usual = {field.name: field.default for field in msgspec.structs.fields(record)}
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if value == usual[name] or name == "routing" or (name in _LISTS and not value):
                continue
            if isinstance(value, Batch):
                told.append(f"payloads={','.join(payload.decode() for payload in value.payloads())}")
            elif name in _TIMES:
                told.append(f"{name}={value - START_MS:+d}")
            elif name == "times":
                told.append(f"times={','.join(f'{time - START_MS:+d}' for time in value)}")
            elif isinstance(value, ScheduleSpec):
                told.append(f"queue={value.queue} cron={value.cron!r} catch_up={value.catch_up}")
            elif isinstance(value, WebhookSpec):
                told.append(f"queue={value.queue} group={value.group} retries={value.retry_delays_ms}")
            elif name == "config":
                given, general = _flat(msgspec.to_builtins(value)), _flat(msgspec.to_builtins(type(value)()))
                told += [f"{key}={given[key]}" for key in given if given[key] != general[key]]
            elif name == "id" and isinstance(value, str):
                told.append(f"id={value}")
            elif name not in ("id", "key", "nonce") and not isinstance(record, Transacted):
                told.append(f"{name}={value}")
        return f"{type(record).__struct_config__.tag} {' '.join(told)}"


def _value(text: str) -> Any:
    """Parse a number, true, false or null; any other word is text."""
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
