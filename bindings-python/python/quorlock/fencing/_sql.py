"""A fence in a SQL database: a table of the highest tokens. Owns the statements.

The first statement of the writer's transaction raises the token of its resource, which locks that
row until the transaction ends; the second one reads which token is the highest now. So a writer
with a smaller token waits for one that was first, and is then refused.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from typing import Any, Optional, Protocol

from quorlock._errors import ConfigError, ConfigTypeError, LockError

from ._tokens import StaleToken, checked_name, checked_token


class Cursor(Protocol):
    """What is needed of a cursor of the Python database API (PEP 249)."""

    def execute(self, statement: str, parameters: Any, /) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """The next row of the result."""


class SqlFence:
    """A table of the highest fencing token of each resource, for the database of the data.

    `dialect` is `postgresql`, `mysql` (MariaDB, too) or `sqlite`; `table` the table's name, to be
    made once by `create_table`. `paramstyle` says how statements mark parameters: `qmark` (`?`),
    `format` (`%s`), `named` (`:name`), `pyformat` (`%(name)s`) or `dollar` (`$1`); by default
    `qmark` for SQLite and else `format`.

    `check()` must be the first statement of the transaction that writes, and that transaction must
    be committed before the lock is given back. With psycopg and `connection.transaction()`, connect
    with `autocommit=True`: otherwise any statement before that block, such as `create_table`,
    begins a transaction that the end of the block does not commit.

    A program without a cursor of the Python database API runs `advance` and `read` and compares.

    >>> import sqlite3
    >>> from quorlock.fencing import SqlFence, StaleToken
    >>> database = sqlite3.connect(":memory:")
    >>> fence = SqlFence("sqlite")
    >>> _ = database.execute(fence.create_table)
    >>> with database:  # a transaction
    ...     fence.check(database.cursor(), "invoice:42", 18)
    >>> with database:
    ...     fence.check(database.cursor(), "invoice:42", 17)
    Traceback (most recent call last):
    quorlock.fencing.StaleToken: the write to 'invoice:42' with the fencing token 17 was refused: \
a later holder has written with 18; this lease is over, so stop
    >>> database.close()
    """

    def __init__(
        self, dialect: str, *, table: str = "fence", paramstyle: Optional[str] = None
    ) -> None:
        if dialect not in _STATEMENTS:
            raise ConfigError(f"dialect must be one of {', '.join(_STATEMENTS)}, not {dialect!r}")
        checked_name("the table of a fence", table)
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table, re.ASCII):
            raise ConfigError(f"{table!r} is no plain name of a table")
        style = paramstyle or ("qmark" if dialect == "sqlite" else "format")
        if style not in _MARKS:
            raise ConfigError(f"paramstyle must be one of {', '.join(_MARKS)}, not {style!r}")
        self.table = table
        self._is_by_name = style in {"named", "pyformat"}
        names = {"table": table, **_MARKS[style]}
        create, advance, read = (text.format(**names) for text in _STATEMENTS[dialect])
        self._statements = (create, advance, read)

    @property
    def create_table(self) -> str:
        """The statement that makes the table unless it is there."""
        return self._statements[0]

    @property
    def advance(self) -> str:
        """The statement that raises the token of a resource, with the parameters resource, token.

        It locks the resource's row until the transaction ends. A larger token that was seen stays.
        """
        return self._statements[1]

    @property
    def read(self) -> str:
        """The query for the highest token, after `advance`, with the parameter resource.

        If it is larger than one's own, a later holder was here: roll back.
        """
        return self._statements[2]

    def check(self, cursor: Cursor, resource: str, token: int) -> None:
        """Let the transaction of `cursor` write only if no larger token was seen for `resource`.

        Raises `StaleToken` if one was: let it leave the transaction, which is then rolled back. A
        holder with a smaller token waits until the transaction has ended, and is refused if it was
        committed. Raises `LockError` where it can be seen that there is no transaction
        (`autocommit`), `ConfigError` for a cursor of asyncio and for what is no cursor, and what
        the driver raises.
        """
        checked_name("a resource", resource)
        number = checked_token(token, limit=2**63)
        _refuse_what_is_no_cursor(cursor)
        _refuse_to_await(
            cursor.execute(self.advance, self._parameters(resource=resource, token=number))
        )
        _refuse_outside_of_a_transaction(cursor, resource)
        cursor.execute(self.read, self._parameters(resource=resource))
        highest = _only_value(cursor.fetchone())
        # A pipeline of psycopg tells it only once an answer was waited for.
        _refuse_outside_of_a_transaction(cursor, resource)
        if highest > number:
            raise StaleToken.of(resource, token=number, highest=highest)

    def _parameters(self, **values: Any) -> Any:
        return values if self._is_by_name else tuple(values.values())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.table!r}>"


def _refuse_what_is_no_cursor(given: Any) -> None:
    if all(callable(getattr(given, needed, None)) for needed in ("execute", "fetchone")):
        return
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    raise ConfigTypeError(
        f"SqlFence.check() takes a cursor of a driver, with execute() and fetchone(), not {kind}: "
        "give it connection.cursor(), with SQLAlchemy connection.connection.cursor(), or run the "
        "statements `advance` and `read` of the fence, and compare (docs/fencing.md)"
    )


def _refuse_to_await(result: Any) -> None:
    if not hasattr(result, "__await__"):
        return
    if isinstance(result, Coroutine):
        result.close()
    raise ConfigTypeError(
        "SqlFence.check() takes a cursor that blocks, not one of asyncio: await the statements "
        "`advance` and `read` of the fence, and compare (docs/fencing.md)"
    )


def _only_value(row: Any) -> int:
    """What the driver's row factory has made of a token: a row of one, or the token alone."""
    values = tuple(row.values()) if isinstance(row, Mapping) else row
    if isinstance(values, int):
        return values
    try:
        (value,) = values
    except TypeError:
        value = None
    if not isinstance(value, int):
        raise ConfigTypeError(
            f"SqlFence.check() cannot read its token in a row of {type(row).__name__}: give it a "
            "cursor whose rows are tuples or mappings"
        )
    return value


def _refuse_outside_of_a_transaction(cursor: Any, resource: str) -> None:
    if _is_outside_of_a_transaction(cursor):
        raise LockError(
            "the fence was checked outside of a transaction, so that it protects no write: "
            "begin one first (autocommit is on)",
            resources=(resource,),
        )


def _is_outside_of_a_transaction(cursor: Any) -> bool:
    connection = getattr(cursor, "connection", None)
    of_sqlite = getattr(connection, "in_transaction", None)
    if of_sqlite is not None:
        return not of_sqlite
    # libpq's word for it, in psycopg and psycopg2.
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status is not None:
        return int(status) == 0
    # The flags of the server's last answer, in PyMySQL.
    flags = getattr(connection, "server_status", None)
    return isinstance(flags, int) and not flags & _IN_TRANSACTION


_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS of MySQL's protocol
_MARKS = {
    "qmark": {"resource": "?", "token": "?"},
    "format": {"resource": "%s", "token": "%s"},
    "named": {"resource": ":resource", "token": ":token"},
    "pyformat": {"resource": "%(resource)s", "token": "%(token)s"},
    "dollar": {"resource": "$1", "token": "$2"},
}
_UPSERT = (
    "INSERT INTO {table} AS seen (resource, token) VALUES ({resource}, {token}) "
    "ON CONFLICT (resource) DO UPDATE SET token = excluded.token "
    "WHERE seen.token <= excluded.token"
)
_READ = "SELECT token FROM {table} WHERE resource = {resource}"
# A connection sends a name in a charset of its own: without this, "é" by one of latin1 would be
# another name than "é" by one of utf8mb4, with a row of its own.
_UPSERT_OF_MYSQL = (
    "INSERT INTO {table} (resource, token) VALUES (CONVERT({resource} USING utf8mb4), {token}) "
    "ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))"
)
_READ_OF_MYSQL = (
    "SELECT token FROM {table} WHERE resource = CONVERT({resource} USING utf8mb4) FOR UPDATE"
)
_CREATE = "CREATE TABLE IF NOT EXISTS {table} (resource %s PRIMARY KEY, token BIGINT NOT NULL)"
# : By dialect: what makes the table, raises a token and reads it.
_STATEMENTS = {
    "postgresql": (_CREATE % "TEXT", _UPSERT, _READ),
    # Names are compared by their bytes. A plain SELECT would read an old snapshot.
    "mysql": (_CREATE % "VARBINARY(1024)", _UPSERT_OF_MYSQL, _READ_OF_MYSQL),
    "sqlite": (_CREATE % "TEXT", _UPSERT, _READ),
}
