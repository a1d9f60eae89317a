"""Runs test programs, reads their output, and runs failed tests once more."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from environment import PYTHON

Command = Sequence[str | Path]


@dataclass
class Counts:
    """Tests that passed, failed and were left out."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        left_out = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{left_out}"


@dataclass(frozen=True)
class Runner:
    """Reads what a runner of tests wrote."""

    counts: Callable[[str], Counts]
    #: The tests that failed, each with the first line of why.
    failures: Callable[[str], list[str]]
    #: Runs only what failed, or None where that cannot be told (a crash, a build that fails).
    again: Callable[[str], Command | None]


def _count_cargo(output: str) -> Counts:
    found = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output)
    return Counts(*(sum(map(int, column)) for column in zip(*found, strict=True)))


def _cargo_failed(output: str) -> list[str]:
    return re.findall(r"^test (\S+) .*\.\.\. FAILED$", output, re.MULTILINE)


def _cargo_failures(output: str) -> list[str]:
    why = dict(re.findall(r"^thread '(.+?)'.* panicked at .+:\n(.*)$", output, re.MULTILINE))
    return [f"{name} - {why.get(name, '')}".rstrip(" -") for name in _cargo_failed(output)]


def _cargo_again(output: str) -> Command | None:
    # The last lines name the programs: `-p PACKAGE --test NAME`.
    programs = re.findall(r"^ +`(-.+)`$", output, re.MULTILINE)
    names = _cargo_failed(output)
    has_crashed = "(signal: " in output
    if not names or not programs or has_crashed or any("--doc" in each for each in programs):
        return None
    options = [word for program in programs for word in program.split()]
    return ["cargo", "test", *options, "--", "--exact", "--test-threads=1", *names]


def _count_pytest(output: str) -> Counts:
    last = next(
        (line for line in reversed(output.splitlines()) if re.search(r" in [\d.]+s", line)), ""
    )
    found = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}
    failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return Counts(found.get("passed", 0), failed, found.get("skipped", 0) + found.get("xfailed", 0))


def _pytest_failures(output: str) -> list[str]:
    return re.findall(r"^(?:FAILED|ERROR) (.+)$", output, re.MULTILINE)


def _pytest_again(output: str) -> Command | None:
    if not _pytest_failures(output):
        return None
    return [PYTHON, "-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures=none"]


def node_tests(files: Sequence[str | Path]) -> Command:
    """Runs these files of tests, each for ten minutes at most: one that hangs is named."""
    options = ["--test-concurrency=4", "--test-timeout=600000", "--test-reporter=tap"]
    return ["node", "--test", *options, *files]


def _count_node(output: str) -> Counts:
    lines = re.findall(r"^# (pass|fail|skipped|cancelled) (\d+)$", output, re.MULTILINE)
    found = {word: int(number) for word, number in lines}
    failed = found.get("fail", 0) + found.get("cancelled", 0)
    return Counts(found.get("pass", 0), failed, found.get("skipped", 0))


_NODE_FAILURE = re.compile(
    r"^ *not ok \d+ - (.+)\n +---\n(?: +\w+: .*\n)*? +location: '(.+):\d+:\d+'\n"
    r"(?: +\w+: .*\n)*? +error: (.*)$",
    re.MULTILINE,
)


def _node_failures(output: str) -> list[str]:
    return [f"{name} - {why}" for name, _, why in _NODE_FAILURE.findall(output)]


def _node_again(output: str) -> Command | None:
    files = sorted({file for _, file, _ in _NODE_FAILURE.findall(output)})
    has_crashed = re.search(r"^ +signal: 'SIG", output, re.MULTILINE)
    return node_tests(files) if files and not has_crashed else None


CARGO = Runner(_count_cargo, _cargo_failures, _cargo_again)
PYTEST = Runner(_count_pytest, _pytest_failures, _pytest_again)
NODE = Runner(_count_node, _node_failures, _node_again)
