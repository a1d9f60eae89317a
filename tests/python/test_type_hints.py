"""Tests that `typing.get_type_hints` reads all that users call, on every Python that is installed.

Frameworks do so with what is passed to them: those that inject, validate or document.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "bindings-python/python"
NOT_BEFORE = (3, 9)
READS = """
import importlib, inspect, pkgutil, sys, typing, unittest.mock
import quorlock
from quorlock._module import ModuleLock

try:
    import opentelemetry
except ImportError:  # for this Python it is not installed
    for name in ("", ".metrics", ".trace"):
        sys.modules["opentelemetry" + name] = unittest.mock.MagicMock()

def modules():
    yield quorlock
    for found in pkgutil.walk_packages(quorlock.__path__, "quorlock."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield importlib.import_module(found.name)

def members(kind):
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] != "quorlock":
            continue
        for name, member in vars(base).items():
            # What NamedTuple makes cannot be read on every Python.
            is_made = name == "__new__" and issubclass(kind, tuple)
            is_public = not name.startswith("_") or name.endswith("__")
            member = member.fget if isinstance(member, property) else member
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member) and is_public and not is_made:
                yield f"{kind.__qualname__}.{name}", member

def public():
    yield from members(ModuleLock)
    for module in modules():
        for name in module.__all__:
            item = getattr(module, name)
            if not callable(item):
                continue
            yield f"{module.__name__}.{name}", item
            if inspect.isclass(item):
                yield from members(item)

count = 0
for name, item in public():
    if inspect.isclass(item) or inspect.isfunction(item):
        count += 1
        try:
            typing.get_type_hints(item)
        except Exception as error:
            print(name, type(error).__name__, error)
assert count > 150, count
assert typing.get_type_hints(quorlock.Redlock.lock)["return"] is quorlock.Lock
assert typing.get_type_hints(quorlock.Node)["quarantine"] == typing.Optional[float]
"""


def pythons() -> list[str]:
    """This one, and one of each version that is installed."""
    folders = [Path(it) for it in os.environ.get("PATH", "").split(os.pathsep)]
    versions = Path.home() / ".pyenv" / "versions"
    folders += [it / "bin" for it in (versions.iterdir() if versions.is_dir() else ())]
    found = {sys.version_info[:2]: sys.executable}
    for folder in folders:
        for minor in range(9, 20):
            path = shutil.which(f"python3.{minor}", path=str(folder))
            if path is not None and (3, minor) not in found and _runs(path, minor):
                found[3, minor] = path
    return [path for version, path in sorted(found.items()) if version >= NOT_BEFORE]


def _runs(path: str, minor: int) -> bool:
    """Whether it is what its name says: a version manager's stand-in may not be."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return re.match(rf"Python 3\.{minor}\.", done.stdout) is not None


@pytest.mark.parametrize("python", pythons(), ids=lambda it: Path(it).name)
def test_the_types_of_all_that_users_call_can_be_read(python: str) -> None:
    run = subprocess.run(
        [python, "-c", READS],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_type_checkers_refuse_a_block_of_the_other_kind(tmp_path: Path) -> None:
    program = tmp_path / "blocks.py"
    blocks = {
        "with quorlock.Redlock([]).lock('r'): pass": True,
        "async with quorlock.Redlock([]).lock('r'): pass": False,
        "with aio.Redlock([]).lock('r'): pass": False,
        "async with aio.Redlock([]).lock('r'): pass": True,
        "with aio.Redlock([]): pass": False,
        "with quorlock.redlock('r'): pass": True,
        "async with quorlock.redlock('r'): pass": True,
    }
    lines = ["import quorlock", "from quorlock import aio", "async def main() -> None:"]
    program.write_text("\n".join([*lines, *(f"    {block}" for block in blocks)]))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    refused = {int(line) for line in re.findall(r"blocks\.py:(\d+): error", told.stdout)}
    first = len(lines) + 1
    assert refused == {first + at for at, fits in enumerate(blocks.values()) if not fits}
