"""Asks idle connections of a client which databases they use, several at the same time.

Owns which are asked when, by threads or tasks, and which are taken for dead. It must not know what
an answer means.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ._pools import idle_of, is_open, loop_of, shut_down, spare, take

if TYPE_CHECKING:
    import asyncio


class Asker(Protocol):
    """Who asks: the connections of one pool."""

    def pool(self) -> Any:
        """The pool."""

    def untold(self) -> list[Any]:
        """The idle connections that have not told yet."""

    def judge(self, connection: Any, answer: Any) -> bool:
        """Take an answer, or an error; returns whether it is one to the question."""

    def close_one(self) -> None:
        """A connection was closed in the middle of its question."""

    def fail(self, why: str) -> None:
        """Nobody can ask."""

    def end(self) -> None:
        """The question has ended."""


class Asked:
    """A connection that is asked."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        #: When the question was sent.
        self.sent_at: float | None = None
        #: For how long it is not answered. A standstill of the process counts as one step.
        self.silence = 0.0
        #: For how long since another has answered that was asked later.
        self.outlasted = 0.0
        #: Whether it was taken for dead.
        self.is_cut = False
        #: From then on nobody may take it for dead: the program can have it again.
        self.is_over = False
        #: How to end its question, for one of asyncio.
        self.cancel: Callable[[], Any] | None = None


class Question:
    """The question to all connections of a client that are idle; those of asyncio, of one loop.

    One that is silent for a second is taken for dead if another has answered that was asked later.
    To know that, others are asked beside it, the one that was used last first. If none answers, the
    server hangs, and all are waited for.
    """

    def __init__(self, asker: Asker, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        #: Done once no connection is asked any more.
        self.answered: Future[None] = Future()
        self.answered.set_running_or_notify_cancel()
        self._asker = asker
        self._pid = os.getpid()
        self._begins_no_more = False
        # : Looked at without a mutex, which a caller may hold that a handler has interrupted.
        self._has_ended = False
        # : By their identity: those that were asked already, and those that are asked now.
        self._asked: dict[int, Any] = {}
        self._under_way: dict[int, Asked] = {}
        # : When the last of those that have answered was asked.
        self._proof = float("-inf")
        self._stepped_at = time.monotonic()
        self._mutex = threading.Lock()
        # : What wakes the callers that wait: plain locks, which are held by nobody while a signal
        # : handler runs, that may wait as well.
        self._wakers: list[Any] = []
        # : Held once somebody asks: a signal handler may come while a thread is started for that.
        self._once = threading.Lock()
        self._waits: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}

    def is_under_way(self) -> bool:
        """Whether it can be answered now: its loop runs."""
        return not self.is_over() and (self.loop is None or self.loop.is_running())

    def is_over(self) -> bool:
        """Whether it has ended, or nobody can answer it any more."""
        if self._pid != os.getpid():  # this first: another thread may have held a mutex of the rest
            return True
        return self._has_ended or (self.loop is not None and self.loop.is_closed())

    def on_loop(self) -> asyncio.Future[None]:
        """Its end, for the loop that runs: the same for all calls, so that they leave nothing."""
        import asyncio

        loop = asyncio.get_running_loop()
        if loop not in self._waits:
            waiting = self._waits[loop] = loop.create_future()

            def end() -> None:
                if not waiting.done():
                    waiting.set_result(None)

            def wake(_: Future[None]) -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(end)

            self.answered.add_done_callback(wake)
        return self._waits[loop]

    def begin(self) -> None:
        """Ask, and return at once: a client may wait for a server that hangs without an end."""
        if self._once.locked():
            return
        try:
            if self.loop is None:
                self._start(self._ask_by_threads)
            elif self._once.acquire(blocking=False):
                self._begin_on(self.loop)
        except RuntimeError as error:  # the loop is closed, or the interpreter ends
            self.stop(error)

    def _begin_on(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asking = self._ask_by_tasks()
        try:
            begun = asyncio.run_coroutine_threadsafe(asking, loop)
        except BaseException:
            asking.close()
            self._once.release()  # others may begin it
            raise
        begun.add_done_callback(lambda _: self.stop())  # if it was cancelled before it began

    def _start(self, ask: Callable[[], None]) -> None:
        if sys.is_finalizing():  # `start` would wait for a thread that never runs
            raise RuntimeError("the interpreter ends")
        threading.Thread(target=ask, name="quorlock-clients", daemon=True).start()

    def _ask_by_threads(self) -> None:
        if not self._once.acquire(blocking=False):
            return  # it was begun by a signal handler, too, while another thread began it
        has_ended = threading.Event()

        def ask(asked: Asked) -> None:
            try:
                _run(self._ask(asked))
            finally:
                self._end(asked)
                has_ended.set()

        try:
            while True:
                is_alone = not self._under_way  # before it is chosen: others may end meanwhile
                if asked := self._next():
                    self._start_one(ask, asked)
                elif is_alone:
                    break
                else:
                    has_ended.wait(_STEP)
                    has_ended.clear()
        finally:
            self.stop()

    def _start_one(self, ask: Callable[[Asked], None], asked: Asked) -> None:
        try:
            self._start(lambda: ask(asked))
        except RuntimeError as error:
            self._end(asked)
            self.stop(error)

    async def _ask_by_tasks(self) -> None:
        import asyncio

        tasks: set[asyncio.Task[None]] = set()
        try:
            while (asked := self._next()) or self._under_way:
                if asked is None:
                    _, tasks = await asyncio.wait(tasks, timeout=_STEP, return_when=FIRST_COMPLETED)
                else:
                    tasks.add(self._task(asked))
        finally:
            for task in tasks:  # this was cancelled
                with contextlib.suppress(RuntimeError):  # the loop was closed before
                    task.cancel()
            self.stop()

    def _task(self, asked: Asked) -> asyncio.Task[None]:
        import asyncio

        async def ask() -> None:
            try:
                await self._ask(asked)
            finally:
                self._end(asked)

        task = asyncio.ensure_future(ask())
        asked.cancel = task.cancel
        task.add_done_callback(lambda _: self._end(asked))  # if it was cancelled before it began
        return task

    def _next(self) -> Asked | None:
        """The connection to ask now, if there is one."""
        self._step()
        if self._begins_no_more:
            return None
        under_way = list(self._under_way.values())
        count = len(under_way)
        usually, most = spare(self._asker.pool(), [it.connection for it in under_way])
        fresh = [it for it in self._asker.untold() if id(it) not in self._asked and self._has(it)]
        if fresh and count < usually:
            return self._choose(fresh[0])
        patience = _SILENCE * 2 ** max(0, count - usually)
        if count < most and all(it.silence >= patience for it in under_way):
            others = [it for it in idle_of(self._asker.pool()) if is_open(it) and self._has(it)]
            return self._choose(others[-1]) if others and count else None
        return None

    def _has(self, connection: Any) -> bool:
        return id(connection) not in self._under_way and loop_of(connection) in {None, self.loop}

    def _choose(self, connection: Any) -> Asked:
        asked = Asked(connection)
        self._asked[id(connection)] = connection
        self._under_way[id(connection)] = asked
        return asked

    def _step(self) -> None:
        """Let time pass. A loop that was busy has yet to read what has come meanwhile."""
        now = time.monotonic()
        for asked in list(self._under_way.values()):
            if asked.sent_at is None or asked.is_cut:
                continue
            step = min(now - max(asked.sent_at, self._stepped_at), _STEP)
            asked.silence += step
            if asked.sent_at < self._proof:
                asked.outlasted += step
            if asked.silence >= _SILENCE and asked.outlasted >= _AFTER_ANOTHER:
                self._cut(asked)
        self._stepped_at = now

    def _cut(self, asked: Asked) -> None:
        """Have the library close a connection whose peer is gone."""
        with self._mutex:
            if asked.is_over:
                return
            asked.is_cut = True
            if asked.cancel is None:
                shut_down(asked.connection)
            else:
                asked.cancel()

    async def _ask(self, asked: Asked) -> None:
        pool, connection = self._asker.pool(), asked.connection
        if not take(pool, connection):
            return  # the program uses it now
        is_answered = False
        try:
            # One that is closed would be connected by the question.
            is_answered = not is_open(connection) or await self._hear(asked)
        finally:
            with self._mutex:
                asked.is_over = True
            if asked.is_cut or not is_answered:  # the reply is to something else, or may come yet
                self._asker.close_one()
                await _attempt(connection.disconnect, *([] if self.loop is None else [True]))
            await _attempt(pool.release, connection)

    async def _hear(self, asked: Asked) -> bool:
        """Whether it has answered."""
        connection = asked.connection
        # A check would connect again.
        answer = await _attempt(connection.send_command, "CLIENT", "INFO", check_health=False)
        if not isinstance(answer, Exception):
            asked.sent_at = sent_at = time.monotonic()
            answer = await _attempt(connection.read_response)
            if is_open(connection):
                self._proof = max(self._proof, sent_at)
        if not is_open(connection):
            self._asker.close_one()
        return self._asker.judge(connection, answer)

    def _end(self, asked: Asked) -> None:
        self._under_way.pop(id(asked.connection), None)
        self._end_all()

    def stop(self, error: RuntimeError | None = None) -> None:
        """Ask no others."""
        self._begins_no_more = True
        if error is not None:
            self._asker.fail(str(error))
        self._end_all()

    def _end_all(self) -> None:
        if self._begins_no_more and not self._under_way and not self._has_ended:
            self._has_ended = True
            for waker in list(self._wakers):
                with contextlib.suppress(RuntimeError):  # it was woken before
                    waker.release()
            with contextlib.suppress(InvalidStateError):  # another thread was quicker
                self.answered.set_result(None)
            self._asked.clear()
            self._asker.end()


def wait_for_one(questions: list[Question], seconds: float) -> None:
    """Wait until one has ended."""
    waker = threading.Lock()
    waker.acquire()
    try:
        for question in questions:
            question._wakers.append(waker)
        if not any(it._has_ended for it in questions):
            waker.acquire(timeout=seconds)
    finally:
        for question in questions:
            with contextlib.suppress(ValueError):
                question._wakers.remove(waker)


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends, as those of this module do for blocking clients."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for an event loop")


async def _attempt(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call of either kind, or its error."""
    try:
        result = call(*arguments, **options)
        return await result if inspect.isawaitable(result) else result
    except Exception as error:  # noqa: BLE001 - whatever their library raises
        return error


# : For how long a connection has to be silent to be taken for dead, in seconds.
_SILENCE = 1.0
# : For how long since another has answered: once a server goes on, all answers come at once.
_AFTER_ANOTHER = 0.5
# : How much of it passes at a time, in seconds.
_STEP = 0.2
