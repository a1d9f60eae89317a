"""Asks the connections of a client of redis-py or valkey-py which databases they use.

Owns what is done with the client's pool. It must not know which database is the right one.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import asyncio


class Connections:
    """The connections that a client had when it was read: each is asked once, while it is idle.

    One that was closed, or is made later, begins with the database of the settings.
    """

    def __init__(self, client: Any, hear: Callable[[Any], None]) -> None:
        """`hear` is called with each answer, or with an error instead of one."""
        pool = client.connection_pool
        self.is_of_asyncio = inspect.iscoroutinefunction(client.execute_command)
        # : A function, so that no password is printed.
        self._pool: Callable[[], Any] = lambda: pool
        self._hear = hear
        self._untold = {id(it): it for it in made(pool) if _is_open(it)}
        # : The last question to the idle ones.
        self.question: Future[None] | None = None
        self._asker: tuple[int, asyncio.AbstractEventLoop | None] = (0, None)

    def are_untold(self) -> bool:
        """Whether the client may use a connection now that has not told its database."""
        # In this order: a question is under way before it takes connections.
        return bool(self._untold) and (bool(self._idle()) or self._is_asking())

    def any_is_open(self) -> bool:
        """Whether a connection is open, idle or not, that has not told its database."""
        self._forget_closed()
        return bool(self._untold)

    def ask(self) -> Future[None]:
        """Ask the idle ones, unless that is under way: asyncio's on the loop that runs."""
        with _beginning:
            if self.question is not None and self._is_asking():
                return self.question
            return self._ask_on_loop() if self.is_of_asyncio else self._ask_aside()

    def _ask_on_loop(self) -> Future[None]:
        import asyncio

        loop = asyncio.get_running_loop()
        self._asker = (os.getpid(), loop)
        self.question = asyncio.run_coroutine_threadsafe(self._ask(), loop)
        return self.question

    def _ask_aside(self) -> Future[None]:
        """Ask on a thread: a client may wait for a server that hangs for as long as it likes."""
        self._asker = (os.getpid(), None)
        self.question = answered = Future[None]()
        answered.set_running_or_notify_cancel()

        def ask() -> None:
            try:
                run(self._ask())
            finally:
                answered.set_result(None)

        try:
            threading.Thread(target=ask, name="quorlock-clients", daemon=True).start()
        except RuntimeError:  # the interpreter ends, or has no thread left
            answered.set_result(None)
        return answered

    async def _ask(self) -> None:
        taken: list[Any] = []
        try:
            # The pool gives the one that came back last: those above are taken, too.
            while self._idle():
                connection = await _attempt(_take, self._pool())
                if isinstance(connection, Exception):
                    break
                taken.append(connection)
            failures = [await _attempt(it.send_command, "CLIENT", "INFO") for it in taken]
            for connection, failure in zip(taken, failures):
                answer = failure or await _attempt(connection.read_response)
                if isinstance(answer, Exception) and not _is_refusal(answer):
                    await self._give_up(connection)
                elif id(connection) in self._untold:
                    self._hear(answer)
                    self._untold.pop(id(connection), None)
        finally:
            for connection in reversed(taken):
                await self._give_up(connection)  # if this was cancelled
                await _attempt(self._pool().release, connection)

    async def _give_up(self, connection: Any) -> None:
        """Close one that has not told its database: the next begins with that of the settings."""
        if id(connection) in self._untold:
            await _attempt(connection.disconnect, *([True] if self.is_of_asyncio else []))
            self._untold.pop(id(connection), None)
            self._hear(TimeoutError("no answer, so that its connection was closed"))

    def _is_asking(self) -> bool:
        pid, loop = self._asker
        is_here = pid == os.getpid() and (loop is None or not loop.is_closed())
        return self.question is not None and not self.question.done() and is_here

    def _idle(self) -> list[Any]:
        self._forget_closed()
        idle = {id(it) for it in _idle(self._pool())} if self._untold else set()
        return [it for key, it in list(self._untold.items()) if key in idle]

    def _forget_closed(self) -> None:
        for key, connection in list(self._untold.items()):
            if not _is_open(connection):
                self._untold.pop(key, None)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
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


def _take(pool: Any) -> Any:
    name = inspect.signature(pool.get_connection).parameters.get("command_name")
    needs_name = name is not None and name.default is inspect.Parameter.empty
    return pool.get_connection("CLIENT") if needs_name else pool.get_connection()


def _is_refusal(error: Exception) -> bool:
    """Whether the server has answered that it does not permit or know the command."""
    return any(base.__name__ == "ResponseError" for base in type(error).__mro__)


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


def _renew() -> None:
    """In a forked child a thread that does not exist there may hold the mutex."""
    global _beginning
    _beginning = threading.Lock()


_beginning = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
# : The names under which their pools keep the connections that they have made.
_MADE = ("_available_connections", "_in_use_connections", "_connections")
