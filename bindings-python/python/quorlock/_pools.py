"""Reads the connection pools of redis-py and valkey-py, and takes connections out of them.

Owns what differs between their pools, connections and versions, and which private members it reads,
since no public one shows the connections. It must not know why a connection is wanted.
"""

from __future__ import annotations

import contextlib
import inspect
import socket
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


def database_of(pool: Any) -> int:
    """The database of a pool's settings."""
    return int(pool.connection_kwargs.get("db") or 0)


def settings_of(pool: Any) -> Mapping[str, Any]:
    """The settings of a pool's connections."""
    settings = {**pool.connection_kwargs}  # at once: another thread may learn that the server moves
    if settings.get(_MOVES) is None:
        return settings
    # Its server moves, and has told so: redis-py changes the host for that time.
    return {**settings, "host": settings.get("orig_host_address")}


def place_of(pool: Any) -> dict[str, Any]:
    """Where a pool's settings say that the server is."""
    settings = settings_of(pool)
    return {name: settings.get(name) or usual for name, usual in _PLACE.items()}


def address_of(connection: Any) -> tuple[Any, Any, Any]:
    """The host, the port and the path that a connection has as its own."""
    host, port = getattr(connection, "host", None), getattr(connection, "port", None)
    return host, port, getattr(connection, "path", None)


def elsewhere(connection: Any, place: dict[str, Any]) -> str | None:
    """Where a connection of a pool connects to, if that is not the place of the settings."""
    own = dict(zip(_ADDRESS, address_of(inner(connection))))
    if any(getattr(it, _MOVES, None) is not None for it in (connection, inner(connection))):
        own["host"] = inner(connection).orig_host_address  # as above
    moved = [it for it in _ADDRESS if own[it] and _plain(own[it]) != _plain(place[it])]
    return ", ".join(f"{it} {own[it]}" for it in moved) or None


def _plain(value: Any) -> str:
    """A setting as the library reads it: a port may be a text or an enum that it converts."""
    try:
        return str(int(value))
    except (TypeError, ValueError):
        return str(value)


def is_of_asyncio(kind: Any) -> bool:
    """Whether a class of connections needs an event loop: one of its methods may be wrapped."""
    return any(inspect.iscoroutinefunction(getattr(kind, it, None)) for it in _COROUTINES) or any(
        ".asyncio." in f"{base.__module__}." for base in kind.__mro__ if is_theirs(base)
    )


def is_theirs(kind: type) -> bool:
    """Whether a class belongs to the client's library."""
    return kind.__module__.partition(".")[0] in _LIBRARIES


def is_handled(pool: Any) -> bool:
    """Whether a pool keeps its connections as the pools of their libraries do."""
    if isinstance(getattr(pool, "_available_connections", None), list):
        return isinstance(getattr(pool, "_in_use_connections", None), set)
    queue = getattr(pool, "pool", None)  # of a BlockingConnectionPool
    if not hasattr(getattr(queue, "mutex", None), "__enter__"):
        # gevent and eventlet put queues of their own in the place of Python's: nothing can come
        # between while an item is taken, as no greenlet waits in it.
        return _is_of_hub(queue) and isinstance(getattr(queue, "queue", None), (list, deque))
    return hasattr(queue, "queue")


def _is_of_hub(queue: Any) -> bool:
    return any(base.__module__.partition(".")[0] in _HUBS for base in type(queue).__mro__)


def made(pool: Any) -> list[Any]:
    """The connections that a pool has made, in use or idle."""
    return [it for pile in _MADE for it in list(getattr(pool, pile, ()))]


def idle_of(pool: Any) -> list[Any]:
    """The connections that nobody uses, the one that is used next at the end."""
    return [it for it in list(_pile(pool)) if it is not None]


def take(pool: Any, connection: Any) -> bool:
    """Take an idle connection out of its pool, so that its `release` puts it back."""
    getattr(pool, "_checkpid", bool)()  # a forked child makes connections of its own
    in_use = getattr(pool, "_in_use_connections", None)
    with _mutex(pool):
        try:
            _pile(pool).remove(connection)
        except ValueError:
            return False
        if in_use is not None:
            in_use.add(connection)
        return True


def spare(pool: Any, ours: list[Any]) -> tuple[int, int]:
    """How many connections may be out of a pool at a time usually, and how many at the most.

    A program fails at once that finds none in a bounded pool; in a blocking one it waits. `ours`
    are out already, or will be.
    """
    in_use = getattr(pool, "_in_use_connections", None)
    if in_use is None:
        pile = list(_pile(pool))  # with a `None` for each that can be made
        free = len(pile) + sum(it not in pile for it in ours)
    else:
        free = pool.max_connections - len(in_use) + sum(it in in_use for it in ours)
    is_blocking = any("Blocking" in base.__name__ for base in type(pool).__mro__)
    usually = min(_AT_ONCE, free // (2 if is_blocking else _TENTH))
    return max(1, usually), max(2, free // 2)


def is_open(connection: Any) -> bool:
    """Whether a connection is connected, and can still be used by its loop."""
    connection = inner(connection)
    loop = loop_of(connection)
    if loop is not None and loop.is_closed():
        return False
    is_connected = getattr(connection, "is_connected", None)
    if isinstance(is_connected, bool):
        return is_connected
    return getattr(connection, "_sock", None) is not None


def loop_of(connection: Any) -> asyncio.AbstractEventLoop | None:
    """The loop that reads an open connection of asyncio."""
    writer = getattr(connection, "_writer", None)
    loop: asyncio.AbstractEventLoop | None = getattr(writer, "_loop", None)
    return loop


def is_usable(connection: Any) -> bool:
    """Whether nothing that a connection needs stands still: its loop, if it has one."""
    loop = loop_of(connection)
    return loop is None or loop.is_running()


def inner(connection: Any) -> Any:
    """The connection itself, of one with a cache."""
    return getattr(connection, "_conn", connection)


def shut_down(connection: Any) -> None:
    """Have a blocking connection end, which another thread reads: that one closes it then."""
    raw: Any = getattr(inner(connection), "_sock", None)
    # The socket below, without TLS, which is not made for two threads.
    kind: Any = socket.socket if isinstance(raw, socket.socket) else type(raw)
    with contextlib.suppress(OSError, AttributeError):  # it has ended already
        kind.shutdown(raw, socket.SHUT_RDWR)


@contextlib.contextmanager
def _mutex(pool: Any) -> Iterator[None]:
    is_list = hasattr(pool, "_available_connections")
    mutex: Any = getattr(pool, "_lock", None) if is_list else getattr(pool.pool, "mutex", None)
    with mutex if hasattr(mutex, "__enter__") else contextlib.nullcontext():
        yield


def _pile(pool: Any) -> Any:
    idle = getattr(pool, "_available_connections", None)
    return pool.pool.queue if idle is None else idle  # the second of a BlockingConnectionPool


_LIBRARIES = {"redis", "valkey", "aioredis"}
_HUBS = {"gevent", "eventlet"}
_PLACE = {"host": "localhost", "port": 6379, "path": None, "ssl": None}
# : What a connection has of it: the host and the port, or the path.
_ADDRESS = ("host", "port", "path")
# : What the settings have while the server moves, and a connection, or the cache around it.
_MOVES = "maintenance_notification_hash"
_COROUTINES = ("connect", "_connect", "on_connect", "disconnect", "read_response")
# : The names under which their pools keep the connections that they have made.
_MADE = ("_available_connections", "_in_use_connections", "_connections")
# : How many connections of a client are asked at the same time.
_AT_ONCE = 8
# : The part of a bounded pool that is asked at the same time.
_TENTH = 10
