"""What the guards see of a scripted node: who the server is, its canary, its notes and its clock.
One site stands behind the nodes of several clients. Knows no lock. What a look does there, a real
server does for it, by the script of the library and the site's own clock.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import socket
import time
from pathlib import Path

from tests.support.resp import bulk, encode, frame_end, integers
from tests.support.servers import Server

CHECKUP = (Path(__file__).parents[2] / "core/client/src/scripts/checkup.lua").read_text()
_TIME = "redis.call('TIME')"
assert _TIME in CHECKUP
_numbers = itertools.count(1)


class Site:
    """A server without keys, which may forget and set its clock."""

    def __init__(self) -> None:
        """A new server."""
        self.ahead = 0.0
        self.name = f"site:{next(_numbers)}"
        self._keys = f"{self.name}:canary", f"{self.name}:notes"
        self.restart()

    def restart(self) -> None:
        """It is started anew, with nothing."""
        self.run = f"{next(_numbers):040x}"
        self.flush()

    def flush(self) -> None:
        """Its keys are deleted."""
        _store().call("DEL", *self._keys)

    @property
    def canary(self) -> str:
        """What stands in its canary key; empty if nothing does."""
        reply = _store().call("GET", self._keys[0])
        return "" if reply.startswith(b"$-1") else reply.split(b"\r\n")[1].decode()

    def stands(self, relied: str) -> bool:
        """Whether a grant by script finds what it relies on: the beats, and the beginning."""
        if not relied:
            return True
        least, prefix = relied.split(" ", 1)
        canary = self.canary
        return canary.startswith(prefix) and int(canary[len(prefix) :].split()[0]) >= int(least)

    @property
    def micros(self) -> int:
        """What its clock shows, in microseconds since 1970."""
        return int((time.time() + self.ahead) * 1_000_000)

    def info(self) -> bytes:
        """The reply to INFO."""
        return bulk(f"# Server\r\nrun_id:{self.run}\r\nmaster_replid:{self.run}\r\n")

    def check_up(self, words: tuple[str, ...]) -> bytes:
        """Does what checkup.lua does; see there for the arguments."""
        seconds, micros = divmod(self.micros, 1_000_000)
        script = CHECKUP.replace(_TIME, f"{{{seconds}, {micros}}}")
        return _store().call("EVAL", script, 2, *self._keys, *words)

    def forgot(self) -> bytes:
        """The reply to a grant that wants another canary than there is."""
        return integers([5, 0, -2, self.micros])


class _Store:
    """A connection to the server that keeps the keys of all sites."""

    def __init__(self) -> None:
        self._server = Server()
        atexit.register(self._server.close)
        self._socket = socket.create_connection((self._server.host, self._server.port), 5)

    def call(self, *words: object) -> bytes:
        """The reply to a command, as it came."""
        self._socket.sendall(encode(*words))
        buffer = b""
        while frame_end(buffer) is None:
            buffer += self._socket.recv(65536)
        assert not buffer.startswith(b"-"), buffer
        return buffer


@functools.cache
def _store() -> _Store:
    return _Store()
