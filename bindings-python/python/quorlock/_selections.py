"""Notices the commands by which a connection of redis-py or valkey-py leaves its database.

Owns the class of a pool's connections. It must not know what follows from such a command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

from ._asking import made


def watch(client: Any) -> Callable[[], str | None]:
    """Start to notice; returns what tells why the client's database is no longer known, if it is.

    Whoever uses a connection of the pool, and however: each command is read before it is sent.
    """
    pool = client.connection_pool
    kind = pool.connection_class
    if not hasattr(kind, _LEFT):  # all managers share it
        kind = _noticing(kind)
        pool.connection_class = kind
        for connection in made(pool):
            getattr(connection, "_conn", connection).__class__ = kind  # `_conn`: one with a cache
    left: set[str] = getattr(kind, _LEFT)

    def reason() -> str | None:
        if left:
            return f"has run {min(left)}(), on one of its connections"
        if client.connection_pool is not pool:
            return "has another connection pool now"
        return None if pool.connection_class is kind else "has another class of connections now"

    return reason


def _noticing(kind: Any) -> Any:
    """A class as the given one, which collects the commands that leave the database."""
    left: set[str] = set()

    def send_command(self: Any, *args: Any, **options: Any) -> Any:
        _note(self, args, left)
        return kind.send_command(self, *args, **options)

    def pack_command(self: Any, *args: Any) -> Any:
        _note(self, args, left)
        return kind.pack_command(self, *args)

    def pack_commands(self: Any, commands: Iterable[Any]) -> Any:
        known = list(commands)
        for args in known:
            _note(self, args, left)
        return kind.pack_commands(self, known)

    methods = (send_command, pack_command, pack_commands)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, _LEFT: left}
    # Without slots of its own, so that connections can change their class.
    names = {**names, "__slots__": (), **{it.__name__: it for it in methods}}
    return type(kind.__name__, (kind,), names)


def _note(connection: Any, args: Any, left: set[str]) -> None:
    # A client takes `"select 3"` and `b"SELECT"`, too.
    words = _text(args[0]).split() if args else []
    command = words[0].lower() if words else ""
    if command == "select":
        words += [_text(it) for it in args[1:]]
    if command == "reset" or (command == "select" and words[1:] != [str(connection.db)]):
        left.add(command)


def _text(value: Any) -> str:
    is_raw = isinstance(value, (bytes, bytearray, memoryview))
    return bytes(value).decode(errors="replace") if is_raw else str(value)


# : The attribute of such a class with what was collected.
_LEFT = "_quorlock_left"
