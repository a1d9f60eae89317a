"""Notices when a client that was given as a node uses another database than its settings say.

Otherwise the locks of its library and ours would be different keys, and both would grant one lock.
Owns what clients are asked; their settings are read elsewhere.
"""

from __future__ import annotations

import inspect
import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ._errors import ConfigError, QuorumUnreachable
from ._nodes import overridden_in
from ._notices import warn

if TYPE_CHECKING:
    import asyncio


class Selections:
    """Counts the `select()` calls of one client: reads their replies in its stead."""

    def __init__(self, usual: Callable[..., Any] | None) -> None:
        self.count = 0
        self._usual = usual

    def __call__(self, reply: Any, **options: Any) -> Any:
        """What the client calls with a reply."""
        self.count += 1
        return reply if self._usual is None else self._usual(reply, **options)

    def hear(self, reply: Any, **_options: Any) -> Any:
        """The same for a command that no callback is for, such as `"SELECT 3"` as one text."""
        self.count += 1
        return reply


class Noticing(dict[Any, Any]):
    """A part of the class of a client's callbacks, which also counts a SELECT that names miss."""

    def __contains__(self, name: Any) -> bool:
        return super().__contains__(name) or _selects(name)

    def __getitem__(self, name: Any) -> Any:
        if _selects(name) and not super().__contains__(name):
            return super().__getitem__("SELECT").hear
        return super().__getitem__(name)


def _selects(name: str | bytes) -> bool:
    """Whether a command is SELECT: clients also take `"select 3"` and `b"SELECT"`."""
    words = name.split(None, 1)
    return bool(words) and words[0].upper() in {"SELECT", b"SELECT"}


class Watched(NamedTuple):
    """A client, and what it used when it was read. Hides its password from who prints this."""

    client: Callable[[], Any]
    address: str
    selections: Selections
    database: int
    has_same_login: Callable[[], bool]


class Clients:
    """The clients among the nodes of one manager. False if there are none."""

    def __init__(self, nodes: Iterable[Any], addresses: Iterable[str]) -> None:
        """Asks blocking clients that are connected for their database, one second at most.

        Raises `ConfigError` if one has selected another than that of its settings.
        """
        pairs = [(node, address) for node, address in zip(nodes, addresses) if _is_client(node)]
        self._watched = [_watch(client, address) for client, address in pairs]
        self._told: set[str] = set()
        connected = [it for it in self._watched if _is_connected(it.client())]
        # : Those that can be asked on their event loop only, and have not been yet.
        self._unasked = [it for it in connected if _is_of_asyncio(it.client())]
        self._asking: asyncio.Task[None] | None = None
        self._mistake: str | None = None
        _ask_blocking([it for it in connected if not _is_of_asyncio(it.client())])

    def __bool__(self) -> bool:
        return bool(self._watched)

    def check(self) -> None:
        """Raise `ConfigError` if a client may use other keys by now than those that we lock.

        Warns once of asyncio's clients that are connected: they can be asked by `ask` only.
        """
        self._compare()
        unasked, self._unasked = self._unasked, []
        for watched in unasked:
            _tell_unknown(watched, "it belongs to an event loop")

    async def ask(self, patience: Callable[[], float | None] = lambda: None) -> None:
        """As `check`. The first call also asks asyncio's connected clients, one second at most.

        `patience` tells for how many seconds the caller waits for them; `None` without a limit.
        Raises `QuorumUnreachable` if they have not answered by then: their database is not known.
        """
        self._compare()
        if self._unasked:
            await self._ask_once(patience())
        if self._mistake is not None:
            raise ConfigError(self._mistake)

    def _compare(self) -> None:
        for watched in self._watched:
            now = _database(watched.client())
            if now != watched.database:
                raise _elsewhere(watched, f"uses database {now} now")
            if watched.selections.count:
                raise _elsewhere(watched, "has run select(), on one of its connections")
            if overridden := overridden_in(watched.client()):
                raise ConfigError(
                    f"the client of {watched.address} has another {overridden} than when this "
                    f"Redlock was made, which may put a prefix before keys: a lock would have two "
                    f"holders; make a new Redlock with the address, and the prefix"
                )
            if not watched.has_same_login():
                self._tell_of_login(watched)

    async def _ask_once(self, patience: float | None) -> None:
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the attempt to lock reports it
        known = self._asking
        if known is None or known.done() or known.get_loop() is not loop:
            self._asking = known = loop.create_task(self._ask_all())
        # All that come meanwhile wait for the same answers, and any of them may be cancelled.
        begun = loop.time()
        await asyncio.wait([known], timeout=patience)
        if patience is not None and loop.time() - begun > patience + _LATE:
            # A loop that was busy has yet to read what has come meanwhile.
            await asyncio.wait([known], timeout=_TO_READ)
        if not known.done():
            untold = ", ".join(watched.address for watched in self._unasked)
            raise QuorumUnreachable(
                f"{untold}: the client has not told within {patience:g} s which database it uses"
            )

    async def _ask_all(self) -> None:
        import asyncio

        try:
            await asyncio.gather(*(_ask(watched) for watched in self._unasked))
        except ConfigError as error:
            self._mistake = str(error)
        self._unasked = []

    def _tell_of_login(self, watched: Watched) -> None:
        if watched.address in self._told:
            return
        self._told.add(watched.address)
        warn(
            "credentials-changed",
            f"{watched.address}: its client has other credentials than when this Redlock was "
            f"made, which goes on with the old ones: make a new Redlock",
            watched.address,
        )


def _watch(client: Any, address: str) -> Watched:
    login = _login(client)
    callbacks = client.response_callbacks
    count = callbacks.get("SELECT")
    if not isinstance(count, Selections):  # all managers share it
        count = Selections(count)
        client.set_response_callback("SELECT", count)
        # The object stays the same: pipelines that were made before have it too.
        kind = type(callbacks)
        noticing = _noticing.setdefault(kind, type("Noticing", (Noticing, kind), {}))
        callbacks.__class__ = noticing
    return Watched(
        client=lambda: client,
        address=address,
        selections=count,
        database=_database(client),
        has_same_login=lambda: _login(client) == login,
    )


def _ask_blocking(asked: list[Watched]) -> None:
    """Ask on threads: a client may wait for a server that hangs for as long as it likes."""
    found: dict[int, Any] = {}

    def ask(index: int) -> None:
        try:
            found[index] = asked[index].client().execute_command("CLIENT", "INFO")
        except Exception as error:  # noqa: BLE001 - whatever their library raises
            found[index] = error

    threads = [
        threading.Thread(target=ask, args=(index,), name="quorlock-clients", daemon=True)
        for index in range(len(asked))
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for index, watched in enumerate(asked):
        _judge(watched, found.get(index, TimeoutError("no answer")))


async def _ask(watched: Watched) -> None:
    import asyncio

    answer: Any
    try:
        asking = watched.client().execute_command("CLIENT", "INFO")
        answer = await asyncio.wait_for(asking, PATIENCE)
    except Exception as error:  # noqa: BLE001 - as above
        answer = error
    _judge(watched, answer)


def _judge(watched: Watched, answer: Any) -> None:
    text = f"db={answer.get('db')}" if isinstance(answer, Mapping) else str(answer)
    found = None if isinstance(answer, Exception) else re.search(r"\bdb=(\d+)", text)
    if found is None:
        _tell_unknown(watched, type(answer).__name__)
    elif int(found[1]) != watched.database:
        raise _elsewhere(watched, f"has selected database {found[1]}, on one of its connections")


def _tell_unknown(watched: Watched, why: str) -> None:
    warn(
        "unknown-database",
        f"{watched.address}: its client does not tell which database it has selected ({why}); "
        f"taken is database {watched.database}, as in its settings: pass its address instead, with "
        f"the database, if that is wrong",
        watched.address,
    )


def _elsewhere(watched: Watched, what: str) -> ConfigError:
    return ConfigError(
        f"the client of {watched.address} {what}, but its settings named database "
        f"{watched.database} when this Redlock was made: a lock would have two holders; "
        f"make a new Redlock with the address, such as redis://host:6379/3"
    )


def _is_client(node: Any) -> bool:
    return hasattr(node, "connection_pool") and hasattr(node, "set_response_callback")


def _is_of_asyncio(client: Any) -> bool:
    return inspect.iscoroutinefunction(client.execute_command)


def _is_connected(client: Any) -> bool:
    """Whether a connection waits in the pool that may have selected another database.

    One that was closed selects that of the settings when it is made again.
    """
    pool = client.connection_pool
    idle = getattr(pool, "_available_connections", None)
    if idle is None:
        idle = [it for it in list(pool.pool.queue) if it is not None]  # of a BlockingConnectionPool
    return any(_is_open(connection) for connection in list(idle))


def _is_open(connection: Any) -> bool:
    is_connected = getattr(connection, "is_connected", None)
    if isinstance(is_connected, bool):
        return is_connected
    return getattr(connection, "_sock", None) is not None


def _database(client: Any) -> int:
    return int(client.connection_pool.connection_kwargs.get("db") or 0)


def _login(client: Any) -> tuple[Any, Any]:
    settings = client.connection_pool.connection_kwargs
    return settings.get("username"), settings.get("password")


# : The classes of clients' callbacks, by what they were before.
_noticing: dict[type[Any], type[Any]] = {}
#: By how much a timer is late if the loop was busy, in seconds.
_LATE = 0.02
#: How long a loop that was busy has to read what has come meanwhile, in seconds.
_TO_READ = 0.15
#: How long clients may take to tell their databases, in seconds.
PATIENCE = 1.0
