"""Hostile servers for the tests of all suites: they speak Redis until they do harm.

    with HostileServer(attack, after_login=True) as hostile:
        Redlock([hostile.url])

`ATTACKS` are the ways to strike, by name. As a command, for other languages, it prints a line of
JSON with the URLs of one hostile for each, and ends with its input:

    python -m tests.support.hostile_server
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.support.resp import bulk, decode, frame_end

HOST = "127.0.0.1"
GIGABYTE = 1 << 30
Attack = Callable[[socket.socket], None]


class HostileServer:
    """One such server; every connection has a thread of its own."""

    def __init__(self, attack: Attack, *, after_login: bool = False) -> None:
        """Strikes at the first call, or at the first that is about a lock."""
        self.struck = 0
        self._attack = attack
        self._after_login = after_login
        self._listener = socket.create_server((HOST, 0))
        self._connections: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://{HOST}:{self.port}"

    def __enter__(self) -> HostileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections."""
        for each in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        buffer = bytearray()
        # An error means that the other side has hung up, as it should.
        with contextlib.suppress(OSError), connection:
            while chunk := connection.recv(65536):
                buffer += chunk
                while (end := frame_end(buffer)) is not None:
                    words = decode(bytes(buffer[:end]))
                    del buffer[:end]
                    reply = _polite_reply(words) if self._after_login else None
                    if reply is None:
                        self.struck += 1
                        self._attack(connection)
                    else:
                        connection.sendall(reply)


def _polite_reply(words: list[Any]) -> bytes | None:
    match [str(word) for word in words[:2]]:
        case ["ROLE", *_]:
            return b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
        case ["CLIENT", "INFO"]:
            return bulk("id=1 addr=127.0.0.1:99")
        case ["SCRIPT", *_]:
            return bulk("a" * 40)
        case ["EVAL" | "EVALSHA" | "SET" | "ZADD" | "GET" | "TIME", *_]:
            return None
    return b"+OK\r\n"


def says(words: bytes) -> Attack:
    """Says this for every call."""
    return lambda connection: connection.sendall(words)


def leaves(connection: socket.socket) -> None:
    """Hangs up."""
    connection.shutdown(socket.SHUT_RDWR)


def floods(first: bytes, rest: bytes) -> Attack:
    """Says the first once and the second without end, until a gigabyte is through."""

    def strike(connection: socket.socket) -> None:
        block = rest * (65536 // len(rest) + 1)
        connection.sendall(first)
        for _ in range(GIGABYTE // len(block)):
            connection.sendall(block)

    return strike


def drips(words: bytes) -> Attack:
    """Says this at one byte a second."""

    def strike(connection: socket.socket) -> None:
        for byte in words:
            connection.sendall(bytes([byte]))
            time.sleep(1)

    return strike


ATTACKS: dict[str, Attack] = {
    "silence": says(b""),
    "garbage": says(b"\0\xff\xfe\r\n"),
    "errors": says(b"-ERR no\r\n"),
    "wrong types": says(b"+OK\r\n"),
    "wrong numbers": says(b"*4\r\n:1\r\n:-1\r\n:-2\r\n:0\r\n"),
    "a huge text": says(b"$9999999999\r\nx"),
    "a huge array": says(b"*9223372036854775807\r\n"),
    "a deep array": says(b"*1\r\n" * 10_000 + b":1\r\n"),
    "half a reply": says(b"*4\r\n:1\r\n:0"),
    "pushes": floods(b"", b">2\r\n+message\r\n+x\r\n"),
    "an endless line": floods(b"+", b"x"),
    "an endless text": floods(b"$9999999999\r\n", b"x"),
    "hanging up": leaves,
    "drops": drips(b"*4\r\n:1\r\n:7\r\n:-2\r\n:0\r\n"),
}


def main() -> None:
    """The command line."""
    with contextlib.ExitStack() as open_:
        urls = {
            f"{name}, {'later' if after_login else 'at once'}": [
                open_.enter_context(HostileServer(attack, after_login=after_login)).url
                for _ in range(3)
            ]
            for name, attack in ATTACKS.items()
            for after_login in (False, True)
        }
        print(json.dumps(urls), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
