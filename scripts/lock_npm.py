"""Writes package-lock.json anew: run it after changing package.json.

npm leaves out of the lock file what the registry in use does not carry, which for a mirror are the
prebuilt parts of tools for other platforms; `npm ci` then refuses its own lock file. They are
optional and never installed here, so their names and versions are enough.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "package-lock.json"
Entry = dict[str, Any]


def main() -> None:
    """The command line."""
    subprocess.run(
        ["npm", "install", "--package-lock-only", "--loglevel=error"], cwd=ROOT, check=True
    )
    lock: Entry = json.loads(LOCK.read_text())
    packages: dict[str, Entry] = lock["packages"]
    for entry in list(packages.values()):
        entry.pop("funding", None)  # addresses have no place in a lock file
        for name, version in entry.get("optionalDependencies", {}).items():
            path = f"node_modules/{name}"
            if path not in packages and version[0].isdigit():
                packages[path] = _foreign(name, version)
    lock["packages"] = dict(sorted(packages.items()))
    LOCK.write_text(json.dumps(lock, indent=2, ensure_ascii=False) + "\n")


def _foreign(name: str, version: str) -> Entry:
    """The entry of a prebuilt part, its platform read off its name: tar-linux-x64-musl."""
    words = name.split("-")
    entry: Entry = {"version": version, "dev": True, "optional": True}
    systems = [word for word in words if word in _SYSTEMS]
    if systems:
        entry["os"] = systems
        entry["cpu"] = [words[words.index(systems[0]) + 1]]
        libc = {"gnu": "glibc", "musl": "musl"}.get(words[-1])
        if libc and systems == ["linux"]:
            entry["libc"] = [libc]
    elif "wasm32" in words:
        entry["cpu"] = ["wasm32"]
    return entry


_SYSTEMS = ("android", "darwin", "freebsd", "linux", "openharmony", "sunos", "win32")

if __name__ == "__main__":
    main()
