"""Tests options: those of the core, with its defaults; a clear error for everything else."""

from __future__ import annotations

import inspect
import pickle
import re
import typing
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import quorlock
from quorlock import (
    ConfigError,
    ConfigTypeError,
    LockOptions,
    ManagerOptions,
    Redlock,
    _native,
    _options,
    aio,
)
from tests.python.apis import Api, every_api, memory_nodes

TIMES = [
    "ttl",
    "timeout",
    "node_timeout",
    "retry_delay",
    "retry_jitter",
    "unreachable_timeout",
    "fence_retention",
    "max_hold",
    "lock_delay",
    "min_hold",
]
#: One for all locks of a manager.
GUARDS = ["restart_guard", "clock_guard", "max_ttl"]
FACTORS = ["drift_factor"]
FLAGS = ["fencing", "auto_extend", "raise_on_lost", "blocking"]


def refusal(**options: Any) -> str:
    """The sentence with which the options are refused, everywhere alike."""
    texts = set()
    for kind in (Redlock, aio.Redlock):
        with pytest.raises(ConfigError) as by_manager:
            kind(memory_nodes("options"), **options)
        with pytest.raises(ConfigError) as by_lock:
            kind(memory_nodes("options")).lock("r", **options)
        texts |= {str(by_manager.value), str(by_lock.value)}
    assert len(texts) == 1, texts
    return texts.pop()


def test_the_options_are_those_of_the_core() -> None:
    own = {"blocking", "raise_on_lost", "on_lost"}
    managers = {"on_event", "owner"}
    assert set(typing.get_type_hints(ManagerOptions)) == set(_native.OPTIONS) | own | managers
    assert set(typing.get_type_hints(LockOptions)) == set(_native.OPTIONS) - set(GUARDS) | own
    assert _native.OPTIONS["ttl"][0] == 10.0
    assert _native.OPTIONS["drift_factor"][0] == 0.01
    with Redlock(memory_nodes("defaults")).lock("r") as lease:
        assert lease.ttl == _native.OPTIONS["ttl"][0]


def test_documented_defaults_are_those_of_the_core() -> None:
    units = {86_400.0: "24 hours"}
    source = inspect.getsource(_options)
    for name, (default, _) in _native.OPTIONS.items():
        documented = re.search(rf"    {name}: [^\n]*\n    \"\"\"(.*?)\"\"\"", source, re.DOTALL)
        assert documented is not None, name
        if isinstance(default, bool):
            phrase = "Default yes" if default else "Default: "
        elif default is None:
            phrase = "Default: "
        elif isinstance(default, str):
            phrase = f"Default `{default}`"
        else:
            number = f"{default:g}"
            phrase = "Default " + units.get(default, number if name in FACTORS else f"{number} s")
        assert phrase in documented[1], (name, phrase)


def test_an_unknown_option_is_refused_with_a_hint() -> None:
    assert refusal(tll=5) == "there is no option 'tll'; did you mean 'ttl'?"
    assert "retry_delay" in refusal(retrydelay=5)
    assert "the options are" in refusal(xyzzy=5)
    with pytest.raises(TypeError):
        Redlock(memory_nodes("unknown"), tll=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [*TIMES, "max_ttl"])
def test_times_that_are_none_are_refused(name: str) -> None:
    for wrong in ("1", b"1", True, [], {}, object()):
        text = refusal(**{name: wrong})
        assert text.startswith(f"{name} must be seconds (int, float or timedelta), not ")
    for wrong in (-0.1, -5, timedelta(seconds=-1), float("-inf")):
        assert refusal(**{name: wrong}).startswith(f"{name} must not be negative: ")
    assert "not nan" in refusal(**{name: float("nan")})
    for wrong in (float("inf"), 2**53, 2**53 / 1000, 10**400):
        assert refusal(**{name: wrong}).startswith(f"{name} must be below 2^53 milliseconds")
    options: Any = {name: "1"}
    with pytest.raises(ConfigTypeError):
        Redlock(memory_nodes("types"), **options)


@pytest.mark.parametrize("name", [*FLAGS, "clock_guard"])
def test_flags_are_true_or_false(name: str) -> None:
    wrong: Any
    for wrong in (0, 1, "yes", []):
        assert refusal(**{name: wrong}).startswith(f"{name} must be True or False, not ")


def test_numbers_out_of_bounds_are_refused() -> None:
    assert "at least 1 ms" in refusal(ttl=0)
    assert "at least 1 ms" in refusal(ttl=0.0005)
    assert "drift" in refusal(ttl=0.002)
    assert "node_timeout" in refusal(node_timeout=0)
    assert "below 1" in refusal(drift_factor=1)
    assert "drift_factor must be a number" in refusal(drift_factor="0.1")
    assert "retry_limit must be a whole number" in refusal(retry_limit=1.5)
    assert "retry_limit must be a whole number" in refusal(retry_limit=True)
    text = "retry_limit must be 0 or more, or None for the default, not -1"
    assert refusal(retry_limit=-1) == text
    assert "retry_limit must be below 2^32, not 4294967296" in refusal(retry_limit=2**32)
    assert refusal(max_ttl=5) == "max_ttl, 5 s, is below the default ttl of 10 s: pass ttl, too"
    assert "on_lost must be callable" in refusal(on_lost=5)
    assert "takes no timeout" in refusal(blocking=False, timeout=5)
    assert "at least 1 ms" in refusal(max_ttl=0)


def test_the_restart_guard_is_one_of_three_words() -> None:
    words = 'the restart guard must be "auto", "strict" or "off", not "on"'
    assert refusal(restart_guard="on") == words
    for wrong in (True, False, 1, b"off"):
        assert refusal(restart_guard=wrong).startswith("restart_guard must be a str, not ")
    for word in ("auto", "strict", "off", None):
        options: Any = {"restart_guard": word}
        Redlock(memory_nodes("guards"), **options)


@pytest.mark.parametrize("kind", [Redlock, aio.Redlock])
@pytest.mark.parametrize(
    ("name", "value"), [("restart_guard", "off"), ("clock_guard", False), ("max_ttl", 60)]
)
def test_the_guards_are_one_for_all_locks_of_a_manager(kind: Any, name: str, value: Any) -> None:
    words = f"{name} is one for all locks of a manager: set it where the manager is made"
    with pytest.raises(ConfigError) as raised:
        kind(memory_nodes("guards")).lock("r", **{name: value})
    assert str(raised.value) == words
    locks = kind(memory_nodes("guards"), **{name: value})
    locks.lock("r")
    locks.lock("r", **{name: value})
    copied = pickle.loads(pickle.dumps(locks))
    copied.lock("r", **{name: value})


@every_api
async def test_no_lock_may_last_longer_than_max_ttl(api: Api) -> None:
    locks = api.Redlock(memory_nodes("limited"), max_ttl=20)
    with pytest.raises(ConfigError, match="at most max_ttl, 20 s, and this one asks for 21 s"):
        locks.lock("r", ttl=21)
    async with api.block(locks.lock("r", ttl=20)) as lease:
        with pytest.raises(ConfigError, match="at most max_ttl, 20 s"):
            await api(lease.extend(20.001))
        assert lease.ttl == 20
    with pytest.raises(ConfigError, match="is below the default ttl of 10 s: pass ttl, too"):
        api.Redlock(memory_nodes("limited"), max_ttl=5)
    api.Redlock(memory_nodes("limited"), max_ttl=timedelta(seconds=5), ttl=3)


def test_the_nodes_of_the_process_are_guarded_as_configured() -> None:
    quorlock.configure(memory_nodes("module"), max_ttl=20, restart_guard="strict")
    try:
        lock = quorlock.redlock("r", ttl=30)
        with pytest.raises(ConfigError, match="at most max_ttl"):
            lock.acquire()
        with quorlock.redlock("r", ttl=15):
            pass
    finally:
        quorlock.configure(None)


def test_everything_that_is_a_number_of_seconds_is_taken() -> None:
    locks = Redlock(memory_nodes("numbers"))
    for ttl in (3, 3.0, Decimal(3), Fraction(3), timedelta(seconds=3)):
        with locks.lock("r", ttl=ttl) as lease:  # type: ignore[arg-type]
            assert lease.ttl == 3.0
    with locks.lock("r", timeout=-1, ttl=None, retry_limit=3, max_hold=None) as lease:
        assert lease.ttl == 10.0


def test_a_ttl_that_was_given_before_means_the_same_again() -> None:
    locks = Redlock(memory_nodes("again"), ttl=7)
    for number in range(40):
        for ttl in (1, 2.5, 30 + number, None):
            with locks.lock(f"r:{number}", ttl) as lease:
                assert lease.ttl == (7 if ttl is None else ttl)
                assert lease.resource == f"r:{number}"
    for wrong in (True, float("nan"), -1, "1"):
        with pytest.raises(ConfigError, match="ttl"):
            locks.lock("r", wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="name"):
        locks.lock("", 1)


def test_locks_start_from_the_managers_options() -> None:
    locks = Redlock(memory_nodes("inherited"), ttl=3, timeout=0.1)
    with locks.lock("r") as lease:
        assert lease.ttl == 3.0
        assert not locks.lock("r").acquire()
        assert not locks.lock("r", blocking=False).acquire()
    with locks.lock("r", ttl=4) as lease:
        assert lease.ttl == 4.0


def test_a_callback_without_a_signature_gets_the_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for problem in (ValueError, SystemError):
        told: list[Any] = []

        def fail(_: object, problem: type[Exception] = problem) -> None:
            raise problem

        with monkeypatch.context() as patch:
            patch.setattr(inspect, "signature", fail)
            _options.telling(told.append)(None)  # type: ignore[arg-type]
        assert told == [None]


def test_fencing_can_be_switched_off() -> None:
    with Redlock(memory_nodes("unfenced"), fencing=False).lock("r") as lease:
        assert lease.fencing_token is None


@pytest.mark.parametrize("kind", [Redlock, aio.Redlock])
def test_names_of_resources_are_checked(kind: Any) -> None:
    locks = kind(memory_nodes("names"))
    wrong: Any
    for wrong, text in [
        ("", "must not be empty"),
        ([], "at least one resource"),
        (None, "at least one resource"),
        (["a", "a"], "'a' is named twice"),
        ("x" * 4097, "longer than 4096 bytes"),
        ("\ud800", "not valid Unicode"),
        ([f"r{n}" for n in range(1001)], "at most 1000"),
    ]:
        with pytest.raises(ConfigError, match=text):
            locks.lock(wrong)
    for wrong in (5, b"name", ["a", 5], 1.5, ["a", None]):
        with pytest.raises(ConfigTypeError, match="must be a str"):
            locks.lock(wrong)
    for name in ("ü:日本", "with blank", "{tag}:x", "x" * 4096):
        assert locks.lock(name).resource == name


def long_ttls(caplog: pytest.LogCaptureFixture) -> list[str]:
    every = [it for it in caplog.records if vars(it).get("notice") == "long-ttl"]
    return [it.getMessage() for it in every]


@pytest.mark.parametrize("kind", [Redlock, aio.Redlock])
def test_a_ttl_that_may_be_meant_as_milliseconds_is_told_once(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    locks = kind(["memory://"])
    for _ in range(2):
        locks.lock("r", 10_000)
        locks.lock("r", timedelta(seconds=10_000), timeout=1)
    locks.lock("r", ttl=3600)
    (text,) = long_ttls(caplog)
    assert text.startswith("a ttl of 10000 s is 2.8 hours (ttls are in seconds): ")
    assert "max_ttl" in text
    kind(["memory://"], ttl=5000).lock("r")
    assert len(long_ttls(caplog)) == 2
    kind(["memory://"], ttl=5000, max_ttl=5000).lock("r")
    assert len(long_ttls(caplog)) == 2
    quorlock.redlock("r", 20_000)  # only an acquisition gives the warning
    assert len(long_ttls(caplog)) == 2
    quorlock.configure(["memory://"])
    try:
        assert quorlock.redlock("r", 20_000).acquire()
    finally:
        quorlock.configure(None)
    assert len(long_ttls(caplog)) == 3


@pytest.mark.parametrize("module", [quorlock, aio])
def test_signatures_and_types_name_every_option(module: Any) -> None:
    both = (module.Redlock.lock, quorlock.redlock)
    for function, table in [
        *((it, _options.Settings) for it in both),
        *((it, ManagerOptions) for it in (module.Redlock.__init__, quorlock.configure)),
        (module.Redlock.lease, LockOptions),
    ]:
        shown = inspect.signature(function).parameters
        assert set(table.__annotations__) <= set(shown)
        assert not [it for it in shown.values() if it.kind is it.VAR_KEYWORD]
        for name in table.__annotations__:
            if name in _native.OPTIONS and name not in ("ttl", "auto_extend"):
                assert shown[name].default == _native.OPTIONS[name][0]
                assert f"{name}: {_native.OPTIONS[name][1]}." in str(function.__doc__)
        assert "times in seconds" in str(function.__doc__)
    for item in (module.Redlock, module.Lock, module.Lease):
        typing.get_type_hints(item)
        for name, member in vars(item).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                typing.get_type_hints(member)
    assert typing.get_type_hints(module.Redlock.lock)["return"] is module.Lock


@pytest.mark.parametrize("kind", [Redlock, aio.Redlock])
def test_a_memory_node_without_a_name_is_each_managers_own(kind: Any) -> None:
    nodes = ["memory://"] * 3
    one, two = Redlock(nodes), Redlock(nodes)
    with one.lock("r"), two.lock("r", timeout=0):
        assert not one.lock("r").acquire(blocking=False)
    named = memory_nodes("shared")
    with Redlock(named).lock("r"):
        assert not Redlock(named).lock("r").acquire(blocking=False)
    assert [node.address for node in kind(nodes).nodes] == nodes
