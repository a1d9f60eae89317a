"""Where libfaketime is, by which a test sets a server's clock; fetched from Debian if need be.

    python3 scripts/faketime.py        # prints its path, or nothing

Without it the tests that step clocks are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_FOLDER = _ROOT / "target" / "libfaketime"
_NAME = "faketime/libfaketimeMT.so.1"


def library() -> Path | None:
    """`$LIBFAKETIME`, the system's, or one unpacked under target/; fetched at the first call."""
    return _installed() or _fetched()


def _installed() -> Path | None:
    named = os.environ.get("LIBFAKETIME")
    if named:
        return Path(named)
    folders = (Path("/usr/lib"), Path("/usr/local/lib"), _FOLDER / "usr" / "lib")
    return next((path for folder in folders for path in folder.glob(f"*/{_NAME}")), None)


def _fetched() -> Path | None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return None
    _FOLDER.mkdir(parents=True, exist_ok=True)
    # Downloading and unpacking needs no rights; fresh lists of packages do, and may not be needed.
    for commands in ([], ["apt-get", "update", "-qq"]):
        if commands:
            _quietly(commands)
        if _quietly(["apt-get", "download", "-qq", "libfaketime"]):
            break
    for package in _FOLDER.glob("libfaketime_*.deb"):
        _quietly(["dpkg", "-x", str(package), "."])
    return _installed()


def _quietly(command: list[str]) -> bool:
    try:
        result = subprocess.run(
            command,
            cwd=_FOLDER,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


if __name__ == "__main__":
    print(library() or "")
