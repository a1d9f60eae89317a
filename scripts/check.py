"""Everything that must hold before a change goes in: lints, types, and the tests of all languages.

    python3 scripts/check.py                 all parts, in order
    python3 scripts/check.py rust python     only these groups
    python3 scripts/check.py --list          names of the parts

Each part prints one line with its time; what it wrote is in target/check/NAME.log and is shown when
it fails. The last line is `N passed, N failed`, where a lint counts as one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import environment
from environment import BIN, PYTHON, ROOT, VENV

LOGS = ROOT / "target" / "check"
CI = bool(os.environ.get("CI"))
_SHOWN = 150  # lines of a failed part's output
_PASSED = re.compile(r"\s*(test .* \.\.\. ok|ok \d+ - .*)$")  # what passed hides what failed
_LIMIT = 1200  # seconds for one part: a hang is a failure, told before whoever waits gives up


@dataclass(frozen=True)
class Part:
    """One command; `counts` reads how many tests ran from its output (None: it has no tests)."""

    name: str
    groups: frozenset[str]
    command: Callable[[], Sequence[str | Path]]
    counts: Callable[[str], Counts] | None = None
    #: Files that the command writes and that are kept in the repository: they must not change.
    generated: Sequence[str] = ()
    #: Whether the last line that it writes belongs beside its name.
    summary: bool = False


@dataclass
class Counts:
    """Tests that passed, failed and were left out."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        left_out = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{left_out}"


@dataclass
class Tally:
    """All parts together."""

    counts: Counts = field(default_factory=Counts)
    broken: list[str] = field(default_factory=list)

    def add(self, name: str, counts: Counts) -> None:
        """Adds one part."""
        self.counts.passed += counts.passed
        self.counts.failed += counts.failed
        self.counts.skipped += counts.skipped
        if counts.failed:
            self.broken.append(name)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "groups", nargs="*", help="lint, rust, model, python, node, build, chaos (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="only print the parts")
    arguments = parser.parse_args()
    wanted = set(arguments.groups)
    unknown = wanted - set().union(*(part.groups for part in PARTS))
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    parts = [part for part in PARTS if not wanted or wanted & part.groups]
    if arguments.list:
        print("\n".join(f"{part.name:28} {' '.join(sorted(part.groups))}" for part in parts))
        return 0
    tally, start = Tally(), time.monotonic()
    if _setup_failed(len(parts)):
        tally.add("setup", Counts(failed=1))
        parts = []
    for number, part in enumerate(parts, 1):
        tally.add(part.name, _run(part, f"[{number:2}/{len(parts)}]"))
    print(f"\n{time.monotonic() - start:.0f} s in all")
    if tally.broken:
        print(f"failed: {', '.join(tally.broken)}")
    print(tally.counts, flush=True)
    return 1 if tally.counts.failed else 0


def _setup_failed(count: int) -> bool:
    start = time.monotonic()
    print(f"[ 0/{count}] {'setup':28} ", end="", flush=True)
    try:
        environment.setup()
    except (environment.SetupError, subprocess.CalledProcessError) as error:
        print(f"FAILED {time.monotonic() - start:6.1f} s\n{error}", flush=True)
        return True
    print(f"ok {time.monotonic() - start:6.1f} s", flush=True)
    return False


def _run(part: Part, label: str) -> Counts:
    print(f"{label} {part.name:28} ", end="", flush=True)
    start, before = time.monotonic(), _contents(part.generated)
    output, code = _capture(part.command(), LOGS / f"{part.name.replace(' ', '-')}.log")
    changed = sorted(name for name, text in _contents(part.generated).items()
                     if before.get(name, text) != text)  # fmt: skip
    counts = part.counts(output) if part.counts else Counts(passed=int(code == 0))
    if part.counts and code == 0 and counts.passed == 0:
        output += "\nno test ran: that is a failure\n"
        code = 1
    if changed:
        output += f"\ngenerated files differ from those committed: {', '.join(changed)}\n"
        code = 1
    if code != 0 and counts.failed == 0:
        counts.failed = 1
    told = f"  {counts}" if part.counts else ""
    if part.summary and output.strip():
        told = f"  {output.strip().splitlines()[-1]}"
    verdict = "FAILED" if counts.failed else "ok"
    print(f"{verdict} {time.monotonic() - start:6.1f} s{told}", flush=True)
    if counts.failed:
        lines = [line for line in output.splitlines() if not _PASSED.match(line)]
        print("\n".join(f"    {line}" for line in lines[-_SHOWN:]), flush=True)
    return counts


def _capture(command: Sequence[str | Path], log: Path) -> tuple[str, int]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w+", errors="replace") as output:
        try:
            code = subprocess.run(
                list(command), cwd=ROOT, env=_variables(), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, timeout=_LIMIT, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            output.write(f"\nended after {_LIMIT} s\n")
            code = 1
        except OSError as error:
            output.write(f"{error}\n")
            code = 1
        output.seek(0)
        return output.read(), code


def _variables() -> dict[str, str]:
    variables = {
        **os.environ,
        "VIRTUAL_ENV": str(VENV),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        # The same interpreter for cargo and for maturin: another one would build pyo3 anew.
        "PYO3_PYTHON": str(PYTHON),
        "NO_COLOR": "1",
        "CARGO_TERM_COLOR": "never",
    }
    variables.pop("FORCE_COLOR", None)
    variables.pop("PYTHONPATH", None)
    return variables


def _contents(names: Sequence[str]) -> dict[str, str]:
    return {name: (ROOT / name).read_text() for name in names if (ROOT / name).exists()}


def _count_cargo(output: str) -> Counts:
    found = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output)
    return Counts(*(sum(map(int, column)) for column in zip(*found, strict=True)))


def _count_pytest(output: str) -> Counts:
    last = next(
        (line for line in reversed(output.splitlines()) if re.search(r" in [\d.]+s", line)), ""
    )
    found = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}
    failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return Counts(found.get("passed", 0), failed, found.get("skipped", 0) + found.get("xfailed", 0))


def _count_node(output: str) -> Counts:
    lines = re.findall(r"^# (pass|fail|skipped|cancelled) (\d+)$", output, re.MULTILINE)
    found = {word: int(number) for word, number in lines}
    failed = found.get("fail", 0) + found.get("cancelled", 0)
    return Counts(found.get("pass", 0), failed, found.get("skipped", 0))


def _cargo(*words: str) -> Callable[[], Sequence[str | Path]]:
    # A clean checkout must build with the lock file as it is.
    locked = ["--locked"] if CI and words[0] != "fmt" else []
    return lambda: ["cargo", words[0], *locked, *words[1:]]


def _python(*words: str) -> Callable[[], Sequence[str | Path]]:
    return lambda: [PYTHON, "-m", *words]


def _npm(*words: str) -> Callable[[], Sequence[str | Path]]:
    return lambda: ["npm", "--silent", "run", *words]


def _node_tests() -> Sequence[str | Path]:
    # By name: what `node --test FOLDER` means differs between Node 20 and 22.
    folders = (ROOT / "tests" / name for name in ("node", "torture"))
    files = sorted(file for folder in folders for file in folder.glob("*.test.*js"))
    return ["node", "--test", "--test-reporter=tap", *files]


def _groups(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Quick parts first, so that a slip is told early; then what the later parts are built from.
PARTS = [
    Part(
        "cargo fmt",
        _groups("lint rust"),
        _cargo("fmt", "--all", "--", "--check", "--color", "never"),
    ),
    Part("ruff check", _groups("lint python"), _python("ruff", "check")),
    Part("ruff format", _groups("lint python"), _python("ruff", "format", "--check")),
    Part("prettier", _groups("lint node"), _npm("format:check")),
    Part(
        "cargo clippy",
        _groups("lint rust"),
        _cargo("clippy", "--workspace", "--all-targets", "--", "-D", "warnings"),
    ),
    Part(
        "cargo test", _groups("rust"), _cargo("test", "--workspace", "--no-fail-fast"), _count_cargo
    ),
    Part("instructions", _groups("rust"), _python("bench.guard")),
    Part(
        "model search",
        _groups("rust model"),
        _cargo("run", "--quiet", "--profile", "model", "-p", "quorlock-model", "--", "search"),
    ),
    Part(
        "build python",
        _groups("build lint python"),
        _python("maturin", "develop", *["--locked"] * CI),
    ),
    Part("mypy", _groups("lint python"), _python("mypy")),
    Part("stubtest", _groups("lint python"), _python("mypy.stubtest", "quorlock")),
    # Before pytest: tests/parity compares the two bindings.
    Part(
        "build node",
        _groups("build lint node python"),
        _npm("build:debug"),
        generated=["bindings-node/native.d.ts"],
    ),
    Part("pytest", _groups("python"), _python("pytest", "-q"), _count_pytest),
    Part("tsc", _groups("lint node"), _npm("typecheck")),
    Part("publint", _groups("lint node"), _npm("publint")),
    Part("node test", _groups("node"), _node_tests, _count_node),
    Part("demo", _groups("python node"), _python("demo")),
    Part(
        "chaos",
        _groups("python node chaos"),
        _python("tests.chaos", "--seconds", "60"),
        summary=True,
    ),
]

if __name__ == "__main__":
    sys.exit(main())
