"""Tests that the documentation is true: its examples run, and the stub matches the built module."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import quorlock
import quorlock.aio

MODULES = [
    quorlock,
    *(
        importlib.import_module(f"quorlock.{module.name}")
        for module in pkgutil.iter_modules(quorlock.__path__)
    ),
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_the_documentation_run(module: ModuleType) -> None:
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(module, globs={}):
        runner.run(test)
    quorlock.configure(None)
    assert runner.failures == 0
    examples[module.__name__] = runner.tries


examples: dict[str, int] = {}


def test_examples_are_found() -> None:
    assert examples["quorlock"] > 10
    assert examples["quorlock.aio"] > 3
    assert examples["quorlock._module"] > 5


def test_the_stub_is_what_was_built() -> None:
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "mypy.stubtest", "quorlock"),
            *("--mypy-config-file", "pyproject.toml"),
            *("--allowlist", "bindings-python/stubtest.txt"),
        ],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_package_is_typed_and_small() -> None:
    folder = Path(quorlock.__path__[0])
    assert (folder / "py.typed").exists()
    assert set(quorlock.__all__) <= set(dir(quorlock))
    assert set(quorlock.aio.__all__) <= set(dir(quorlock.aio))
    # The same names in both, where they mean the same.
    assert set(quorlock.aio.__all__) == set(quorlock.__all__) - {"__version__"}


def test_every_public_thing_is_documented() -> None:
    for module in (quorlock, quorlock.aio):
        for name in module.__all__:
            item = getattr(module, name)
            if not callable(item):
                continue
            assert item.__doc__, name
            if inspect.isclass(item):
                for member, value in vars(item).items():
                    if not member.startswith("_") and callable(value):
                        assert value.__doc__, f"{name}.{member}"
