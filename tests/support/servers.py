"""Real Redis or Valkey servers for tests: start, pause, kill, restart, stop.

Owns processes, ports and data directories. Knows nothing of locks, and never waits for a fixed
time: each method returns when what its name says has come true.

    with Server() as server:
        server.pause()
        server.url             # "redis://127.0.0.1:40001"
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support import watchdog
from tests.support.binary import server_binary
from tests.support.options import ADMIN, HOST, Options, arguments
from tests.support.ports import free_port
from tests.support.resp import Connection, Reply, ReplyError
from tests.support.wait import eventually
from tests.support.wall_clock import WallClock

__all__ = [
    "HOST",
    "Options",
    "Server",
    "ServerEnded",
]

CANARY = "quorlock:{node}:canary"
_EMPTY = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  if key ~= 'quorlock:{node}:canary' then redis.call('DEL', key) end
end
"""
READY_WITHIN = 20.0  # seconds; a shared machine under a build can be slow

#: Milliseconds; from this age on a memory is used at once, by clients with locks up to the floor.
_OLD = 11_000
#: The age of a memory that was there when no lock could be held.
_AGES = 100 * 365 * 86_400_000


class ServerEnded(RuntimeError):
    """The server was waited for, and its process is not there."""


class Server:
    """One server process; keeps its port and data directory over `restart()`."""

    def __init__(self, options: Options | None = None, *, wait: bool = True) -> None:
        """Starts it; `wait=False` leaves `wait_ready()` to the caller."""
        self.options = options or Options()
        self.directory = Path(tempfile.mkdtemp(prefix="quorlock-server-"))
        self.host = HOST
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._clock = WallClock(self.directory) if self.options.clock else None
        try:
            self._launch()
            if wait:
                self.wait_ready()
        except BaseException:
            self.close()
            raise

    # -- where it is ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Process id; fails when the server does not run."""
        assert self._process is not None, f"server on port {self.port} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there (a paused one is)."""
        return self._process is not None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """URL over TCP, with the password if there is one."""
        return self.url_for(password=self.options.password)

    def url_for(
        self, user: str | None = None, password: str | None = None, db: int | None = None
    ) -> str:
        """URL with the given credentials and database number."""
        login = f"{user or ''}:{quote(password, safe='')}@" if password else ""
        return f"redis://{login}{self.address}" + (f"/{db}" if db is not None else "")

    @property
    def socket_path(self) -> str:
        """Path of the unix socket (short: such paths have a limit of about 100 bytes)."""
        return str(self.directory / "s")

    @property
    def unix_url(self) -> str:
        """URL over the unix socket."""
        return f"unix://{self.socket_path}"

    @property
    def log(self) -> str:
        """What the server has written so far."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- talking to it -------------------------------------------------------------------------

    def command(self, *words: object, db: int | None = None, timeout: float = 5.0) -> Reply:
        """Runs one command as an administrator, on a connection of its own."""
        with Connection((self.host, self.port), timeout) as connection:
            self._authenticate(connection)
            if db is not None:
                connection.command("SELECT", db)
            return connection.command(*words)

    def _wall_clock(self) -> float:
        shown = self.command("TIME")
        assert isinstance(shown, list)
        return float(str(shown[0])) + float(str(shown[1])) / 1e6

    def flush(self) -> None:
        """Deletes all keys of all databases: for clients, the node has forgotten its locks."""
        self.command("FLUSHALL")

    def is_trusted(self) -> bool:
        """Whether the guards of clients hold that it has forgotten nothing in this run."""
        match str(self.command("GET", CANARY)).split():
            case [_, _, run, _, _, _, _, age, *_] if int(age) >= _OLD:
                return f"run_id:{run}" in self.command("INFO", "server")
        return False

    def found(self) -> None:
        """Writes the canary of a node of a new cluster, which has forgotten nothing."""
        info = dict(
            line.split(":", 1) for line in str(self.command("INFO")).splitlines() if ":" in line
        )
        lineage = f"0:{info.get('rdb_last_load_keys_loaded', '0')}"
        clock = self.command("TIME")
        micros = int(clock[0]) * 1_000_000 + int(clock[1])
        words = 2, secrets.randbits(63), info["run_id"], lineage, 0, 1, 10_000, _AGES, "no-history"
        self.command("SET", CANARY, " ".join(map(str, (*words, micros, micros))))

    def empty(self) -> None:
        """Deletes all keys but the canary: for clients, the node goes on as it was."""
        for line in str(self.command("INFO", "keyspace")).splitlines():
            if line.startswith("db"):
                self.command("EVAL", _EMPTY, 0, db=int(line[2:].partition(":")[0]))

    def keys(self, pattern: str = "*") -> dict[str, int]:
        """Names and remaining milliseconds (-1: for ever) of all keys but those of the guards."""
        names = [
            name
            for name in self.command("KEYS", pattern)
            if not name.startswith("quorlock:{node}:")
        ]
        return {name: self.command("PTTL", name) for name in names}

    def _authenticate(self, connection: Connection) -> None:
        if self.options.users:
            connection.command("AUTH", ADMIN, ADMIN)
        elif self.options.password:
            connection.command("AUTH", self.options.password)

    # -- what happens to servers ---------------------------------------------------------------

    def set_clock(self, ahead: float) -> None:
        """Sets its wall clock this many seconds ahead of the true one (`Options.clock`).

        Returns when it goes by it: a server that is awake goes on by what it has read before.
        """
        assert self._clock is not None, "it was started without Options(clock=True)"
        self._clock.step(ahead - self._clock.offset)
        eventually(lambda: abs(self._wall_clock() - time.time() - ahead) < 1)

    def step_clock(self, seconds: float) -> None:
        """Sets its wall clock forward from where it is, or back."""
        assert self._clock is not None, "it was started without Options(clock=True)"
        self._clock.step(seconds)

    def gain_time(self, rate: float) -> None:
        """Its wall clock runs fast by this part from now on (0.05: 5 %), or slow; once."""
        assert self._clock is not None, "it was started without Options(clock=True)"
        self._clock.gain(rate)

    def cut_connections(self) -> None:
        """Ends all connections of clients, as Sentinel does at a failover."""
        self.command("CLIENT", "KILL", "TYPE", "normal")

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered. Returns when it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        # WNOWAIT leaves the state for Popen to collect.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.paused = True

    def resume(self, *, wait: bool = True) -> None:
        """SIGCONT; with `wait`, returns when it answers again."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False
        if wait:
            self.wait_ready()

    def kill(self) -> None:
        """SIGKILL, as by the kernel's out-of-memory killer; nothing is saved."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end."""
        if self.paused:
            self.resume(wait=False)
        self._end(signal.SIGTERM)

    def restart(self, *, wait: bool = True) -> None:
        """Starts it again on the same port and data directory, after a kill if it still runs."""
        self.kill()
        self._launch()
        if wait:
            self.wait_ready()

    def heal(self) -> None:
        """Running and answering again, whatever a test did to it."""
        if self.paused:
            self.resume(wait=False)
        try:
            self.wait_ready()
        except ServerEnded:
            self.restart()

    def close(self) -> None:
        """Ends it and removes its directory; more than once is harmless."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "paused" if self.paused else f"pid {self.pid}" if self.running else "down"
        return f"<Server {self.address} {state}>"

    def wait_ready(self, within: float = READY_WITHIN) -> None:
        """Returns when it answers PING, and is the process that was started."""
        limit = time.monotonic() + within
        pause = 0.002
        while True:
            problem = self._not_ready()
            if problem is None:
                return
            if self._process is None or self._process.poll() is not None:
                raise ServerEnded(f"server on port {self.port} is down:\n{self.log[-2000:]}")
            if time.monotonic() > limit:
                raise TimeoutError(f"{self.address} not ready: {problem}\n{self.log[-2000:]}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def _not_ready(self) -> str | None:
        try:
            self.command("PING", timeout=1.0)
            # Another program may have taken the port first: is this our process that answers?
            if f"process_id:{self.pid}\r\n" not in self.command("INFO", "server"):
                return "another server listens on this port"
        except (OSError, ReplyError) as error:
            return str(error)
        return None

    # -- the process ---------------------------------------------------------------------------

    def _launch(self) -> None:
        attempts = 1 if self.port else 5
        for attempt in range(attempts):
            port = self.port or free_port()
            with (self.directory / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        server_binary(),
                        *arguments(self.options, port, self.directory, self.socket_path),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.directory,
                    env={
                        **os.environ,
                        **self.options.env,
                        **(self._clock.variables if self._clock else {}),
                    },
                    **APART,
                )
            watchdog.register(self._process.pid)
            if self._listens(port):
                self.port = port
                return
            self._end(signal.SIGKILL)
            if attempt == attempts - 1:
                raise RuntimeError(f"server does not start:\n{self.log[-1000:]}")

    def _listens(self, port: int) -> bool:
        """Waits until the port is open; False when the process ended first (port taken)."""
        limit = time.monotonic() + READY_WITHIN
        while self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1.0):
                return True
            if time.monotonic() > limit:
                break
            time.sleep(0.002)
        return False

    def _end(self, signal_number: int) -> None:
        process, self._process, self.paused = self._process, None, False
        if process is None:
            return
        watchdog.forget(process.pid)
        process.send_signal(signal_number)
        process.wait()


#: How servers and programs are started: a Ctrl-C in the terminal is the test runner's to handle. A
#: session of its own would do as well, but the system shares the processor out by sessions: one
#: could outrun the servers, and the bench's idle loops are in this one.
APART: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
)
