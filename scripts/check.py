"""Everything that must hold before a change goes in: lints, types, and the tests of all languages.

    python3 scripts/check.py                 all parts, in order
    python3 scripts/check.py rust python     only these groups
    python3 scripts/check.py --list          names of the parts

Each part prints one line with its time; what it wrote is in target/check/NAME.log and is shown when
it fails. The last line is `N passed, N failed`, where a lint counts as one. The model is searched
beside the other parts, with the lowest priority: it needs no servers.

A machine that stands still for a second can fail a test over real servers and real time. So what
failed is run once more by itself. A test that passes then is named at the end: it wants mending. A
crash is never tried again, nor are more than three tests.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import environment
from environment import BIN, PYTHON, ROOT, VENV
from parts import PARTS, Part
from progress import shown
from runners import Command, Counts

LOGS = ROOT / "target" / "check"
_SHOWN = 150  # lines of a failed part's output
_PASSED = re.compile(r"\s*(test .* \.\.\. ok|ok \d+ - .*)$")  # what passed hides what failed
_LIMIT = 2400  # seconds for one part: a hang is a failure, told before the caller gives up
_FEW = 3  # tests of one part that may be tried again


@dataclass
class Result:
    """What one part came to."""

    counts: Counts
    #: What failed: tests by name, else the part's last line.
    failures: list[str] = field(default_factory=list)
    #: Tests that passed only when they ran again.
    unsteady: list[str] = field(default_factory=list)


@dataclass
class Done:
    """A part that has run: what it came to, what it wrote, and how long it took."""

    result: Result
    output: str
    seconds: float


@dataclass
class Tally:
    """All parts together."""

    counts: Counts = field(default_factory=Counts)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)

    def add(self, name: str, seconds: float, result: Result) -> None:
        """Adds one part."""
        self.seconds[name] = seconds
        self.counts.passed += result.counts.passed
        self.counts.failed += result.counts.failed
        self.counts.skipped += result.counts.skipped
        self.failures += [f"{name}: {failure}" for failure in result.failures]
        self.unsteady += [f"{name}: {test}" for test in result.unsteady]

    def tell(self) -> None:
        """Prints what somebody who reads only the end must know."""
        for test in self.unsteady:
            print(f"passed only when it ran again: {test}")
        for failure in self.failures:
            print(f"failed: {failure}")
        print(self.counts, flush=True)


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
        tally.add("setup", 0.0, Result(Counts(failed=1), ["what is needed cannot be set up"]))
        parts = []
    _run_all(parts, tally)
    print(f"\n{time.monotonic() - start:.0f} s in all; {_slowest(tally)}")
    tally.tell()
    return 1 if tally.counts.failed else 0


def _run_all(parts: Sequence[Part], tally: Tally) -> None:
    """Runs the parts in order, and those that need no servers beside the others."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        beside = {part.name: pool.submit(_done, part) for part in parts if part.beside}
        for number, part in enumerate([it for it in parts if not it.beside], 1):
            print(f"[{number:2}/{len(parts)}] {part.name:28} ", end="", flush=True)
            with shown(_log_of(part)):
                done = _done(part)
            _tell(part, done)
            tally.add(part.name, done.seconds, done.result)
        for number, part in enumerate([it for it in parts if it.beside], len(parts) - len(beside)):
            print(f"[{number + 1:2}/{len(parts)}] {part.name:28} ", end="", flush=True)
            with shown(_log_of(part)):
                done = beside[part.name].result()
            _tell(part, done)
            tally.add(part.name, done.seconds, done.result)


def _slowest(tally: Tally) -> str:
    """The parts that took longest."""
    longest = sorted(tally.seconds.items(), key=lambda item: -item[1])[:5]
    return "longest: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in longest)


def _setup_failed(count: int) -> bool:
    start = time.monotonic()
    print(f"[ 0/{count}] {'setup':28} ", end="", flush=True)
    try:
        with shown():
            environment.setup()
    except (environment.SetupError, subprocess.CalledProcessError) as error:
        print(f"FAILED {time.monotonic() - start:6.1f} s\n{error}", flush=True)
        return True
    print(f"ok {time.monotonic() - start:6.1f} s", flush=True)
    return False


def _log_of(part: Part) -> Path:
    return LOGS / f"{part.name.replace(' ', '-')}.log"


def _done(part: Part) -> Done:
    start, log = time.monotonic(), _log_of(part)
    before = _contents(part.generated)
    output, code = _capture(part.command(), log, lowest=part.beside)
    changed = [name for name, text in _contents(part.generated).items()
               if before.get(name, text) != text]  # fmt: skip
    if changed:
        output += f"\ngenerated files differ from those committed: {', '.join(sorted(changed))}\n"
        code = 1
    result = _judged(part, output, code)
    if _passes_again(part, result, output, log.with_suffix(".again.log")):
        result = _mended(result)
    return Done(result, output, time.monotonic() - start)


def _judged(part: Part, output: str, code: int) -> Result:
    lines = output.strip().splitlines() or ["it wrote nothing"]
    if not part.runner:
        return Result(Counts(passed=1)) if code == 0 else Result(Counts(failed=1), lines[-1:])
    counts, failures = part.runner.counts(output), part.runner.failures(output)
    if code == 0 and counts.passed == 0:
        code, lines = 1, ["no test ran"]
    if code != 0 and counts.failed == 0:
        counts.failed = 1
    return Result(counts, (failures or lines[-1:]) if counts.failed else [])


def _passes_again(part: Part, first: Result, output: str, log: Path) -> bool:
    """Runs the few tests that failed once more, if only tests failed: whether all of them pass."""
    if not part.runner or not first.failures or first.counts.failed > _FEW:
        return False
    command = part.runner.again(output)
    if command is None:
        return False
    output, code = _capture(command, log)
    # A filter that finds nothing ends well, too.
    return code == 0 and part.runner.counts(output).passed >= first.counts.failed


def _mended(first: Result) -> Result:
    counts = Counts(first.counts.passed + first.counts.failed, 0, first.counts.skipped)
    return Result(counts, unsteady=first.failures)


def _tell(part: Part, done: Done) -> None:
    result, output, seconds = done.result, done.output, done.seconds
    told = f"  {result.counts}" if part.runner else ""
    if part.summary and output.strip():
        told = f"  {output.strip().splitlines()[-1]}"
    print(f"{'FAILED' if result.failures else 'ok'} {seconds:6.1f} s{told}", flush=True)
    if result.failures or result.unsteady:
        lines = [line for line in output.splitlines() if not _PASSED.match(line)]
        print("\n".join(f"    {line}" for line in lines[-_SHOWN:]), flush=True)


def _capture(command: Command, log: Path, *, lowest: bool = False) -> tuple[str, int]:
    """What it writes, and how it ends; it may run at the lowest priority."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if lowest and shutil.which("nice"):
        command = ["nice", "-n", "19", *command]
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
        # Python has the symbols, not a library to link with: many machines have none.
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        # napi names the target, and cargo keeps such builds apart: so all builds name it.
        "CARGO_BUILD_TARGET": environment.host(),
        "NO_COLOR": "1",
        "CARGO_TERM_COLOR": "never",
        # Most tests wait for a server or a clock.
        "RUST_TEST_THREADS": str(max(4, os.cpu_count() or 1)),
    }
    if sys.platform == "linux":
        # As maturin describes the interpreter, which would build pyo3 anew for its own words.
        variables["PYO3_CONFIG_FILE"] = str(ROOT / "bindings-python" / "abi3.cfg")
    variables.pop("FORCE_COLOR", None)
    variables.pop("PYTHONPATH", None)
    return variables


def _contents(names: Sequence[str]) -> dict[str, str]:
    return {name: (ROOT / name).read_text() for name in names if (ROOT / name).exists()}


if __name__ == "__main__":
    sys.exit(main())
