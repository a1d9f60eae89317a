"""The smallest possible Redis client, and the framing that the fault proxy needs.

Its own, because the harness must neither depend on a client library under test nor share its bugs.
Knows the protocol's types and nothing about locks.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

Reply = Any  # str, int, None, bytes or a list of these


class ReplyError(Exception):
    """The server answered with an error."""


def encode(*words: object) -> bytes:
    """One command as the server reads it: an array of bulk strings."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    head = b"*%d\r\n" % len(parts)
    return head + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def integers(numbers: Iterable[int]) -> bytes:
    """An array of integers, as scripts reply."""
    items = [b":%d\r\n" % number for number in numbers]
    return b"*%d\r\n" % len(items) + b"".join(items)


def bulk(text: str) -> bytes:
    """A bulk string."""
    return b"$%d\r\n%s\r\n" % (len(text.encode()), text.encode())


def frame_end(data: bytes | bytearray, start: int = 0) -> int | None:
    """Where the protocol item that begins at `start` ends; None while it is incomplete."""
    line_end = data.find(b"\r\n", start)
    if line_end < 0:
        return None
    kind, after = data[start : start + 1], line_end + 2
    if kind in b"$=!":
        length = int(data[start + 1 : line_end])
        after += length + 2 if length >= 0 else 0
        return after if after <= len(data) else None
    if kind in b"*~>%|":
        count = int(data[start + 1 : line_end])
        if kind in b"%|":
            count *= 2
        if kind == b"|":
            count += 1  # an attribute stands before the item that it describes
        for _ in range(max(count, 0)):
            end = frame_end(data, after)
            if end is None:
                return None
            after = end
    return after


class Connection:
    """One blocking connection, for one thread."""

    def __init__(self, address: tuple[str, int] | str, timeout: float = 5.0) -> None:
        """Connects to (host, port) or to the path of a unix socket."""
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        self._buffer = bytearray()
        try:
            self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def command(self, *words: object) -> Reply:
        """Sends one command and returns its reply; raises ReplyError for an error reply."""
        self._socket.sendall(encode(*words))
        return self.read()

    def read(self) -> Reply:
        """The next reply, also one that nobody asked for (a published message)."""
        while (end := frame_end(self._buffer)) is None:
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionError("the server closed the connection")
            self._buffer += chunk
        frame = bytes(self._buffer[:end])
        del self._buffer[:end]
        value = decode(frame)
        if isinstance(value, ReplyError):
            raise value
        return value

    def close(self) -> None:
        """Closes the socket; more than once is harmless."""
        self._socket.close()


def decode(frame: bytes) -> Reply:
    """The value of one whole protocol item."""
    return _decode(frame, 0)[0]


def _decode(data: bytes, start: int) -> tuple[Reply, int]:
    line_end = data.index(b"\r\n", start)
    kind, body, after = data[start : start + 1], data[start + 1 : line_end], line_end + 2
    if kind == b"+":
        return body.decode(), after
    if kind == b"-":
        return ReplyError(body.decode()), after
    if kind == b":":
        return int(body), after
    if kind == b"$":
        length = int(body)
        if length < 0:
            return None, after
        return data[after : after + length].decode("utf-8", "replace"), after + length + 2
    if kind == b"*":
        items: list[Reply] = []
        for _ in range(int(body)):
            item, after = _decode(data, after)
            items.append(item)
        return (items if int(body) >= 0 else None), after
    raise ValueError(f"unexpected reply type {kind!r}")
