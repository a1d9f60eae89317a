"""Tests that others see who holds a lock, where its `Redlock` has an owner."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import quorlock
from quorlock import ConfigError, ConfigTypeError, Redlock
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster


@both_apis
async def test_the_holder_is_named(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, owner={"service": "billing"})
    lock = locks.lock("r")
    assert await api(lock.holder()) is None
    async with api.block(lock):
        holder = await api(locks.lock("r").holder())
        assert holder.owner["service"] == "billing"
        assert holder.owner["pid"] == str(os.getpid())
        assert str(holder).startswith("billing on ")
        assert holder.since is not None
        with pytest.raises(ConfigError, match="no option 'owner'"):
            locks.lock("r", owner={"service": "billing"})
        with pytest.raises(Exception, match=r"; held by billing on .*, pid \d+, for 0 s$"):
            async with api.block(locks.lock("r", blocking=False)):
                raise AssertionError("it is held")
    assert await api(lock.holder()) is None
    await api(locks.close())


@both_apis
async def test_nothing_is_told_without_an_owner(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    async with api.block(locks.lock("r")):
        holder = await api(locks.lock("r").holder())
        assert (holder.owner, holder.since, str(holder)) == ({}, None, "another")
    await api(locks.close())


def test_an_owner_that_cannot_be_written_is_refused() -> None:
    for owner in ({"a": "x" * 5000}, {"": "x"}, {"a": "x\ny"}):
        with pytest.raises(ConfigError, match="owner m"):
            Redlock(["memory://"], owner=owner)
    with pytest.raises(ConfigError, match="no text that can be encoded"):
        Redlock(["memory://"], owner={"a": "\ud800"})
    for word in (None, b"x", ["x"]):
        with pytest.raises(ConfigTypeError, match="a word of the owner must be a str"):
            Redlock(["memory://"], owner={"a": word})  # type: ignore[dict-item]
    with pytest.raises(ConfigTypeError, match="owner must be a dict of words, not str"):
        Redlock(["memory://"], owner="billing")  # type: ignore[arg-type]


def test_the_package_needs_no_python_above_3_9() -> None:
    """`isinstance(it, A | B)` is an error there, which neither importing nor the lints show."""
    package = Path(quorlock.__file__).parent
    calls = [
        (path.name, call.lineno)
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(), feature_version=(3, 9)))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") in ("isinstance", "issubclass")
        and any(isinstance(it, ast.BitOr) for it in ast.walk(call.args[1]))
    ]
    assert calls == []
