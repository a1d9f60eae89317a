"""The list of parts that `check.py` runs, in order, each with its command."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from environment import PYTHON, ROOT
from runners import CARGO, NODE, PYTEST, Command, Runner, node_tests

CI = bool(os.environ.get("CI"))


@dataclass(frozen=True)
class Part:
    """One command."""

    name: str
    groups: frozenset[str]
    command: Callable[[], Command]
    #: What runs its tests (None: it has no tests).
    runner: Runner | None = None
    #: Files that the command writes and that are kept in the repository: they must not change.
    generated: Sequence[str] = ()
    #: Whether the last line that it writes belongs beside its name.
    summary: bool = False
    #: Whether it needs no servers and measures no time, and so runs beside the other parts.
    beside: bool = False


def _cargo(*words: str) -> Callable[[], Command]:
    # A clean checkout must build with the lock file as it is.
    locked = ["--locked"] if CI and words[0] != "fmt" else []
    return lambda: ["cargo", words[0], *locked, *words[1:]]


def _python(*words: str) -> Callable[[], Command]:
    return lambda: [PYTHON, "-m", *words]


def _npm(*words: str) -> Callable[[], Command]:
    return lambda: ["npm", "--silent", "run", *words]


def _node_tests() -> Command:
    # By name: what `node --test FOLDER` means differs between Node 20 and 22.
    folders = (ROOT / "tests" / name for name in ("node", "torture"))
    return node_tests(sorted(file for folder in folders for file in folder.glob("*.test.*js")))


def _groups(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Most tests wait for a server or a clock, so files run side by side.
SEVERAL = ["-n", "4", "--dist", "loadfile"]

# The binding for a Python without a GIL, which need not be there for that. Where things are built
# again and again it has a folder of its own: the ordinary one would be built anew after it.
FREE_THREADED = [
    "--quiet",
    *("-p", "quorlock-python"),
    *([] if CI else ["--target-dir", "target/free-threaded"]),
    *("--config", 'env.PYO3_CONFIG_FILE.value="bindings-python/free-threaded.cfg"'),
    *("--config", "env.PYO3_CONFIG_FILE.relative=true"),
    *("--config", "env.PYO3_CONFIG_FILE.force=true"),
]

# What the workspace leaves out, since no binding uses it.
# The whole workspace is named, as its build is there.
TRACING = ["--workspace", "--features", "quorlock/tracing", "--test", "tracing"]

# How cargo builds a crate depends on the features that all selected packages want of it: with all
# three, the addon and the command are linked from what the tests of Rust were built from.
BUILT = ["-p", "quorlock-node", "-p", "quorlock-cli", "-p", "quorlock-python"]

# Quick parts first, so that a slip is told early; then what the later parts are built from.
PARTS = [
    Part(
        "cargo fmt",
        _groups("lint rust"),
        _cargo("fmt", "--all", "--", "--check", "--color", "never"),
    ),
    Part("ruff check", _groups("lint python"), _python("ruff", "check")),
    Part("ruff format", _groups("lint python"), _python("ruff", "format", "--check")),
    Part("circles", _groups("lint"), lambda: [PYTHON, "scripts/circles.py"]),
    Part("named places", _groups("lint"), lambda: [PYTHON, "scripts/named_places.py"]),
    Part(
        "session mutants",
        _groups("lint rust"),
        lambda: [PYTHON, "scripts/session_mutants.py", "--texts"],
    ),
    Part("prettier", _groups("lint node"), _npm("format:check")),
    Part(
        "cargo clippy",
        _groups("lint rust"),
        _cargo("clippy", "--workspace", "--all-targets", "--", "-D", "warnings"),
    ),
    Part(
        "clippy tracing",
        _groups("lint rust"),
        _cargo("clippy", *TRACING, "--lib", "--", "-D", "warnings"),
    ),
    Part("free-threaded", _groups("lint python"), _cargo("check", *FREE_THREADED)),
    Part("cargo test", _groups("rust"), _cargo("test", "--workspace", "--no-fail-fast"), CARGO),
    Part("test tracing", _groups("rust"), _cargo("test", *TRACING), CARGO),
    Part("instructions", _groups("rust"), _python("bench.guard")),
    Part(
        "model search",
        _groups("rust model"),
        _cargo("run", "--quiet", "--profile", "model", "-p", "quorlock-model", "--", "search"),
        beside=True,
    ),
    # The addon and the command. Before pytest: tests/parity compares the two bindings, tests/cli
    # runs the command.
    Part(
        "build addon",
        _groups("build lint node python"),
        _npm("build:addon", "--", "--", *BUILT),
        generated=["bindings-node/native.d.ts"],
    ),
    Part("build node", _groups("build lint node python"), _npm("build:ts")),
    Part(
        "build python",
        _groups("build lint python"),
        _python("maturin", "develop", *["--locked"] * CI),
    ),
    Part("mypy", _groups("lint python"), _python("mypy")),
    Part(
        "stubtest",
        _groups("lint python"),
        _python("mypy.stubtest", "quorlock", "--allowlist", "bindings-python/stubtest.txt"),
    ),
    Part("pytest", _groups("python"), _python("pytest", "-q", "--durations=10", *SEVERAL), PYTEST),
    Part("tsc", _groups("lint node"), _npm("typecheck")),
    Part("publint", _groups("lint node"), _npm("publint")),
    Part("node test", _groups("node"), _node_tests, NODE),
    Part("demo", _groups("python node"), _python("demo")),
    Part(
        "chaos",
        _groups("python node chaos"),
        _python("tests.chaos", "--seconds", "60"),
        summary=True,
    ),
]
