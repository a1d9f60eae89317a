"""Compares Node with Python: names, defaults, units and error codes come from one core.

Whatever differs on purpose is listed here, and nothing else may differ.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import quorlock
from quorlock import Lease, Lock, LockError, Redlock, Vote, _native

ROOT = Path(__file__).parents[2]
NODES = ["memory://parity-a", "memory://parity-b", "memory://parity-c"]

#: Python counts these in seconds, Node in milliseconds; all others have no unit.
TIMES = {
    "ttl",
    "node_timeout",
    "timeout",
    "retry_delay",
    "retry_jitter",
    "unreachable_timeout",
    "fence_retention",
    "max_hold",
    "max_ttl",
    "lock_delay",
    "min_hold",
}
#: Node keeps node-redlock's name for this one.
RENAMED = {"retry_limit": "retryCount"}
#: Node keeps node-redlock 5's retries, where Python waits until it is told otherwise.
NODE_DEFAULTS = {"retryCount": 10, "retryDelay": 200, "retryJitter": 100}
#: Only Node takes it, for node-redlock's sake; it has no effect.
NODE_ONLY = {"automaticExtensionThreshold": 500}
#: In Node the ttl is an argument of every call, not a setting.
ARGUMENTS = {"ttl"}

#: What Python calls it, and what Node calls it.
LEASE = {
    "fencing_token": "fencingToken",
    "validity": "validity",
    "is_valid": "isValid",
    "token": "value",
    "votes": "votes",
    "resources": "resources",
    "extend": "extend",
    "check": "check",
    "sequencer": "sequencer",
    "record_sequencer": "recordSequencer",
    "release": "release",
}
REDLOCK = {"lease": "lease", "nodes": "nodes", "close": "close", "verify": "verify"}
#: What a lock is asked in Python, and the manager in Node.
QUESTIONS = {"locked": "isLocked", "waiters": "waiters", "holder": "holder"}
NODE = {"address": "address", "state": "state"}
VOTE = {"address": "address", "outcome": "outcome", "latency": "latency"}

#: Node has fewer classes: users of node-redlock know `ExecutionError`, and tell by `code`.
CLASSES = {
    "LockNotAcquired": "ResourceLockedError",
    "LockTimeout": "ResourceLockedError",
    "QuorumUnreachable": "QuorumUnreachableError",
    "LeaseLost": "LeaseLostError",
    "LockNotHeld": "LockNotHeldError",
    "ConfigError": "ConfigError",
    "LocksClosed": "ExecutionError",
}
#: In Node a cancelled call rejects with the reason of its AbortSignal.
PYTHON_ONLY_ERRORS = {"LockCancelled"}


@cache
def node() -> dict[str, Any]:
    """What the Node package says of itself."""
    program = [str(Path(__file__).with_name("facts.mjs"))]
    run = subprocess.run(["node", *program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    told: dict[str, Any] = json.loads(run.stdout)
    return told


def camel_case(name: str) -> str:
    return re.sub(r"_(.)", lambda letter: letter[1].upper(), name)


def test_node_has_every_option_of_the_core_and_no_other() -> None:
    expected = {RENAMED.get(name, camel_case(name)) for name in _native.OPTIONS}
    assert set(node()["defaults"]) == expected


@pytest.mark.parametrize("name", _native.OPTIONS)
def test_defaults_are_equal_but_for_those_of_node_redlock(name: str) -> None:
    default, meaning = _native.OPTIONS[name]
    name_in_node = RENAMED.get(name, camel_case(name))
    in_node = node()["defaults"][name_in_node]
    if name_in_node in NODE_DEFAULTS:
        assert in_node == NODE_DEFAULTS[name_in_node]
        assert in_node != default, "no deviation: take it off the list"
    elif name in TIMES and default is not None:
        assert in_node == default * 1000
    else:
        assert in_node == default
        assert type(in_node) is type(default)
    if name not in RENAMED:
        assert node()["meanings"][name_in_node] == meaning


def test_the_settings_that_node_shows_are_those_it_uses() -> None:
    used = {name: value for name, value in node()["defaults"].items() if value is not None}
    assert node()["shown"] == used | NODE_ONLY


def test_a_time_means_the_same_in_both_units() -> None:
    with Redlock(NODES).lock("unit", ttl=5, auto_extend=False) as lease:
        in_python = lease.validity * 1000
    # ttl - drift (1 % and 2 ms) - what the acquisition took
    for validity in (in_python, node()["validityOf5000"]):
        assert 4448 < validity <= 4948


def in_python() -> tuple[dict[str, Callable[[], object]], Lock]:
    """The calls of facts.mjs, one for every way to fail; and the lock that is in their way."""
    locks = Redlock(NODES)
    held, released = locks.lock("held", ttl=60), locks.lock("released", ttl=60)
    over = locks.lock("over", ttl=0.06)
    for lock in (held, released, over):
        assert lock.acquire()
    lease = released.lease
    assert lease is not None
    released.release()
    while over.owned():
        time.sleep(0.005)
    closed = Redlock(NODES)
    closed.close()
    down = Redlock(["redis://127.0.0.1:1"])
    calls: dict[str, Callable[[], object]] = {
        "held": locks.lock("held", blocking=False).__enter__,
        "waited": locks.lock("held", timeout=0.03, retry_delay=0.005, retry_jitter=0).__enter__,
        "unreachable": lambda: down.lock("r").acquire(blocking=False),
        "lost": over.release,
        "released": lease.extend,
        "setting": lambda: Redlock(NODES, drift_factor=2),
        "closed": lambda: closed.lock("r").acquire(),
    }
    return calls, held


def test_the_same_failure_has_the_same_code_and_its_class() -> None:
    told = node()["errors"]
    seen = set()
    calls, held = in_python()
    assert set(calls) == set(told)
    for name, call in calls.items():
        with pytest.raises(LockError) as raised:
            call()
        error = raised.value
        seen.add(type(error).__name__)
        assert error.code == _native.ERROR_CODES[type(error).__name__]
        assert told[name]["code"] == error.code, name
        assert told[name]["class"] == CLASSES[type(error).__name__], name
    held.release()
    assert seen == set(CLASSES)
    assert seen | PYTHON_ONLY_ERRORS == set(_native.ERROR_CODES)


def test_codes_are_stable_names() -> None:
    codes = list(_native.ERROR_CODES.values())
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code) for code in codes)


def test_the_same_things_can_be_read_and_done() -> None:
    for ours, theirs in LEASE.items():
        assert hasattr(Lease, ours), ours
        assert theirs in node()["lock"], theirs
    for ours, theirs in REDLOCK.items():
        assert hasattr(Redlock, ours), ours
        assert theirs in node()["redlock"], theirs
    for ours, theirs in QUESTIONS.items():
        assert hasattr(Lock, ours), ours
        assert theirs in node()["redlock"], theirs
    for ours, theirs in VOTE.items():
        assert ours in Vote._fields
        assert theirs in node()["vote"]
    for ours, theirs in NODE.items():
        assert ours in quorlock.Node._fields
        assert theirs in node()["node"]


def test_the_version_is_one() -> None:
    assert node()["version"] == quorlock.__version__
