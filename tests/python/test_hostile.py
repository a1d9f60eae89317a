"""Tests hostile servers and absurd arguments: an error of this package in time, never a panic."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from quorlock import ConfigError, LockError, QuorumUnreachable, Redlock
from quorlock._native import OPTIONS
from tests.support.hostile_server import ATTACKS, Attack, HostileServer

LIMIT = 20.0  # seconds; a second for connecting and the caller's timeout, on a busy machine
PATIENCE = 0.3


def resident() -> int:
    """How many bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def over(attack: Attack, after_login: bool) -> Iterator[Redlock]:
    with contextlib.ExitStack() as hostile_servers:
        urls = [hostile_servers.enter_context(HostileServer(attack, after_login=after_login)).url
                for _ in range(3)]  # fmt: skip
        locks = Redlock(urls, timeout=PATIENCE)
        yield locks
        locks.close()


def is_told_in_time(name: str, after_login: bool) -> str | None:
    """What is wrong, if anything."""
    start = time.monotonic()
    with over(ATTACKS[name], after_login) as locks:
        for call in (locks.lock("r").acquire, locks.lock("r").locked):
            try:
                result = call()
            except QuorumUnreachable as error:
                if len(error.votes) != 3:
                    return f"{name}, {after_login}: {error.votes}"
            except BaseException as error:  # noqa: BLE001 - a panic is one, too
                return f"{name}, {after_login}: {type(error)} {error}"
            else:
                return f"{name}, {after_login}: {result}"
    took = time.monotonic() - start
    return None if took < LIMIT else f"{name}, {after_login}: {took:.1f} s"


def test_hostile_servers_are_told_in_time_and_fill_no_memory() -> None:
    before = resident()
    attacks = [(name, after_login) for name in ATTACKS for after_login in (False, True)]
    with ThreadPoolExecutor(8) as pool:
        problems = [told for told in pool.map(is_told_in_time, *zip(*attacks, strict=True)) if told]
    assert problems == []
    assert resident() - before < 128 << 20


def test_one_hostile_server_of_three_does_not_matter() -> None:
    for name, attack in ATTACKS.items():
        with HostileServer(attack) as hostile:
            locks = Redlock([f"memory://{name}-a", f"memory://{name}-b", hostile.url])
            with locks.lock("r") as lease:
                assert lease.extend() > 0
            locks.close()


# -- arguments -------------------------------------------------------------------------------------

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(max_size=8),
    st.timedeltas(),
    st.lists(st.integers(), max_size=2),
    st.sampled_from([object(), int, -0.0, 5e-324, 1e308, 2**53, 2**63, 2**64, -(2**63), 0, 1, 10]),
)
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


def taken_or_told(call: Any) -> Any:
    """The result of the call; an error must be one of configuration, with a sentence."""
    refusal = None
    try:
        return call()
    except ConfigError as error:
        refusal = str(error)
    assert refusal
    return None


@quick
@given(
    st.dictionaries(st.sampled_from([*OPTIONS, "blocking", "raise_on_lost", "on_lost"]), anything)
)
@example({"ttl": timedelta.max})
@example({"ttl": float("nan")})
@example({"timeout": float("inf"), "retry_limit": 2**32})
def test_any_option_is_taken_or_told(options: dict[str, Any]) -> None:
    locks = taken_or_told(lambda: Redlock(["memory://options"], **options))
    assert locks is None or repr(locks.lock("r"))
    base = Redlock(["memory://options"])
    lock = taken_or_told(lambda: base.lock("r", options.pop("ttl", None), **options))
    assert lock is None or repr(lock)


SECRET = "Xq7Zw9Vk"
pieces = st.sampled_from(
    ["redis", "rediss", "unix", "memory", "://", ":", "/", "@", "?", "&", "=", "#", ",", " ", "[",
     "]", "::1", "%", "%40", "%ff", "\0", "localhost", "6379", "-1", "db=", "ssl_cert_reqs=none"]
)  # fmt: skip
addresses = st.one_of(
    st.text(),
    st.lists(st.one_of(pieces, st.text(max_size=4)), max_size=12).map("".join),
    st.builds(
        "{}://u:{}@{}".format, st.sampled_from(["redis", "http"]), st.just(SECRET), st.text()
    ),
)
names = ["host", "port", "path", "db", "username", "password", "ssl", "ssl_ca_data", "key_prefix",
         "url", "other"]  # fmt: skip
nodes = st.one_of(
    addresses,
    anything,
    st.dictionaries(st.sampled_from(names), anything, max_size=4),
    st.tuples(anything, anything),
)


@quick
@given(st.lists(nodes, max_size=3))
def test_any_node_is_taken_or_told(given_nodes: list[Any]) -> None:
    locks = taken_or_told(lambda: Redlock(given_nodes))
    if locks is not None:
        assert len(locks.nodes) == len(given_nodes)
        locks.close()


@quick
@given(addresses)
def test_no_password_is_shown(address: str) -> None:
    try:
        shown = repr(Redlock([address]))
    except LockError as error:
        shown = str(error) + repr(error)
    if f":{SECRET}@" in address and "://" in address:
        assert SECRET not in shown, address


@quick
@given(st.one_of(anything, st.lists(st.text(), max_size=3), st.tuples(anything)))
def test_any_name_is_taken_or_told(name: Any) -> None:
    base = Redlock(["memory://names"], timeout=0)
    lock = taken_or_told(lambda: base.lock(name))
    assert lock is None or repr(lock)
    lease = taken_or_told(lambda: base.lease("r", name))
    assert lease is None or not lease.is_valid


@quick
@given(anything, anything)
def test_any_wait_is_taken_or_told(blocking: Any, timeout: Any) -> None:
    base = Redlock(["memory://waits"])
    lock = base.lock("r")
    # Nobody holds it, so that no wait is long.
    if taken_or_told(lambda: lock.acquire(blocking, timeout)):
        lock.release()
