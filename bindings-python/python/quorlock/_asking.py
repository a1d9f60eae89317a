"""Asks the connections of a client of redis-py or valkey-py which databases they use.

Owns what is done with the client's pool, once for all managers that have the client.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ._selections import Selections

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
        self._pool: Callable[[], Any] = lambda: pool
        self.is_of_asyncio = inspect.iscoroutinefunction(pool.connection_class.connect)
        self.database = database_of(pool)
        #: Another database that a connection has told.
        self.found: str | None = None
        #: With what the server has refused the question, for the warning.
        self.refusal: Exception | None = None
        #: Whether a connection was closed in the middle of a question.
        self.has_closed = False
        #: Why the last question was not answered.
        self.why: Exception | None = None
        #: The last question to those that are idle.
        self.question: Future[None] | None = None
        self._asker: tuple[int, asyncio.AbstractEventLoop | None] = (0, None)
        #: The warnings that were given for this client.
        self.warned: set[str] = set()
        # : What is called when some have told, as long as others keep it.
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._pid = os.getpid()
        self._untold: dict[int, Any] = {}
        self.selections = Selections(pool)
        self.watch_all()

    def are_untold(self) -> bool:
        """Whether the client may use a connection now that has not told its database."""
        self._forget_closed()
        # In this order: a question is under way before it takes connections.
        return bool(self._untold) and (bool(self._idle()) or self.is_asking())

    def any_is_open(self) -> bool:
        """Whether a connection is open, idle or not, that has not told its database."""
        self._forget_closed()
        return bool(self._untold)

    def listen(self, listener: Listener) -> None:
        """Have it called, as long as others keep it, when some have told their database."""
        with _changing:
            self._listeners.add(listener)

    def watch_all(self) -> None:
        """Watch those that were being made when the client was given: they have to tell, too."""
        self._forget_closed()
        for connection in made(self._pool()):
            if self.selections.watch(connection):
                self._untold[id(connection)] = connection

    def ask(self) -> Future[None]:
        """Ask the idle ones, unless that is under way: asyncio's on the loop that runs."""
        with _changing:
            if self.question is not None and self.is_asking():
                return self.question
            if self.is_of_asyncio:
                self.question = self._begin_on_loop()
                return self.question
            self._asker = (os.getpid(), None)
            self.question = question = Future[None]()
        try:
            self._begin_aside(question)  # without the mutex: with gevent, others may run meanwhile
        except BaseException:  # of a signal handler
            _end(question)
            raise
        return question

    def _begin_on_loop(self) -> Future[None]:
        import asyncio

        loop = asyncio.get_running_loop()
        self._asker = (os.getpid(), loop)
        return asyncio.run_coroutine_threadsafe(self._ask(), loop)

    def _begin_aside(self, answered: Future[None]) -> None:
        """A thread asks: a client may wait for a server that hangs without an end."""
        answered.set_running_or_notify_cancel()

        def ask() -> None:
            try:
                _run(self._ask())
            finally:
                _end(answered)

        try:
            threading.Thread(target=ask, name="quorlock-clients", daemon=True).start()
        except RuntimeError:  # the interpreter ends, or has no thread left
            _end(answered)

    async def _ask(self) -> None:
        """One after the other: a program that uses the client misses one at a time."""
        for connection in self._idle():
            if not _take(self._pool(), connection):
                continue  # the program uses it now
            is_answered = False
            try:
                await _attempt(connection.send_command, "CLIENT", "INFO")
                answer = await _attempt(connection.read_response)
                is_answered = self._judge(connection, answer)
            finally:
                if not is_answered:  # this was cancelled, or the reply is to something else
                    self.has_closed = True
                    await _attempt(connection.disconnect, *([True] if self.is_of_asyncio else []))
                await _attempt(self._pool().release, connection)
        with _changing:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.hear()

    def _judge(self, connection: Any, answer: Any) -> bool:
        """Take an answer; returns whether it is one."""
        if isinstance(answer, Exception):
            # After any other, the library has closed the connection, or it is asked again.
            self.why = answer
            self.has_closed |= "Timeout" in type(answer).__name__
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

    def is_asking(self) -> bool:
        """Whether a question is under way, in this process and on a loop that is open."""
        pid, loop = self._asker
        is_here = pid == os.getpid() and (loop is None or not loop.is_closed())
        return self.question is not None and not self.question.done() and is_here

    def _idle(self) -> list[Any]:
        self._forget_closed()
        idle = {id(it) for it in _idle(self._pool())} if self._untold else set()
        return [it for key, it in list(self._untold.items()) if key in idle]

    def _forget_closed(self) -> None:
        if self._pid != os.getpid():  # the connections are the parent's
            self._pid = os.getpid()
            self._untold.clear()
        for key, connection in list(self._untold.items()):
            if not _is_open(connection):
                self._untold.pop(key, None)


def connections_of(client: Any) -> Connections:
    """The connections of a client: the same for all managers that have it."""
    pool = client.connection_pool
    with _changing:
        known: Connections | None = vars(pool).get(_ATTRIBUTE)
        if known is None:
            known = Connections(pool)
            setattr(pool, _ATTRIBUTE, known)
        return known


def database_of(pool: Any) -> int:
    """The database of a pool's settings."""
    return int(pool.connection_kwargs.get("db") or 0)


def _end(answered: Future[None]) -> None:
    with contextlib.suppress(InvalidStateError):  # it has ended already
        answered.set_result(None)


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends, as those of this module do for blocking clients."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for an event loop")


async def _attempt(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call of either kind, or its error."""
    try:
        result = call(*arguments)
        return await result if inspect.isawaitable(result) else result
    except Exception as error:  # noqa: BLE001 - whatever their library raises
        return error


def _take(pool: Any, connection: Any) -> bool:
    """Take an idle connection out of its pool, so that its `release` puts it back."""
    getattr(pool, "_checkpid", bool)()  # a forked child makes connections of its own
    idle = getattr(pool, "_available_connections", None)
    mutex: Any = getattr(pool, "_lock", None) if idle is not None else pool.pool.mutex
    with mutex if hasattr(mutex, "__enter__") else contextlib.nullcontext():
        try:
            (pool.pool.queue if idle is None else idle).remove(connection)
        except ValueError:
            return False
        if idle is not None:
            pool._in_use_connections.add(connection)
        return True


def _is_refusal(error: Exception) -> bool:
    """Whether the server has answered that it does not permit or know the command."""
    names = {base.__name__ for base in type(error).__mro__}
    is_unknown = re.match(r"(ERR )?unknown (sub)?command", str(error), re.IGNORECASE) is not None
    return "NoPermissionError" in names or ("ResponseError" in names and is_unknown)


def _idle(pool: Any) -> list[Any]:
    idle = getattr(pool, "_available_connections", None)
    if idle is None:
        idle = [it for it in list(pool.pool.queue) if it is not None]  # of a BlockingConnectionPool
    return list(idle)


def made(pool: Any) -> list[Any]:
    """The connections that a pool has made, in use or idle."""
    return [it for pile in _MADE for it in list(getattr(pool, pile, ()))]


def _is_open(connection: Any) -> bool:
    connection = getattr(connection, "_conn", connection)  # of one with a cache
    is_connected = getattr(connection, "is_connected", None)
    if isinstance(is_connected, bool):
        return is_connected
    return getattr(connection, "_sock", None) is not None


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
# : The names under which their pools keep the connections that they have made.
_MADE = ("_available_connections", "_in_use_connections", "_connections")
# : Of a pool: what is known of its connections.
_ATTRIBUTE = "_quorlock_connections"
