"""Tests that docs/fencing.md is true: its Python runs, and its SQL is what the helpers run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.python.test_guide import ROOT, blocks
from tests.support.cluster import Cluster
from tests.support.postgres import Postgres
from tests.support.wait import eventually


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
        invoices(postgres) as (settings, other),
        mock_aws(),
    ):
        around: dict[str, Any] = {
            "client": client, "locks": locks, "quorlock": quorlock, "send": send,
            "settings": settings,
        }  # fmt: skip
        boto3.client("s3").create_bucket(Bucket="bills")
        exec(service, around)
        try:
            for block in clients:
                exec(block, around)
            assert other.execute("SELECT state FROM invoice").fetchone() == ("paid",)
            assert other.execute("SELECT resource FROM fence").fetchall() == [("invoice:42",)]
        finally:
            if "connection" in around:
                around["connection"].close()
        assert client.get("state:42") == b"paid"
        assert client.hget("audit:42", "by") == b"us"
        assert_is_free(cluster3)
        assert around["body"] == b"paid"
        assert len(requests) == 1
        with pytest.raises(PermissionError, match="not held any more"):
            around["pay"](requests[0], locks)


def test_the_example_for_node_runs(cluster3: Cluster) -> None:
    (block,) = blocks("fencing.md", "js")
    code = f"""
        import {{ Redis }} from 'ioredis'
        import {{ Redlock }} from 'quorlock'
        const urls = {json.dumps(cluster3.urls)}
        const client = new Redis(urls[0])
        const redlock = new Redlock(urls)
        {block}
        console.log(await client.get('state:42'))
        await redlock.quit()
        client.disconnect()
    """
    run = subprocess.run(
        ["node", "--input-type=module", "-e", code], capture_output=True, text=True, cwd=ROOT,
        timeout=60, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (0, "paid\n", "")
    assert_is_free(cluster3)


def assert_is_free(cluster: Cluster) -> None:
    """The lock was given back on every node: no write has replaced its key."""
    eventually(lambda: not any(server.command("EXISTS", "invoice:42") for server in cluster))


@contextmanager
def invoices(postgres: Postgres) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A schema with an invoice: how to connect to it, and another connection."""
    settings = f"{postgres.settings} options='-c search_path=page -c lock_timeout=20s'"
    with psycopg.connect(settings, autocommit=True) as other:
        other.execute("CREATE SCHEMA page")
        try:
            other.execute("CREATE TABLE invoice AS SELECT 42 AS id, 'open' AS state")
            yield settings, other
        finally:
            other.execute("DROP SCHEMA page CASCADE")


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_the_statements_are_those_of_the_helper(dialect: str) -> None:
    page = " ".join(" ".join(blocks("fencing.md", "sql")).split())
    fence = SqlFence(dialect, paramstyle="named")
    assert f"{fence.advance}; {fence.read};" in page


def test_the_script_is_that_of_the_helpers() -> None:
    assert blocks("fencing.md", "lua") == [_native.FENCE]
