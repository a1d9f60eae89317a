"""The process that runs quorlock's Python API for the player; see `clients.py` for what it is told.

    python -m tests.conformance.client blocking
    python -m tests.conformance.client asyncio

Knows no schedule: it does what it is told, and tells what became of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import quorlock
import quorlock.aio
from quorlock import LeaseLost, LockError
from tests.support.scripted_node import WARM_UP

Json = dict[str, Any]
_saying = threading.Lock()


def say(message: Json) -> None:
    """Tells one thing."""
    with _saying:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


class Session:
    """One manager; `run` says how its calls are waited for."""

    def __init__(self, module: Any, message: Json) -> None:
        """Makes the manager; connects nothing."""
        self.number = message["session"]
        self.lease: Any = None
        settings = {
            name: value / 1000 if name in _MILLIS and value is not None else value
            for name, value in message["settings"].items()
        }
        watched = settings["auto_extend"]
        self.is_guarded = settings["clock_guard"]
        # The nodes of the schedules know no queues.
        settings["wait"] = "poll"
        self.locks = module.Redlock(message["urls"], **settings, raise_on_lost=False)
        self.on_lost = self.tell_loss if watched else None

    def lock(self, message: Json) -> Any:
        """The lock that is asked for."""
        ttl = message.get("ttl")
        asked = {} if ttl is None else {"ttl": ttl / 1000}
        return self.locks.lock("r", **asked, on_lost=self.on_lost)

    def warm_lock(self) -> Any:
        """A lock that is asked for only to have the nodes connected and looked at."""
        return self.locks.lock(WARM_UP, auto_extend=False)

    def tell_loss(self, loss: LeaseLost) -> None:
        """The lease is lost."""
        self.tell("lost", at=time.monotonic(), message=loss.message)

    def tell(self, event: str, **fields: Any) -> None:
        """Tells something about this session."""
        say({"session": self.number, "event": event, **fields})

    def look(self, message: Json) -> None:
        """Until when the lease is trusted, rounded down."""
        now = time.monotonic()
        validity = 0.0 if self.lease is None else self.lease.validity
        self.tell("look", number=message["number"], until=now + validity if validity > 0 else None)

    def nodes(self, message: Json) -> None:
        """What is known of the nodes."""
        nodes = [{"state": it.state, "quarantine": it.quarantine} for it in self.locks.nodes]
        self.tell("nodes", number=message["number"], nodes=nodes)

    def close(self) -> None:
        """Closes the manager."""
        self.locks.close()

    def told(self, message: Json, result: Json) -> None:
        """An operation has ended."""
        self.tell("ended", number=message["number"], at=time.monotonic(), **result)

    def won(self, lease: Any) -> Json:
        """What to tell of a new lease."""
        self.lease = lease
        return {"word": "won", "token": lease.fencing_token}


def failure(error: BaseException) -> Json:
    """What to tell of an operation that failed."""
    if isinstance(error, LockError):
        return {"word": "error", "code": error.code, "message": error.message}
    if isinstance(error, asyncio.CancelledError):
        return {"word": "error", "code": "CANCELLED", "message": "cancelled"}
    return {"word": "error", "code": type(error).__name__, "message": str(error)}


class Blocking(Session):
    """The blocking API: each call in a thread."""

    def run(self, message: Json) -> None:
        """Does what was asked, in the background."""
        threading.Thread(target=self._run, args=(message,), daemon=True).start()

    def _run(self, message: Json) -> None:
        try:
            result = getattr(self, message["do"])(message)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other side is told
            result = failure(error)
        if result is not None:
            self.told(message, result)

    def warm(self, _: Json) -> None:
        """Connects."""
        if self.is_guarded:
            with self.warm_lock():
                pass
        else:
            self.warm_lock().locked()
        self.tell("warm")

    def acquire(self, message: Json) -> Json:
        """As a block does, which tells every error."""
        return self.won(self.lock(message).__enter__())

    def extend(self, message: Json) -> Json:
        """Extends the lease."""
        self.lease.extend(message["ttl"] / 1000)
        return {"word": "extended"}

    def release(self, _: Json) -> Json:
        """Releases the lease."""
        return {"word": self.lease.release()}


class Asyncio(Session):
    """The asyncio API: each call in a task."""

    task: asyncio.Task[None] | None = None

    def run(self, message: Json) -> None:
        """Does what was asked, in the background."""
        if message["do"] == "cancel":
            assert self.task is not None
            self.task.cancel()
        else:
            self.task = asyncio.ensure_future(self._run(message))

    async def _run(self, message: Json) -> None:
        try:
            call: Coroutine[Any, Any, Json | None] = getattr(self, message["do"])(message)
            result = await call
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other side is told
            result = failure(error)
        if result is not None:
            self.told(message, result)

    async def warm(self, _: Json) -> None:
        """Connects."""
        if self.is_guarded:
            async with self.warm_lock():
                pass
        else:
            await self.warm_lock().locked()
        self.tell("warm")

    async def acquire(self, message: Json) -> Json:
        """As a block does, which tells every error."""
        return self.won(await self.lock(message).__aenter__())

    async def extend(self, message: Json) -> Json:
        """Extends the lease."""
        await self.lease.extend(message["ttl"] / 1000)
        return {"word": "extended"}

    async def release(self, _: Json) -> Json:
        """Releases the lease."""
        return {"word": await self.lease.release()}


def listen(act: Callable[[Json], None]) -> None:
    """Hands on every line until the input ends."""
    for line in sys.stdin:
        act(json.loads(line))


def main() -> None:
    """The command line."""
    logging.getLogger("quorlock").addHandler(logging.NullHandler())
    sessions: dict[int, Any] = {}
    is_blocking = sys.argv[1] == "blocking"

    def act(message: Json) -> None:
        if message["do"] == "open":
            made = Blocking(quorlock, message) if is_blocking else Asyncio(quorlock.aio, message)
            sessions[message["session"]] = made
            return
        session = sessions[message["session"]]
        if message["do"] in {"look", "nodes"}:
            getattr(session, message["do"])(message)
        elif message["do"] == "close":
            session.close()
        else:
            session.run(message)

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def hand_on(message: Json) -> None:
            loop.call_soon_threadsafe(act, message)

        await asyncio.to_thread(listen, hand_on)

    if is_blocking:
        listen(act)
    else:
        asyncio.run(serve())


_MILLIS = {"ttl", "node_timeout", "retry_delay", "retry_jitter", "timeout", "unreachable_timeout",
           "max_hold", "lock_delay", "min_hold", "max_ttl"}  # fmt: skip

if __name__ == "__main__":
    main()
