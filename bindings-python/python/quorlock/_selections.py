"""Notices the commands by which a connection of redis-py or valkey-py leaves its database.

Owns the classes of a pool's connections. It must not know what follows from such a command.
"""

from __future__ import annotations

import copy
import copyreg
import weakref
from collections.abc import Iterable
from typing import Any, Callable

from ._pools import address_of, elsewhere, idle_of, inner, made, place_of


class Selections:
    """How connections of a pool have left the database of the settings.

    Each command is read before it is sent, by any user of a connection and in any form.
    """

    def __init__(self, pool: Any, database: int) -> None:
        """Raises `TypeError` if the class of connections cannot be extended."""
        # : How they have left it, and the classes that notice it, by those that they extend.
        self._left: set[Left] = set()
        # : Connections of other pools, which have the same class, and in which ways they have left:
        # : some versions of the libraries put every connection that is given back into a pool.
        self._strays: dict[weakref.ref[Any], set[Left]] = {}
        self._made: Callable[[], list[Any]] = lambda: made(pool) + idle_of(pool)
        self._place = place_of(pool)
        # : As its connections have it, also while the server moves: looking is all that most
        # : commands cost.
        self._addresses: set[tuple[Any, Any, Any]] = set()
        self._kinds: dict[Any, Any] = {}
        # : As the settings and the library write the database.
        self._names = {str(database), str(pool.connection_kwargs.get("db") or 0)}
        usual = original(pool.connection_class)
        kind = self._noticing(usual)
        self.is_class_kept: Callable[[], bool] = lambda: pool.connection_class is kind
        self._restore: Callable[[], None] = lambda: setattr(pool, "connection_class", usual)
        #: Has connections that are made from now on watched.
        self.begin: Callable[[], None] = lambda: setattr(pool, "connection_class", kind)

    def watches(self, connection: Any) -> bool:
        """Whether it is noticed what is sent over a connection."""
        return type(inner(connection)) in list(self._kinds.values())

    def watch(self, connection: Any) -> None:
        """Notice what is sent over a connection of the pool."""
        watched = inner(connection)
        if not self.watches(connection):
            watched.__class__ = self._noticing(type(watched))

    def undo(self, connections: Iterable[Any]) -> None:
        """Notice nothing any more, where a connection could not be watched."""
        self._restore()
        for watched in map(inner, connections):
            if type(watched) in self._kinds.values():
                watched.__class__ = original(type(watched))

    def first(self) -> str | None:
        """One of the ways in which a connection has left; `None` if there was none."""
        return self._first(is_moved=False)

    def elsewhere(self) -> str | None:
        """Another place, to which a connection that was used connects."""
        return self._first(is_moved=True)

    def _first(self, *, is_moved: bool) -> str | None:
        if not (self._left or self._strays):  # as usual, with each lock
            return None
        strays = self._strays.copy()  # at once: some may be garbage at any moment
        own = {id(inner(it)) for it in self._made()} if strays else set()
        for stray, left in strays.items():
            if id(stray()) in own:
                self._left |= left
                self._strays.pop(stray, None)
        return min((how for moved, how in list(self._left) if moved == is_moved), default=None)

    def _noticing(self, kind: Any) -> Any:
        """A class as the given one, which notices what is sent."""
        if kind not in self._kinds:
            self._kinds[kind] = _extended(kind, self._note)
        return self._kinds[kind]

    def _note(self, connection: Any, args: Any) -> None:
        # A client takes `"select 3"` and `b"SELECT"`, too.
        words = _text(args[0]).split() if args else []
        command = words[0].lower() if words else ""
        if command == "select":
            words += [_text(it) for it in args[1:]]
        if command == "reset" or (command == "select" and " ".join(words[1:]) not in self._names):
            self._leave(connection, (False, f"has run {command}()"))
        elif str(getattr(connection, "db", None) or 0) not in self._names:  # it begins with that
            self._leave(connection, (False, f"has database {connection.db} as its own"))
        elif (address := address_of(connection)) not in self._addresses:
            outer = next((it for it in self._made() if inner(it) is connection), connection)
            if place := elsewhere(outer, self._place):
                self._leave(connection, (True, place))
            else:
                self._addresses.add(address)

    def _leave(self, connection: Any, left: Left) -> None:
        if any(inner(it) is connection for it in self._made()):
            self._left.add(left)
            return
        try:
            stray = weakref.ref(connection, lambda it: self._strays.pop(it, None))
        except TypeError:  # it may have no references, as those of asyncio in redis-py 4.2
            self._left.add(left)
        else:
            self._strays.setdefault(stray, set()).add(left)


def original(kind: Any) -> Any:
    """A class without what is noticed here."""
    while is_noticing(kind):
        (kind,) = kind.__bases__
    return kind


def is_noticing(kind: Any) -> bool:
    """Whether a class was made here, and not by a program that extends one."""
    return _MARK in vars(kind)


def _extended(kind: Any, note: Callable[[Any, Any], None]) -> Any:
    def send_command(self: Any, *args: Any, **options: Any) -> Any:
        note(self, args)
        return kind.send_command(self, *args, **options)

    def pack_command(self: Any, *args: Any) -> Any:
        note(self, args)
        return kind.pack_command(self, *args)

    def pack_commands(self: Any, commands: Iterable[Any]) -> Any:
        known = list(commands)
        for args in known:
            note(self, args)
        return kind.pack_commands(self, known)

    methods = (send_command, pack_command, pack_commands)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    # Without slots of its own, so that connections can change their class.
    names = {**names, _MARK: True, "__slots__": (), **{it.__name__: it for it in methods}}
    return _metaclass(type(kind))(kind.__name__, (kind,), names)


def _metaclass(usual: Any) -> Any:
    """Of classes that are pickled as those that they extend, so that another process has those."""
    if usual in _METACLASSES.values():
        return usual
    if usual not in _METACLASSES:
        metaclass = type(usual.__name__, (usual,), {})
        copyreg.pickle(metaclass, _reduced)
        _METACLASSES[usual] = metaclass
    return _METACLASSES[usual]


def _reduced(kind: Any) -> str | tuple[Any, ...]:
    # A class is its own copy. One that extends it is found by its name, as usual.
    return (copy.copy, (original(kind),)) if is_noticing(kind) else str(kind.__qualname__)


def _text(value: Any) -> str:
    is_raw = isinstance(value, (bytes, bytearray, memoryview))
    return bytes(value).decode(errors="replace") if is_raw else str(value)


#: A way in which a connection has left: whether that is another place, and its text.
Left = tuple[bool, str]
# : Those of the classes that are made here, by those of the classes that they extend.
_METACLASSES: dict[Any, Any] = {}
# : What only they have.
_MARK = "_quorlock_notices"
