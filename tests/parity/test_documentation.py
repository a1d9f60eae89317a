"""Compares the defaults that texts for people name with the real ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from quorlock import _native
from tests.parity.test_node import NODE_DEFAULTS, NODE_ONLY, RENAMED, TIMES, camel_case

ROOT = Path(__file__).parents[2]
DAY = 86_400.0

#: As people say it: Python's texts in seconds, the manual as short as it can be.
WORDS: dict[str, tuple[str, str]] = {
    "ttl": ("10 s", "10 s"),
    "drift_factor": ("0.01", "0.01"),
    "node_timeout": ("a fiftieth of the ttl, 50 to 250 ms", "ttl / 50, from 50 ms to 250 ms"),
    "timeout": ("until it is held", "none"),
    "retry_limit": ("no limit", ""),
    "retry_delay": ("0.1 s", "100 ms"),
    "retry_jitter": ("0.05 s", "50 ms"),
    "unreachable_timeout": ("3 s", "3 s"),
    "fencing": ("yes", ""),
    "fence_retention": ("120 s", "120 s"),
    "auto_extend": ("in blocks and decorators yes, for a bare `acquire()` no", ""),
    "max_hold": ("24 hours", "24 h"),
    "restart_guard": ("`auto`", "auto"),
    "clock_guard": ("yes", "on"),
    "max_ttl": ("no limit", "none"),
    "lock_delay": ("0 s", "0 s"),
    "min_hold": ("0 s", "0 s"),
    "on_unreachable": ("`raise`", "raise"),
    "wait": ("`push`", "push"),
    "fair": ("no", "off"),
}
MEANT: dict[str, Callable[[str], object]] = {
    r"([\d.]+) s": float,
    r"([\d.]+) ms": lambda number: float(number) / 1000,
    r"(\d+) hours": lambda number: float(number) * 3600,
    r"(\d+) h": lambda number: float(number) * 3600,
    r"(\d+) days": lambda number: float(number) * DAY,
    r"(\d[\d.]*)": float,
    r"(yes|on)": lambda _: True,
    r"(no|off)": lambda _: False,
    r"`?(auto|push|raise)`?": str,
}


def meant(words: str) -> object:
    """The number in seconds that words stand for; the words where they are no number."""
    for pattern, read in MEANT.items():
        match = re.fullmatch(pattern, words)
        if match:
            return read(match[1])
    return words


def told_in_python() -> dict[str, str]:
    """Every option with its docstring."""
    source = ROOT / "bindings-python" / "python" / "quorlock" / "_options.py"
    told: dict[str, str] = {}
    for item in ast.walk(ast.parse(source.read_text())):
        if not isinstance(item, ast.ClassDef) or item.name not in {
            "Settings",
            "LockOptions",
            "ManagerOptions",
        }:
            continue
        body = [line for line in item.body if not _is_docstring(line, item)]
        for field, text in zip(body[::2], body[1::2], strict=True):
            assert isinstance(field, ast.AnnAssign)
            assert isinstance(field.target, ast.Name)
            assert isinstance(text, ast.Expr)
            told[field.target.id] = " ".join(ast.literal_eval(text.value).split())
    return told


def _is_docstring(line: ast.stmt, item: ast.ClassDef) -> bool:
    return line is item.body[0]


def told_in_node() -> dict[str, str]:
    """Every setting with its comment."""
    source = (ROOT / "bindings-node" / "ts" / "options.ts").read_text()
    found = re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*readonly (\w+)\??:", source, re.DOTALL)
    return {name: " ".join(re.sub(r"\n\s*\*", " ", text).split()) for text, name in found}


@pytest.mark.parametrize("name", WORDS)
def test_the_words_of_python_and_the_manual_mean_the_default(name: str) -> None:
    default = _native.OPTIONS[name][0]
    in_python, in_manual = WORDS[name]
    assert re.search(rf"Default:? {re.escape(in_python)}", told_in_python()[name], re.IGNORECASE)
    if default is not None and name != "auto_extend":
        assert meant(in_python) == default
    if in_manual:
        manual = (ROOT / "core" / "protocol" / "src" / "manual" / "defaults.rs").read_text()
        row = next(line for line in manual.splitlines() if f"| {_title(name)} |" in line)
        assert in_manual in row.split("|")[2]
        if default is not None:
            assert meant(in_manual) == default


def _title(name: str) -> str:
    return name.replace("_", " ").replace("retry jitter", "retry delay")


def test_every_option_is_told_of() -> None:
    assert set(WORDS) == set(_native.OPTIONS)
    assert set(told_in_python()) == set(_native.OPTIONS) | {
        "blocking",
        "on_event",
        "on_lost",
        "owner",
        "raise_on_lost",
    }


@pytest.mark.parametrize("name", [name for name in WORDS if name != "ttl"])
def test_the_words_of_node_mean_its_default(name: str) -> None:
    in_node = RENAMED.get(name, camel_case(name))
    text = told_in_node()[in_node]
    default: object = NODE_DEFAULTS.get(in_node, _native.OPTIONS[name][0])
    match = re.search(r"Default ([\w.]+(?: days| hours)?)", text)
    if default is None:
        assert "Default: " in text
        return
    assert match, text
    words = match[1].rstrip(".")
    if isinstance(default, (bool, str)):
        assert words == str(default).lower()
    elif name in TIMES and in_node not in NODE_DEFAULTS:
        value = meant(words)
        # A bare number is milliseconds.
        assert (float(words) / 1000 if words.isdigit() else value) == default
    else:
        assert float(words) == default


def test_what_only_node_has_is_told_of() -> None:
    for name, value in NODE_ONLY.items():
        assert f"Default {value}." in told_in_node()[name]
