"""Notices when a client that was given as a node uses another database than its settings say.

Otherwise the locks of its library and ours would be different keys, and both would grant one lock.
Owns when clients are asked and what their answers mean; `_asking` owns how they are asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._asking import changing, connections_of
from ._errors import ConfigError, QuorumUnreachable
from ._nodes import overridden_in
from ._notices import warn
from ._pools import database_of, place_of
from ._questions import Question, wait_for_one

if TYPE_CHECKING:
    from ._native import Manager


class Clients:
    """The clients among the nodes of one manager. False if there are none."""

    def __init__(self, nodes: Iterable[Any], manager: Manager) -> None:
        """Asks blocking clients that are connected for their database, one second at most.

        Raises `ConfigError` if one has selected another than that of its settings.
        """
        given = list(zip(nodes, manager.addresses))
        self._size = len(given)
        self._watched = [
            Watched(client, number, address, manager)
            for number, (client, address) in enumerate(given)
            if is_client(client)
        ]
        # : The numbers of those that a lock has waited for beside a majority: none does again.
        self._waited_for: set[int] = set()
        blocking = [it for it in self._watched if not it.connections.is_of_asyncio]
        for questions, seconds in self._questions(blocking, PATIENCE, lambda: False):
            _wait(questions, seconds)
        self._compare()

    def __bool__(self) -> bool:
        return bool(self._watched)

    def check(self, patience: Patience | None = None) -> None:
        """Raise `ConfigError` if a client may use other keys by now than those that we lock.

        Asks clients that have not told yet, as long as an acquisition has `patience`. Raises
        `QuorumUnreachable` if too few have told by then, unless it goes on without a quorum.
        """
        self._watch_all()
        for watched in self._watched:
            if watched.connections.is_of_asyncio and watched.connections.any_is_open():
                raise watched.of_asyncio()
        for questions, seconds in self._steps(patience):
            _wait(questions, seconds)

    async def ask(self, patience: Patience | None = None) -> None:
        """As `check`, from an event loop, where clients of asyncio are asked as well."""
        self._watch_all()
        for questions, seconds in self._steps(patience):
            await _wait_on_loop(questions, seconds)

    def _watch_all(self) -> None:
        for watched in self._watched:
            watched.connections.watch_all()

    def _settle(self) -> bool:
        """Leave the nodes of clients that have not told out of the lock that is acquired next.

        Returns whether a majority is left.
        """
        with changing():
            left_out = [watched.leave_out() for watched in self._watched]
        self._compare()  # in this order: an answer may come at any moment
        return sum(left_out) * 2 < self._size

    def _steps(self, patience: Patience | None) -> Iterator[Step]:
        """What to wait for, one step after the other, until a majority has told."""
        if not self._untold() and self._settle():
            return
        limit, proceeds = (None, False) if patience is None else patience()
        limit = PATIENCE if limit is None else min(limit, PATIENCE)
        deadline = time.monotonic() + limit
        while True:
            left = deadline - time.monotonic()
            yield from self._questions(self._watched, left, self._are_enough)
            rest = [it for it in self._untold() if it.number not in self._waited_for]
            yield from self._questions(rest, min(left, _GRACE), lambda: False)
            self._waited_for = {it.number for it in self._untold()}
            if self._settle():
                break
            if left <= 0 and not proceeds:
                raise self._unreachable(limit)
            if left <= 0:
                break  # the nodes are left out, and it is told that there is no quorum
        for watched in self._watched:
            watched.tell_left_out()

    def _questions(
        self, watched: list[Watched], seconds: float, is_enough: Callable[[], bool]
    ) -> Iterator[Step]:
        """Ask those that have not told until they have; yields what to wait for, and how long."""
        deadline, is_first = time.monotonic() + seconds, True
        while not is_enough() and all(it.connections.found is None for it in watched):
            untold = [it.connections for it in watched if it.connections.are_untold()]
            left = deadline - time.monotonic()
            if not untold or (left <= 0 and not is_first):
                return
            if not is_first and not all(it.is_asking() for it in untold):
                yield [], min(left, _PAUSE)  # some came back only now, or did not answer
            is_first = False
            questions = [question for it in untold for question in it.ask()]
            if left <= 0:
                return
            yield questions, left if questions else min(left, _PAUSE)  # others may run soon

    def _unreachable(self, limit: float) -> QuorumUnreachable:
        untold = self._untold()
        addresses = ", ".join(it.address for it in untold)
        reasons = [it.connections.why for it in untold if it.connections.why]
        why = f" ({reasons[0]})" if reasons else ""
        return QuorumUnreachable(
            f"{addresses}: the client has not told within {limit:g} s which database it uses{why}"
        )

    def _untold(self) -> list[Watched]:
        return [it for it in self._watched if it.connections.are_untold()]

    def _are_enough(self) -> bool:
        """Whether those that have told are a majority of the nodes."""
        return len(self._untold()) * 2 < self._size

    def _compare(self) -> None:
        for watched in self._watched:
            watched.compare()


class Watched:
    """A client, and what it used when it was read. Hides its password from who prints this."""

    def __init__(self, client: Any, number: int, address: str, manager: Manager) -> None:
        login = _login(client)
        try:
            self.connections = connections_of(client)
        except TypeError as error:
            raise ConfigError(
                f"the client of {address} has a class of connections that cannot be extended "
                f"({error}), so that a SELECT would not be noticed; pass its address instead"
            ) from None
        self.number, self._manager, self._is_left_out = number, manager, False
        self._client: Callable[[], Any] = lambda: client
        self._address = address
        self._has_same_login: Callable[[], bool] = lambda: _login(client) == login
        pool = client.connection_pool
        self._has_same_pool: Callable[[], bool] = lambda: client.connection_pool is pool
        self._given_at = time.monotonic()
        self.connections.listen(self)
        self._told: set[str] = set()

    @property
    def address(self) -> str:
        """The node's address, without a password."""
        return self._address

    def hear(self) -> None:
        """Let its node in once it has told: a lock that is held gets its key there again."""
        with changing():
            if self._is_left_out:
                self.leave_out()

    def leave_out(self) -> bool:
        """Have no keys made on its node, unless it has told the database of its settings."""
        is_left_out = self.connections.are_untold() or self.connections.found is not None
        if is_left_out != self._is_left_out:
            self._is_left_out = is_left_out
            self._manager.leave_out(self.number, is_left_out)
        return is_left_out

    def tell_left_out(self) -> None:
        """Warn once if no keys are made on its node, unless it was given just now."""
        if self._is_left_out and time.monotonic() - self._given_at >= PATIENCE:
            self._warn(
                "unknown-database",
                "its client has not told yet which database it uses: no locks are taken on this "
                "node until it has",
            )

    def compare(self) -> None:
        """Raise `ConfigError` if the client may use other keys by now than those that we lock."""
        if self._has_same_pool() and (moved := self._place_now()):
            raise ConfigError(
                f"the client of {self._address} has {moved}, which were others when it was given "
                f"as a node: a lock would have two holders; make a new client, and a new Redlock"
            )
        if why := self._has_moved():
            raise ConfigError(
                f"the client of {self._address} {why}, but its settings named database "
                f"{self.connections.database} when it was given as a node: a lock would have two "
                f"holders; make a new Redlock with the address, such as redis://host:6379/3"
            )
        if overridden := overridden_in(self._client()):
            raise ConfigError(
                f"the client of {self._address} has another {overridden} than when this "
                f"Redlock was made, which may put a prefix before keys: a lock would have two "
                f"holders; make a new Redlock with the address, and the prefix"
            )
        if not self._has_same_login():
            self._warn(
                "credentials-changed",
                "its client has other credentials than when this Redlock was made, which goes on "
                "with the old ones: make a new Redlock",
            )
        if (refusal := self.connections.refusal) is not None:
            self._warn(
                "unknown-database",
                f"its client does not tell which database it has selected "
                f"({type(refusal).__name__}); taken is database {self.connections.database}, as in "
                f"its settings: pass its address instead, with the database, if that is wrong",
                self.connections.warned,
            )
        if self.connections.has_closed:
            self._warn(
                "unknown-database",
                f"the question to its client was not answered, and its connection was closed: "
                f"the next begins with database {self.connections.database}, as in its settings",
                self.connections.warned,
            )

    def _place_now(self) -> str | None:
        """Where the client may connect to now, if that is another server."""
        then = self.connections.place
        now = place_of(self._client().connection_pool)
        if moved := [f"{name} {now[name]}" for name in now if now[name] != then[name]]:
            return f"{', '.join(moved)} in its settings now"
        place = self.connections.selections.elsewhere()
        return place and f"{place} on one of its connections"

    def _has_moved(self) -> str | None:
        """Why the client may use another database than that of the settings."""
        connections, pool = self.connections, self._client().connection_pool
        if not self._has_same_pool():
            return "has another connection pool now"
        if (now := database_of(pool)) != connections.database:
            return f"uses database {now} now"
        if connections.found is not None:
            return f"has selected database {connections.found}, on one of its connections"
        if how := connections.selections.first():
            return f"{how}, on one of its connections"
        return (
            None
            if connections.selections.is_class_kept()
            else "has another class of connections now"
        )

    def of_asyncio(self) -> ConfigError:
        """The error for a client that blocking code cannot ask."""
        return ConfigError(
            f"the client of {self._address} belongs to an event loop, and was connected when this "
            f"Redlock was made: blocking code cannot ask it which database it has selected; pass "
            f"its address instead, with the database, or use quorlock.aio"
        )

    def _warn(self, notice: str, text: str, told: set[str] | None = None) -> None:
        """Warn once of each."""
        told = self._told if told is None else told
        if notice not in told:
            told.add(notice)
            warn(notice, f"{self._address}: {text}", self._address)


def _wait(questions: list[Question], seconds: float) -> None:
    """Wait until one is answered, or for that time if there are none."""
    if questions:
        wait_for_one(questions, seconds)
    else:
        time.sleep(seconds)


async def _wait_on_loop(questions: list[Question], seconds: float) -> None:
    import asyncio

    if not questions:
        await asyncio.sleep(seconds)
        return
    begun, answers = time.monotonic(), [it.on_loop() for it in questions]
    await asyncio.wait(answers, timeout=seconds, return_when=FIRST_COMPLETED)
    if time.monotonic() - begun > seconds + _LATE:
        # A loop that was busy has yet to read what has come meanwhile.
        await asyncio.wait(answers, timeout=_TO_READ)


def is_client(node: Any) -> bool:
    """Whether a node was given as a client of redis-py or valkey-py."""
    return hasattr(node, "connection_pool") and hasattr(node, "set_response_callback")


def _login(client: Any) -> tuple[Any, Any]:
    settings = client.connection_pool.connection_kwargs
    return settings.get("username"), settings.get("password")


# : What to wait for, and for how many seconds.
Step = tuple[list[Question], float]
#: Tells for how many seconds a caller waits, `None` without a limit, and whether it goes on then.
Patience = Callable[[], tuple[Optional[float], bool]]
#: By how much a timer is late if the loop was busy, in seconds.
_LATE = 0.02
#: How long a loop that was busy has to read what has come meanwhile, in seconds.
_TO_READ = 0.15
#: How long clients may take to tell their databases, in seconds.
PATIENCE = 1.0
#: How long the others have once a majority has told, in seconds.
_GRACE = 0.05
#: How long to pause before a question is asked again, in seconds.
_PAUSE = 0.005
