"""Knows which connections of a client of redis-py or valkey-py have told their databases.

Owns what is known of a client's pool, once for all managers that have the client.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ._pools import database_of, idle_of, is_of_asyncio, is_open, is_usable, loop_of, made, place_of
from ._questions import Question
from ._selections import Selections, original

if TYPE_CHECKING:
    import asyncio


class Listener(Protocol):
    """Who waits for what a client tells."""

    def hear(self) -> None:
        """A question has ended."""


class Connections:
    """The connections of a client, as they were when it was given as a node first.

    Each is asked once, while it is idle. One that was closed, or is made later, begins with the
    database of the settings; a `SELECT` after that is noticed when it is sent.
    """

    def __init__(self, pool: Any) -> None:
        # : Functions, so that no password is printed.
        self.pool: Callable[[], Any] = lambda: pool
        self.is_of_asyncio = is_of_asyncio(original(pool.connection_class))
        self.database = database_of(pool)
        #: Where the server was when the client was given.
        self.place = place_of(pool)
        #: Another database that a connection has told.
        self.found: str | None = None
        #: With what the server has refused the question, for the warning.
        self.refusal: Exception | None = None
        #: Whether a connection was closed in the middle of a question.
        self.has_closed = False
        #: Why the last question was not answered.
        self.why: str | None = None
        #: The warnings that were given for this client.
        self.warned: set[str] = set()
        # : What is called when some have told, as long as others keep it.
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._questions: list[Question] = []
        self._pid = os.getpid()
        self._untold: dict[int, Any] = {}
        self._given_at = time.monotonic()
        self.selections = Selections(pool, self.database)
        self._has_begun = False

    def begin(self) -> None:
        """Watch the pool, unless that was begun before. A signal handler may interrupt and do it.

        Raises `TypeError` if a connection cannot be watched.
        """
        if self._has_begun:
            return
        try:
            self.selections.begin()
            self._watch_made()
        except TypeError:
            self.selections.undo(made(self.pool()))
            raise
        self._has_begun = True

    def __reduce__(self) -> tuple[Any, ...]:
        """With its pool, as a copy that knows nothing."""
        return bool, ()

    def are_untold(self) -> bool:
        """Whether the client may use a connection now that has not told its database."""
        # In this order: a question is under way before it takes connections, and it may end without
        # an answer once it has given them back.
        looks = (self.untold, self.is_asking, self.untold)
        return bool(self._untold) and any(look() for look in looks)

    def any_is_open(self) -> bool:
        """Whether a connection is open, idle or not, that has not told its database."""
        self._forget_closed()
        return bool(self._untold)

    def listen(self, listener: Listener) -> None:
        """Have it called, as long as others keep it, when some have told their database."""
        with _changing:
            self._listeners.add(listener)

    def watch_all(self) -> None:
        """Watch those that were being made when the client was given: they have to tell, too.

        They are in the pool's piles soon. One that is put there later than `_MADE_BY` seconds is
        not noticed, whatever it selects.
        """
        if time.monotonic() - self._given_at > _MADE_BY:
            return
        self._watch_made()

    def _watch_made(self) -> None:
        for connection in made(self.pool()):
            if self.selections.watches(connection):
                continue
            # First: a signal handler that comes now has to ask it, too.
            self._untold[id(connection)] = connection
            self.selections.watch(connection)
            # Only then: until now another thread could open it, and select what nobody noticed, and
            # before that a caller could forget it as one that is closed.
            if is_open(connection):
                self._untold[id(connection)] = connection
            else:
                self._untold.pop(id(connection), None)

    def ask(self) -> list[Question]:
        """Ask the idle ones, unless that is under way: asyncio's on their loops, if these run."""
        begun: list[Question] = []
        try:
            with _changing:
                self._forget_closed()
                self._questions = [it for it in self._questions if not it.is_over()]
                loops = self._loops() - {it.loop for it in self._questions}
                begun += [Question(self, loop) for loop in loops]
                self._questions += begun
                under_way = [it for it in self._questions if it.is_under_way()]
            # Without the mutex: with gevent, others may run meanwhile. Also those of a caller that
            # this signal handler has interrupted.
            for question in under_way:
                question.begin()
        except BaseException:  # of a signal handler: nobody else begins them
            for question in begun:
                question.stop()
            raise
        return under_way

    def _loops(self) -> set[asyncio.AbstractEventLoop | None]:
        if not self.is_of_asyncio:
            return {None}
        import asyncio

        return {loop_of(it) or asyncio.get_running_loop() for it in self.untold()}

    def is_asking(self) -> bool:
        """Whether a question is under way, in this process and on a loop that runs."""
        return any(it.is_under_way() for it in list(self._questions))

    def untold(self) -> list[Any]:
        """The idle connections that have not told yet, and which the client can use now."""
        self._forget_parents()
        idle = idle_of(self.pool()) if self._untold else []
        return [it for it in idle if id(it) in self._untold and is_open(it) and is_usable(it)]

    def judge(self, connection: Any, answer: Any) -> bool:
        """Take an answer; returns whether it is one."""
        if isinstance(answer, Exception):
            # After any other, the library has closed the connection, or it is asked again.
            self.why = type(answer).__name__
            if not _is_refusal(answer):
                return True
            self.refusal = answer
        else:
            told = re.search(r"(?:^| )db=(\d+)", str(answer))
            if told is None:
                return False
            if int(told[1]) != self.database:
                self.found = told[1]
        self._untold.pop(id(connection), None)
        return True

    def close_one(self) -> None:
        """A connection was closed in the middle of its question."""
        self.has_closed = True

    def fail(self, why: str) -> None:
        """Nobody can ask."""
        self.why = why

    def end(self) -> None:
        """A question has ended: let the managers look at what is known by now."""
        with _changing:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.hear()

    def _forget_parents(self) -> None:
        if self._pid != os.getpid():  # this is a forked child
            self._pid = os.getpid()
            self._untold.clear()

    def _forget_closed(self) -> None:
        self._forget_parents()
        for key, connection in list(self._untold.items()):
            if not is_open(connection):
                self._untold.pop(key, None)


def connections_of(client: Any) -> Connections:
    """The connections of a client: the same for all managers that have it."""
    pool = client.connection_pool
    with _changing:
        known: Any = vars(pool).get(_ATTRIBUTE)
        if not isinstance(known, Connections) or known.pool() is not pool:  # it was copied
            if known is not None:
                vars(pool).pop(_ATTRIBUTE, None)
            # At once: a signal handler may have put others there meanwhile.
            known = vars(pool).setdefault(_ATTRIBUTE, Connections(pool))
        try:
            known.begin()
        except TypeError:
            vars(pool).pop(_ATTRIBUTE, None)
            raise
        connections: Connections = known
        return connections


def _is_refusal(error: Exception) -> bool:
    """Whether the server has answered that it does not permit or know the command."""
    names = {base.__name__ for base in type(error).__mro__}
    is_unknown = re.match(r"(ERR )?unknown (sub)?command", str(error), re.IGNORECASE) is not None
    return "NoPermissionError" in names or ("ResponseError" in names and is_unknown)


def changing() -> threading.RLock:
    """The mutex for what is known of clients. It may be taken again, by a signal handler."""
    return _changing


def _renew() -> None:
    """In a forked child a thread that does not exist there may hold the mutex."""
    global _changing
    _changing = threading.RLock()


_changing = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
# : How long connections may take that were being made when their client was given, in seconds.
_MADE_BY = 10.0
# : Of a pool: what is known of its connections.
_ATTRIBUTE = "_quorlock_connections"
