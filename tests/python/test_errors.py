"""Tests the exceptions: one base class, the promised parents, the same fields; copies work."""

from __future__ import annotations

import asyncio
import builtins
import copy
import pickle

import pytest

import quorlock
import quorlock.aio
from quorlock import _native
from quorlock._errors import LockError, Vote
from tests.python.apis import ASYNCIO, BLOCKING, Api, both_apis, memory_nodes

CLASSES = [
    item
    for item in vars(quorlock).values()
    if isinstance(item, type) and issubclass(item, LockError)
]

PARENTS = {
    "LockNotAcquired": (),
    "LockTimeout": (quorlock.LockNotAcquired, TimeoutError),
    "QuorumUnreachable": (ConnectionError,),
    "LeaseLost": (),
    "LockNotHeld": (),
    "ConfigError": (ValueError,),
    "ConfigTypeError": (quorlock.ConfigError, TypeError),
    "LockCancelled": (),
    "LocksClosed": (),
    "LockError": (),
}


def test_every_class_has_its_parents() -> None:
    assert {one.__name__ for one in CLASSES} == set(PARENTS)
    for one in CLASSES:
        assert issubclass(one, RuntimeError)
        assert one.__module__ == "quorlock"
        for parent in PARENTS[one.__name__]:
            assert issubclass(one, parent), (one, parent)
        for name in ("TimeoutError", "ConnectionError", "ValueError", "TypeError"):
            builtin = getattr(builtins, name)
            wanted = any(issubclass(parent, builtin) for parent in PARENTS[one.__name__])
            assert issubclass(one, builtin) == wanted, (one, builtin)


def test_every_kind_of_the_core_has_a_class_and_its_code() -> None:
    for name, code in _native.ERROR_CODES.items():
        assert getattr(quorlock, name).code == code
    codes = {one.code for one in CLASSES}
    assert codes == {*_native.ERROR_CODES.values(), "LOCK_ERROR"}


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_pickling_and_copying(cls: type[LockError]) -> None:
    votes = [Vote("redis://a:6379", "failed", 0.5, "refused"), Vote("b", "granted", 0.1, None)]
    error = cls("what happened", resources=("a", "b"), elapsed=1.5, attempts=3, votes=votes)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for same in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
            assert type(same) is cls
            assert str(same) == "what happened"
            assert same.args == error.args
            assert vars(same) == vars(error)
            assert (same.resource, same.resources) == ("a", ("a", "b"))
            assert same.faults == {"redis://a:6379": "refused"}
    assert repr(error) == f"{cls.__name__}('what happened')"


@both_apis
async def test_raised_errors_carry_their_fields_and_pickle(api: Api) -> None:
    locks = api.Redlock(memory_nodes("fields"))
    async with api.block(locks.lock(["a", "b"])):
        with pytest.raises(quorlock.LockTimeout) as raised:
            async with api.block(locks.lock(["b", "c"], timeout=0.25)):
                pytest.fail("the body ran without the lock")
    error = raised.value
    assert error.resources == ("b", "c")
    assert error.attempts >= 2
    assert 0.2 < error.elapsed < 5
    assert [vote.outcome for vote in error.votes] == ["refused"] * 3
    assert all("held by another" in (vote.detail or "") for vote in error.votes)
    assert all(0 <= vote.latency < 1 for vote in error.votes)
    assert error.faults == {}
    same = pickle.loads(pickle.dumps(error))
    assert vars(same) == vars(error)


def test_timeouts_of_asyncio_catch_a_lock_timeout() -> None:
    with pytest.raises(asyncio.TimeoutError):
        raise quorlock.LockTimeout("it took too long")


def test_a_lock_and_a_lease_say_what_to_send_instead() -> None:
    for api in (BLOCKING, ASYNCIO):
        lock = api.Redlock(["memory://"]).lock("r")
        for make in (pickle.dumps, copy.copy):
            with pytest.raises(
                TypeError, match=r"pass the Redlock and the name, and call its lock"
            ):
                make(lock)
    lock = quorlock.Redlock(["memory://"]).lock("r")
    with lock as lease, pytest.raises(TypeError, match=r"pass its token, and call lease\("):
        pickle.dumps(lease)


def test_a_blocking_lock_says_what_to_use_with_asyncio() -> None:
    locks = quorlock.Redlock(["memory://"])

    async def enter(item: object) -> None:
        async with item:  # type: ignore[attr-defined]
            pass

    for item in (locks, locks.lock("r")):
        with pytest.raises(TypeError, match=r"use 'with', or quorlock.aio.Redlock"):
            asyncio.run(enter(item))


def test_without_a_loop_of_asyncio_it_is_said_what_works() -> None:
    """As under trio, whose tasks are driven like this."""
    locks = quorlock.aio.Redlock(["memory://"])
    for work in (locks.lock("r").acquire(), locks.lock("r").__aenter__(), locks.lock("r").locked()):
        with pytest.raises(RuntimeError, match=r"trio.to_thread.run_sync"):
            work.send(None)
    assert quorlock.Redlock(["memory://"]).lock("r").acquire()
