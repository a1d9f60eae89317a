"""Measures how many lines of the core the Rust tests run: a table, and a failure below the limits.

    python3 scripts/coverage.py

Builds the tests anew with counters (in target/coverage), runs them, and reads the counters with the
tools that come with the compiler. Lines of tests are not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "coverage"
COUNTS = TARGET / "counts"
#: The least share of lines, in percent, by crate.
LIMITS = {"core/protocol": 95.0, "core/client": 85.0}
PACKAGES = ("quorlock-protocol", "quorlock")
#: The golden schedules run the protocol as well.
GOLDEN = ("-p", "quorlock-model", "golden")


@dataclass
class File:
    """One source file."""

    path: Path
    lines: int
    covered: int

    @property
    def percent(self) -> float:
        """The share of lines that ran."""
        return 100 * self.covered / max(self.lines, 1)


def main() -> int:
    """The command line."""
    tools = _tools()
    programs = _run_tests()
    files = _read(tools, programs)
    is_enough = True
    for crate, limit in LIMITS.items():
        of_crate = [file for file in files if file.path.is_relative_to(crate)]
        for file in of_crate:
            if not file.lines:
                continue
            print(f"{file.percent:6.1f} %  {file.covered:5} of {file.lines:5}  {file.path}")
        total = File(Path(crate), *(sum(column) for column in _columns(of_crate)))
        verdict = "" if total.percent >= limit else f"  below the limit of {limit:g} %"
        print(f"{total.percent:6.1f} %  {total.covered:5} of {total.lines:5}  {crate}{verdict}\n")
        is_enough &= not verdict
    return 0 if is_enough else 1


def _columns(files: Iterable[File]) -> list[list[int]]:
    return [[file.lines for file in files], [file.covered for file in files]]


def _tools() -> dict[str, str]:
    root = subprocess.run(
        ["rustc", "--print", "target-libdir"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()
    folder = Path(root).parent / "bin"
    names = ("llvm-profdata", "llvm-cov")
    if not all((folder / name).exists() for name in names) and shutil.which("rustup"):
        subprocess.run(["rustup", "component", "add", "llvm-tools"], check=False, cwd=ROOT)
    found = {name: shutil.which(name, path=str(folder)) or "" for name in names}
    if not all(found.values()):
        sys.exit("the compiler's own tools are wanted: rustup component add llvm-tools")
    return found


def _run_tests() -> list[str]:
    """Runs them; returns the programs that hold the names of the counters."""
    shutil.rmtree(COUNTS, ignore_errors=True)
    packages = [word for package in PACKAGES for word in ("-p", package)]
    programs = []
    for words in (["--lib", "--tests", *packages], list(GOLDEN)):
        built = _cargo(["test", "--no-run", "--message-format=json", *words], capture=True)
        for line in built.splitlines():
            program = json.loads(line).get("executable") if line.startswith("{") else None
            programs += [program] if program else []
        _cargo(["test", *words, "--no-fail-fast"], judged=False)
    return programs


def _cargo(words: Sequence[str], *, capture: bool = False, judged: bool = True) -> str:
    variables = {
        **os.environ,
        "CARGO_TARGET_DIR": str(TARGET),
        "RUSTFLAGS": "-C instrument-coverage",
        "LLVM_PROFILE_FILE": str(COUNTS / "%p-%m.profraw"),
    }
    ran = subprocess.run(
        ["cargo", *words], cwd=ROOT, env=variables, check=False, text=True,
        stdout=subprocess.PIPE if capture else None,
    )  # fmt: skip
    if ran.returncode != 0 and judged:
        sys.exit(f"cargo {' '.join(words)} failed")
    if ran.returncode != 0:
        # Counters make slow, and this is no place to judge: `make test` is.
        print("some tests failed; what they did not reach counts as not run", flush=True)
    return ran.stdout or ""


def _read(tools: dict[str, str], programs: Sequence[str]) -> list[File]:
    merged = COUNTS / "all.profdata"
    raw = sorted(map(str, COUNTS.glob("*.profraw")))
    subprocess.run([tools["llvm-profdata"], "merge", "-sparse", *raw, "-o", merged], check=True)
    objects = [word for program in programs for word in ("--object", program)]
    sources = [str(path) for crate in LIMITS for path in (ROOT / crate / "src").rglob("*.rs")]
    exported = subprocess.run(
        [tools["llvm-cov"], "export", "--format=lcov", f"--instr-profile={merged}", *objects[1:],
         "--sources", *sources],
        capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    return sorted(map(_file, exported.split("end_of_record\n")[:-1]), key=lambda it: it.path)


def _file(record: str) -> File:
    """One record: `SF:` and a path, and `DA:line,count` for every line that could run."""
    lines = record.splitlines()
    path = next(Path(line[3:]) for line in lines if line.startswith("SF:"))
    end = _tests_begin(path)
    counts = [line[3:].split(",")[:2] for line in lines if line.startswith("DA:")]
    own = [int(count) for number, count in counts if int(number) < end]
    return File(path.relative_to(ROOT), len(own), sum(count > 0 for count in own))


def _tests_begin(path: Path) -> float:
    if path.stem == "tests":
        return 0
    lines = path.read_text().splitlines()
    return next((n for n, line in enumerate(lines, 1) if line == "#[cfg(test)]"), float("inf"))


if __name__ == "__main__":
    sys.exit(main())
