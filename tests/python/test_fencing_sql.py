"""Tests that a database refuses a holder that paused for longer than its lease."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from pymysql.constants import CLIENT

from quorlock import ConfigError, ConfigTypeError, LockError
from quorlock.fencing import SqlFence, StaleToken
from tests.python.overtaking import Tokens
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres

Connect = Callable[[], Any]
PAGE = (Path(__file__).parents[2] / "docs" / "fencing.md").read_text()
_INVOICE = "CREATE TABLE invoice (id INTEGER PRIMARY KEY, state TEXT)"
_WORDS = {
    "sqlite": "UPDATE invoice SET state = ? WHERE id = 42",
    "postgresql": "UPDATE invoice SET state = %s WHERE id = 42",
    "mysql": "UPDATE invoice SET state = %s WHERE id = 42",
}


class Database:
    """A database with an invoice and a fence."""

    def __init__(self, dialect: str, connect: Connect) -> None:
        self.connect = connect
        self.fence = SqlFence(dialect)
        self._write = _WORDS[dialect]
        with self.transaction() as connection:
            cursor = connection.cursor()
            cursor.execute(_INVOICE)
            cursor.execute("INSERT INTO invoice VALUES (42, 'open')")
            cursor.execute(self.fence.create_table)
            cursor.execute(self.fence.create_table)  # it is there

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection in a transaction, which is rolled back if the block raises."""
        with closing(self.connect()) as connection:
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def pay(self, connection: Any, token: int, state: str) -> None:
        """What a holder does in its transaction."""
        cursor = connection.cursor()
        self.fence.check(cursor, "invoice:42", token)
        cursor.execute(self._write, (state,))

    @property
    def state(self) -> str:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT state FROM invoice")
            state: str = cursor.fetchone()[0]
        return state


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        file = tmp_path / "data"
        yield Database("sqlite", lambda: sqlite3.connect(file, timeout=20, check_same_thread=False))
        return
    if request.param == "mysql":
        yield from of_mariadb(request.getfixturevalue("mariadb"))
        return
    server: Postgres = request.getfixturevalue("postgres")
    with closing(psycopg.connect(server.settings, autocommit=True)) as first:
        first.execute("CREATE SCHEMA test")
        try:
            settings = server.settings + " options='-c search_path=test'"
            yield Database("postgresql", lambda: psycopg.connect(settings))
        finally:
            first.execute("DROP SCHEMA test CASCADE")


def of_mariadb(server: MariaDb) -> Iterator[Database]:
    options: dict[str, Any] = {"unix_socket": server.socket, "user": "root"}
    with closing(pymysql.connect(**options)) as first, first.cursor() as cursor:
        cursor.execute("CREATE DATABASE fencing")
        try:
            yield Database("mysql", lambda: pymysql.connect(**options, database="fencing"))
        finally:
            cursor.execute("DROP DATABASE fencing")


def test_a_paused_holder_is_refused(database: Database, overtaken: Tokens) -> None:
    paid = [(overtaken.paused, "paid by the first"), (overtaken.current, "paid by the second"),
            (overtaken.current, "sent by the second")]  # fmt: skip
    for token, state in paid:
        with database.transaction() as connection:
            database.pay(connection, token, state)
    with pytest.raises(StaleToken) as refused, database.transaction() as connection:
        database.pay(connection, overtaken.paused, "paid twice")
    assert database.state == "sent by the second"
    error = refused.value
    assert (error.resource, error.token, error.highest) == ("invoice:42", *overtaken)


def test_a_holder_that_paused_inside_its_transaction_keeps_the_next_one_waiting(
    database: Database, overtaken: Tokens
) -> None:
    # It was first, so it may write; what the next one writes comes after.
    order: list[str] = []

    def come_after() -> None:
        with database.transaction() as connection:
            database.pay(connection, overtaken.current, "by the second")
            order.append("second")

    later = threading.Thread(target=come_after)
    with database.transaction() as connection:
        database.pay(connection, overtaken.paused, "by the first")
        later.start()
        later.join(0.3)
        assert later.is_alive()
        order.append("first")
    later.join(20)
    assert order == ["first", "second"]
    assert database.state == "by the second"


def test_a_paused_holder_waits_for_the_next_ones_transaction_and_is_refused(
    database: Database, overtaken: Tokens
) -> None:
    refused: list[StaleToken] = []

    def wake_up() -> None:
        try:
            with database.transaction() as connection:
                database.pay(connection, overtaken.paused, "twice")
        except StaleToken as error:
            refused.append(error)

    paused = threading.Thread(target=wake_up)
    with database.transaction() as connection:
        database.pay(connection, overtaken.current, "paid")
        paused.start()
        paused.join(0.3)
        assert paused.is_alive()
    paused.join(20)
    assert [error.highest for error in refused] == [overtaken.current]
    assert database.state == "paid"


def test_a_token_that_was_rolled_back_was_not_seen(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction() as connection:
        database.pay(connection, 18, "paid")
        raise ZeroDivisionError
    with database.transaction() as connection:
        database.pay(connection, 17, "paid by the first")
    assert database.state == "paid by the first"


def test_resources_do_not_mix(database: Database) -> None:
    with database.transaction() as connection:
        for name, token in (("a", 18), ("A", 17), ("a ", 17), ("ä", 17), ("%s?$1", 17)):
            database.fence.check(connection.cursor(), name, token)
        with pytest.raises(StaleToken):
            database.fence.check(connection.cursor(), "a", 17)


def test_the_charset_of_a_connection_of_mysql_makes_no_other_name(mariadb: MariaDb) -> None:
    options: dict[str, Any] = {"unix_socket": mariadb.socket, "user": "root"}
    for database in of_mariadb(mariadb):
        with database.transaction() as connection:
            database.fence.check(connection.cursor(), "résumé", 9)
        for charset in ("latin1", "utf8mb4"):
            other = pymysql.connect(**options, database="fencing", charset=charset)
            with closing(other), pytest.raises(StaleToken):
                database.fence.check(other.cursor(), "résumé", 8)


@pytest.mark.parametrize(("flags", "rows"), [(0, 0), (CLIENT.FOUND_ROWS, 1)])
def test_mysql_tells_rows_that_stay_as_they_were_if_it_is_asked_to(
    mariadb: MariaDb, flags: int, rows: int
) -> None:
    assert "client_flag=CLIENT.FOUND_ROWS" in PAGE
    statement = PAGE.partition("### A column")[2].partition("```sql\n")[2].partition("\n```")[0]
    settings = {"unix_socket": mariadb.socket, "user": "root", "database": "test"}
    with closing(pymysql.connect(**settings, client_flag=flags)) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TEMPORARY TABLE invoice (id INT, state TEXT, token BIGINT)")
        cursor.execute("INSERT INTO invoice VALUES (42, '', 0)")
        changed = [
            cursor.execute(statement.replace(":token", "%s"), (token, token))
            for token in (18, 18, 17, 19)
        ]
    assert changed == [1, rows, 0, 1]


def test_a_check_outside_of_a_transaction_is_refused(database: Database) -> None:
    with closing(database.connect()) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        elif isinstance(connection, pymysql.Connection):
            connection.autocommit(True)
        else:
            connection.autocommit = True
        with pytest.raises(LockError, match="outside of a transaction"):
            database.fence.check(connection.cursor(), "invoice:42", 17)
        connection.cursor().execute("BEGIN")
        database.fence.check(connection.cursor(), "invoice:42", 17)


def test_a_pipeline_outside_of_a_transaction_is_refused(postgres: Postgres) -> None:
    fence = SqlFence("postgresql", table="pg_temp.fence")
    with closing(psycopg.connect(postgres.settings, autocommit=True)) as connection:
        connection.execute(fence.create_table)
        with connection.pipeline(), pytest.raises(LockError, match="outside of a transaction"):
            fence.check(connection.cursor(), "r", 17)
        with connection.pipeline(), connection.transaction():
            fence.check(connection.cursor(), "r", 17)


def test_rows_may_be_mappings() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = lambda cursor, row: {
            column[0]: value for column, value in zip(cursor.description, row, strict=True)
        }
        fence = SqlFence("sqlite")
        database.execute(fence.create_table)
        database.execute("BEGIN")
        fence.check(database.cursor(), "r", 18)
        with pytest.raises(StaleToken):
            fence.check(database.cursor(), "r", 17)


@pytest.mark.parametrize("token", [17, 19])
def test_a_row_may_be_the_token_alone(token: int) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        fence = SqlFence("sqlite")
        database.execute(fence.create_table)
        database.execute("BEGIN")
        fence.check(database.cursor(), "r", 18)
        database.row_factory = lambda _cursor, row: row[0]
        if token < 18:
            with pytest.raises(StaleToken):
                fence.check(database.cursor(), "r", token)
        else:
            fence.check(database.cursor(), "r", token)
        database.row_factory = lambda _cursor, _row: object()
        with pytest.raises(ConfigTypeError, match="cannot read its token in a row of object"):
            fence.check(database.cursor(), "r", 20)


def test_the_texts_are_for_other_drivers_too() -> None:
    named = SqlFence("sqlite", table="main.fences", paramstyle="named")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(named.create_table)
        for token, highest in ((17, 17), (18, 18), (17, 18)):
            connection.execute(named.advance, {"resource": "r", "token": token})
            assert connection.execute(named.read, {"resource": "r"}).fetchone() == (highest,)
        named.check(connection.cursor(), "r", 18)
    assert SqlFence("postgresql", paramstyle="dollar").advance.endswith(
        "VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET token = excluded.token "
        "WHERE seen.token <= excluded.token"
    )
    assert SqlFence("mysql").read.endswith("WHERE resource = CONVERT(%s USING utf8mb4) FOR UPDATE")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"dialect": "oracle"}, "postgresql, mysql, sqlite"),
     ({"dialect": "sqlite", "table": "fence; DROP TABLE invoice"}, "no plain name"),
     ({"dialect": "sqlite", "table": ""}, "empty"),
     ({"dialect": "sqlite", "paramstyle": "numeric"}, "paramstyle must be one of")],
)  # fmt: skip
def test_a_wrong_setting_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        SqlFence(**arguments)


def test_a_cursor_of_asyncio_is_refused() -> None:
    class OfAsyncio:
        async def execute(self, statement: str, parameters: object) -> None:
            """As that of psycopg.AsyncCursor."""

        def fetchone(self) -> None:
            """Not reached."""

    with pytest.raises(ConfigTypeError, match=r"await the statements `advance` and `read`"):
        SqlFence("postgresql").check(OfAsyncio(), "r", 17)


def test_a_connection_is_refused_before_anything_is_asked() -> None:
    fence = SqlFence("sqlite")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(fence.create_table)
        with pytest.raises(ConfigTypeError, match=r"not sqlite3\.Connection: .*\.cursor\(\)"):
            fence.check(connection, "r", 17)  # type: ignore[arg-type]
        assert not connection.in_transaction


def test_what_is_no_token_is_refused_before_anything_is_asked() -> None:
    fence = SqlFence("sqlite")
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(ConfigTypeError, match="fencing=False"):
            fence.check(connection.cursor(), "r", None)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="from 0 to 9223372036854775807"):
            fence.check(connection.cursor(), "r", 2**63)
