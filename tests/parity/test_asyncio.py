"""Compares the blocking API with asyncio: the same names, parameters and defaults.

What differs on purpose is listed here, and nothing else may differ.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import quorlock
import quorlock.aio

#: Awaited with asyncio.
AWAITED = {
    "Lock": {"acquire", "locked", "waiters", "holder"},
    "Lease": {"extend", "check", "record_sequencer"},
    "Redlock": {"verify"},
}
#: Awaited as well, but begun when they are called.
BEGUN = {"Lock": {"release"}, "Lease": {"release"}, "Redlock": set[str]()}
#: May be awaited with asyncio, as other clients' must be; the rest is the same.
MAY_BE_AWAITED = {("Redlock", "close")}
#: Blocks are entered by `async with`; a `with` on an asyncio lock says so.
BLOCKS = {"__enter__", "__exit__", "__aenter__", "__aexit__"}
#: Not told twice.
ONLY_BLOCKING = {"__version__"}

KINDS = ["Redlock", "Lock", "Lease"]


def pair(kind: str) -> tuple[Any, Any]:
    return getattr(quorlock, kind), getattr(quorlock.aio, kind)


def public(kind: Any) -> set[str]:
    """Names that users see; of the special methods those that make a class usable."""
    names = {name for name in dir(kind) if not name.startswith("_")}
    return names | {name for name in ("__call__", "__init__") if callable(getattr(kind, name, 0))}


def test_the_modules_have_the_same_names() -> None:
    assert set(quorlock.__all__) - ONLY_BLOCKING == set(quorlock.aio.__all__)
    for name in quorlock.aio.__all__:
        is_same = getattr(quorlock, name) is getattr(quorlock.aio, name)
        assert is_same == (name not in KINDS), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_classes_have_the_same_names(kind: str) -> None:
    blocking, aio = pair(kind)
    assert public(blocking) == public(aio)
    for name in public(blocking):
        is_property = isinstance(inspect.getattr_static(blocking, name), property)
        assert isinstance(inspect.getattr_static(aio, name), property) == is_property, name


@pytest.mark.parametrize("kind", KINDS)
def test_methods_have_the_same_parameters_and_defaults(kind: str) -> None:
    blocking, aio = pair(kind)
    compared = 0
    for name in public(blocking):
        ours, theirs = getattr(blocking, name), getattr(aio, name)
        if not inspect.isfunction(ours):
            assert not inspect.isfunction(theirs), name
            continue
        compared += 1
        first, second = inspect.signature(ours), inspect.signature(theirs)
        assert list(first.parameters.values()) == list(second.parameters.values()), name
        if name in BEGUN[kind]:
            begun = f"Coroutine[Any, Any, {first.return_annotation}]"
            assert second.return_annotation == begun, name
        elif (kind, name) not in MAY_BE_AWAITED:
            assert first.return_annotation == second.return_annotation, name
        assert inspect.iscoroutinefunction(theirs) == (name in AWAITED[kind]), name
        assert not inspect.iscoroutinefunction(ours), name
    assert compared >= len(AWAITED[kind] | BEGUN[kind])


@pytest.mark.parametrize("kind", ["Redlock", "Lock"])
def test_blocks_are_entered_by_with_or_async_with(kind: str) -> None:
    blocking, aio = pair(kind)
    assert hasattr(blocking, "__enter__")
    with pytest.raises(TypeError, match="this is for blocking code: use 'with'"):
        blocking.__aenter__(None)
    with pytest.raises(TypeError, match="this is for asyncio: use 'async with'"):
        aio.__enter__(None)
    assert inspect.iscoroutinefunction(aio.__aenter__)
    assert inspect.iscoroutinefunction(aio.__aexit__)


def test_the_modules_lock_takes_what_a_managers_does() -> None:
    of_manager = list(inspect.signature(quorlock.Redlock.lock).parameters.values())[1:]
    assert list(inspect.signature(quorlock.redlock).parameters.values()) == of_manager
    assert public(type(quorlock.redlock("r"))) == public(quorlock.Lock)


def test_acquire_takes_what_a_lock_of_the_standard_library_takes() -> None:
    parameters = inspect.signature(quorlock.Lock.acquire).parameters
    assert list(parameters) == ["self", "blocking", "timeout"]
    assert (parameters["blocking"].default, parameters["timeout"].default) == (True, -1)
