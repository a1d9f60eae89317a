"""Tests that docs/fencing.md is true: its Python runs, and its SQL is what the helpers run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import boto3
import psycopg
import pytest
import redis
from moto import mock_aws

import quorlock
from quorlock import _native
from quorlock.fencing import SqlFence
from tests.python.test_guide import blocks
from tests.support.cluster import Cluster
from tests.support.postgres import Postgres


def test_the_examples_run(
    cluster3: Cluster, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    requests: list[Any] = []

    def send(_path: str, *, headers: dict[str, str]) -> None:
        requests.append(SimpleNamespace(headers=headers))
        around["pay"](requests[0], around["locks"])

    *clients, service = blocks("fencing.md", "python")
    with (
        quorlock.Redlock(cluster3.urls) as locks,
        redis.Redis.from_url(cluster3.urls[0]) as client,
        psycopg.connect(postgres.settings) as connection,
        mock_aws(),
    ):
        around: dict[str, Any] = {
            "client": client, "connection": connection, "locks": locks, "quorlock": quorlock,
            "send": send,
        }  # fmt: skip
        boto3.client("s3").create_bucket(Bucket="bills")
        connection.execute("CREATE TEMPORARY TABLE invoice AS SELECT 42 AS id, 'open' AS state")
        exec(service, around)
        for block in clients:
            exec(block, around)
        assert client.get("invoice:42") == b"paid"
        assert client.hget("audit:42", "by") == b"us"
        assert connection.execute("SELECT state FROM invoice").fetchone() == ("paid",)
        assert around["body"] == b"paid"
        assert len(requests) == 1
        with pytest.raises(PermissionError, match="not held any more"):
            around["pay"](requests[0], locks)
        connection.rollback()


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_the_statements_are_those_of_the_helper(dialect: str) -> None:
    page = " ".join(" ".join(blocks("fencing.md", "sql")).split())
    fence = SqlFence(dialect, paramstyle="named")
    assert f"{fence.advance}; {fence.read};" in page


def test_the_script_is_that_of_the_helpers() -> None:
    assert blocks("fencing.md", "lua") == [_native.FENCE]
