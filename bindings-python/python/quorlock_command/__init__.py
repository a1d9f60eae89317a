"""The `quorlock` command of the wheel: hands the command line to the core.

A package of its own, which loads the extension module alone: to import `quorlock` with all that it
needs takes longer than a lock does.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder


def main() -> int:
    """Runs the command, and returns the status to exit with."""
    package = _find("quorlock")
    spec = _find("quorlock._native", package.submodule_search_locations)
    if not isinstance(spec.loader, ExtensionFileLoader):
        raise ImportError(f"{spec.origin} is no extension module", name=spec.name)
    native = spec.loader.create_module(spec)
    spec.loader.exec_module(native)
    status: int = native.command(sys.argv[1:])
    return status


def _find(name: str, places: list[str] | None = None) -> ModuleSpec:
    """Where a module is, without importing the package that holds it."""
    spec = PathFinder.find_spec(name, places)
    if spec is None:
        raise ImportError(f"{name} is not installed", name=name)
    return spec
