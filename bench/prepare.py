"""Builds and installs what the bench needs: our releases, the peers' environments, the C programs.

Everything goes into target/bench, so that the debug variants of the tests stay as they are.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "bench"
HERE = ROOT / "bench"
#: For ours and most Python peers, and for the one that cannot live beside them.
PYTHON = TARGET / "python" / "bin" / "python"
PYTHON_NG = TARGET / "python-ng" / "bin" / "python"
_TOOLS = ROOT / ".venv" / "bin" / "python"


def prepare() -> None:
    """Builds and installs what has changed."""
    TARGET.mkdir(parents=True, exist_ok=True)
    _say("C programs")
    compile_c(HERE / "contestants" / "c" / "floor.c")
    compile_c(HERE / "delay.c")
    _say("Rust contestants")
    _run("cargo", "build", "--release", "--quiet", "-p", "quorlock-bench")
    peers = HERE / "contestants" / "rust_peers"
    _run("cargo", "build", "--release", "--quiet", "--locked", "--target-dir",
         TARGET / "rust-peers", "--manifest-path", peers / "Cargo.toml")  # fmt: skip
    _say("Python contestants")
    _environment(PYTHON, HERE / "requirements.txt")
    _environment(PYTHON_NG, HERE / "requirements-redlock-ng.txt")
    _wheel()
    _say("Node contestants")
    _node()


def compile_c(source: Path) -> Path:
    """The program made of one C file."""
    program = TARGET / source.stem
    TARGET.mkdir(parents=True, exist_ok=True)
    _run("cc", "-O2", "-Wall", "-Wextra", "-o", program, source)
    return program


def release_build(folder: Path, program: str) -> Path:
    """What cargo has built in its folder; in a folder of the target, if one is named."""
    return folder / os.environ.get("CARGO_BUILD_TARGET", "") / "release" / program


def addon() -> Path:
    """The release build of the Node addon."""
    return next((TARGET / "node").glob("quorlock.*.node"))


def _environment(python: Path, requirements: Path) -> None:
    stamp = python.parent.parent / "requirements.sha256"
    # The versions of peers that the tests use as well have their home there.
    versions = ROOT / "requirements-dev.txt"
    contents = requirements.read_bytes() + versions.read_bytes() + sys.version.encode()
    digest = hashlib.sha256(contents).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    venv.create(python.parent.parent, clear=True, with_pip=False)
    constraint: list[str | Path] = []
    if "==" not in requirements.read_text():
        constraint = ["--constraint", _constraints(versions, python.parent.parent)]
    _run(_TOOLS, "-m", "pip", "--python", python, "install", "--quiet",
         "--disable-pip-version-check", "--requirement", requirements, *constraint)  # fmt: skip
    stamp.write_text(digest)


def _constraints(requirements: Path, folder: Path) -> Path:
    """The versions in `requirements`, without extras, which pip allows in no constraint."""
    constraints = folder / "constraints.txt"
    constraints.write_text(re.sub(r"\[\w+\]", "", requirements.read_text()))
    return constraints


def _wheel() -> None:
    wheels = TARGET / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    _run(_TOOLS, "-m", "maturin", "build", "--quiet", "--release", "--out", wheels)
    _run(_TOOLS, "-m", "pip", "--python", PYTHON, "install", "--quiet", "--no-deps",
         "--disable-pip-version-check", "--force-reinstall", *wheels.glob("*.whl"))  # fmt: skip


def _node() -> None:
    lock = HERE / "package-lock.json"
    stamp = HERE / "node_modules" / ".lock.sha256"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        _run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", where=HERE)
        stamp.write_text(digest)
    _run("npm", "--silent", "run", "build:ts")
    _run("npx", "napi", "build", "--platform", "--release", "--no-js", "--dts", "native.d.ts",
         "--manifest-path", "bindings-node/Cargo.toml",
         "--output-dir", TARGET / "node")  # fmt: skip


def versions() -> dict[str, str]:
    """Of the languages and tools."""

    def first_line(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0]

    return {
        "Python": platform.python_version(),
        "Node": first_line("node", "--version").removeprefix("v"),
        "Rust": first_line("rustc", "--version").split()[1],
        "commit": first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
    }


def uncommitted() -> str:
    """What differs from the last commit, files that git does not know included; a line each."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "status", "--porcelain"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def _say(what: str) -> None:
    print(f"preparing: {what}", file=sys.stderr, flush=True)


def _run(*command: str | Path, where: Path = ROOT) -> None:
    variables = {**os.environ, "PYO3_PYTHON": str(_TOOLS), "NO_COLOR": "1"}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(command), cwd=where, env=variables, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        words: Sequence[str] = [str(word) for word in command]
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}")
