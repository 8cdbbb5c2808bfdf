"""`penstock serve --processes N`: a supervisor, and N processes that divide the shards of one store among them.

The supervisor serves nothing. It binds the addresses, holds the lock of the data directory, forks the processes and
replaces each one that ends. A process that says nothing for too long is killed before it is replaced: a stopped process
must not go on later beside its successor. If the supervisor ends, its processes drain and end too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NoReturn

import structlog

from penstock import limits
from penstock.clock import SystemClock
from penstock.errors import Unavailable
from penstock.server.compose import open_store
from penstock.server.config import Address, ConfigError, Settings
from penstock.server.lifecycle import announce, bind, run
from penstock.server.member import Member
from penstock.server.terminal import EXIT_BAD_SETTINGS

_log = structlog.get_logger("penstock.server")

BEAT_S = 1.0
"""A process writes a byte so often, as long as its event loop turns."""
SILENT_S_MAX = 10.0
"""A process that has written nothing for so long is killed. Longer than any stall of a disk that is worth surviving."""
FAILED_STARTS_MAX = 3
"""A process that ends so many times in a row before it is ready ends the server."""
READY = b"r"
BEAT = b"."


def check_processes(settings: Settings) -> None:
    """Raises ConfigError if several processes cannot serve this."""
    if settings.store.startswith("memory:"):
        raise ConfigError("processes: memory: is the memory of one process; use local: or postgres://")
    if settings.auth != "off":
        raise ConfigError("processes: several processes do not check keys yet; leave out --processes, or --auth keys")


def run_processes(settings: Settings) -> int:
    """Serve until a signal arrives; return the exit code. Raises ConfigError or Unavailable if the start fails."""
    check_processes(settings)
    os.umask(0o077)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(bind(settings.listen_address)))
        listener.listen(limits.LISTEN_BACKLOG)
        listener.setblocking(False)
        grpc_port = _reserve_grpc_port(settings, stack)
        _hold_store(settings, stack)
        links = tempfile.mkdtemp(prefix="penstock-")
        stack.callback(shutil.rmtree, links, ignore_errors=True)
        key = secrets.token_bytes(32)

        def member(number: int) -> Member:
            return Member(number, settings.processes, links, key, listener, grpc_port)

        address = Address(*listener.getsockname()[:2])
        grpc = None if not grpc_port else Address((settings.grpc_address or address).host, grpc_port)
        scheme = "https" if settings.tls_cert else "http"
        return Supervisor(settings, member, lambda: announce(address, grpc, scheme)).run()


def _reserve_grpc_port(settings: Settings, stack: contextlib.ExitStack) -> int:
    """Bind the port of gRPC without listening, so that it stays this server's while processes are replaced."""
    address = settings.grpc_address
    if address is None:
        return 0
    try:
        bind(address, "grpc").close()  # with the option below, another server's port would be taken too
    except ConfigError:
        if settings.grpc != "auto":
            raise
        _log.warning("grpc_default_port_taken", port=address.port)
        address = address._replace(port=0)
    host = "127.0.0.1" if address.host == "localhost" else address.host
    holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    stack.enter_context(contextlib.closing(holder))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((host, address.port))
    return int(holder.getsockname()[1])


def _hold_store(settings: Settings, stack: contextlib.ExitStack) -> None:
    """Create the store if it is new, and hold its lock before the first process is forked.

    Raises ConfigError if the store cannot be divided among so many processes.
    """
    if settings.shards and settings.shards < settings.processes:
        raise ConfigError(f"processes: {settings.shards} shards cannot be divided among {settings.processes}")
    store = asyncio.run(open_store(settings, SystemClock()))
    stack.callback(lambda: asyncio.run(store.engine.close()))
    if store.shards < settings.processes:
        raise ConfigError(
            f"processes: the number of shards of a store is fixed when it is created; this one has {store.shards}, and "
            f"each process serves at least one: give at most --processes {store.shards}, or another data directory"
        )


class _Process:
    def __init__(self, number: int):
        self.number = number
        self.pid = 0
        self.status = -1
        """The end of a pipe from which its bytes are read."""
        self.life = -1
        """The end of a pipe that only this process holds: the child sees when it is closed."""
        self.ready = False
        self.heard = 0.0
        self.failed_starts = 0


class Supervisor:
    def __init__(self, settings: Settings, member: Callable[[int], Member], on_ready: Callable[[], None]):
        self._settings = settings
        self._member = member
        self._on_ready = on_ready
        self._processes = [_Process(number) for number in range(settings.processes)]
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._announced = False
        self._code: int | None = None
        """The exit code, once the processes are to end."""

    def run(self) -> int:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if self._settings.tls_cert else [])):
            signal.signal(number, self._on_signal)
        self._selector.register(wake_read, selectors.EVENT_READ)
        for process in self._processes:
            self._fork(process)
        try:
            while self._code is None or any(process.pid for process in self._processes):
                self._turn(wake_read)
        finally:
            for process in self._processes:
                if process.pid:
                    os.kill(process.pid, signal.SIGKILL)
                    os.waitpid(process.pid, 0)
        _log.info("server_stopped")
        return self._code or 0

    def _turn(self, wake: int) -> None:
        for key, _ in self._selector.select(BEAT_S):
            if key.fd == wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 512)
            else:
                self._read(key.data)
        now = time.monotonic()
        for process in self._processes:
            if process.pid and now - process.heard > SILENT_S_MAX:
                _log.error("process_silent", member=process.number, seconds=SILENT_S_MAX)
                os.kill(process.pid, signal.SIGKILL)
                process.heard = now

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            self._send(signal.SIGHUP)  # certificates are read again
            return
        self._signals += 1
        if self._signals == 1:
            self._end(0)
        else:
            self._send(signal.SIGKILL)

    def _end(self, code: int) -> None:
        self._code = code
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for process in self._processes:
            if process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    # -- processes ----------------------------------------------------------------------------------------------------

    def _fork(self, process: _Process) -> None:
        status_read, status_write = os.pipe()
        life_read, life_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(status_read)
            os.close(life_write)
            for other in self._processes:
                for end in (other.status, other.life):
                    if end >= 0:
                        os.close(end)
            self._serve(process.number, status_write, life_read)
        os.close(status_write)
        os.close(life_read)
        process.pid, process.status, process.life = pid, status_read, life_write
        process.ready, process.heard = False, time.monotonic()
        self._selector.register(status_read, selectors.EVENT_READ, process)

    def _serve(self, number: int, status: int, life: int) -> NoReturn:
        """The child: serve, and never return to the supervisor's code."""
        code = EXIT_BAD_SETTINGS
        try:
            signal.set_wakeup_fd(-1)
            for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(each, signal.SIG_DFL)
            self._selector.close()
            structlog.contextvars.bind_contextvars(member=number)
            os.setpgid(0, 0)  # Ctrl-C in a terminal reaches the supervisor alone, which ends the processes in order

            def ready(*_: object) -> None:
                os.write(status, READY)

            code = run(self._settings, self._member(number), ready, _life(status, life))
        except (ConfigError, Unavailable) as error:
            _log.error("process_refused", reason=str(error))
        except BaseException:
            _log.exception("process_failed")
            code = 70
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _read(self, process: _Process) -> None:
        data = os.read(process.status, 512)
        process.heard = time.monotonic()
        if READY in data:
            process.ready, process.failed_starts = True, 0
            if not self._announced and all(each.ready for each in self._processes):
                self._announced = True
                self._on_ready()
        if not data:
            self._ended(process)

    def _ended(self, process: _Process) -> None:
        self._selector.unregister(process.status)
        _, status = os.waitpid(process.pid, 0)
        os.close(process.status)
        os.close(process.life)
        process.pid, process.status, process.life = 0, -1, -1
        code = os.waitstatus_to_exitcode(status)
        if self._code is not None:
            if code not in (0, -signal.SIGKILL) and not self._code:
                self._code = abs(code)
            return
        process.failed_starts += not process.ready
        _log.error("process_ended", member=process.number, code=code)
        if process.failed_starts >= FAILED_STARTS_MAX or (code == EXIT_BAD_SETTINGS and not self._announced):
            self._end(abs(code) or 70)
        else:
            self._fork(process)


def _life(status: int, life: int) -> Callable[[Callable[[], None]], None]:
    """For the event loop of a process: write a byte every second, and call `stop` when the supervisor has ended."""

    def watch(stop: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def beat() -> None:
            with contextlib.suppress(OSError):
                os.write(status, BEAT)
            loop.call_later(BEAT_S, beat)

        def ended() -> None:
            loop.remove_reader(life)
            stop()

        loop.add_reader(life, ended)
        beat()

    return watch
