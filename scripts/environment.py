"""Gets what building and testing need: `.venv` from requirements-dev.txt, `node_modules`, crates.

Runs on the system's Python with the standard library only, and does nothing the second time.
A Debian without python3-venv is helped by python3-venv (as root) or by virtualenv.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
REQUIREMENTS = ROOT / "requirements-dev.txt"
NODE_MODULES = ROOT / "node_modules"
_OLDEST_PYTHON, _OLDEST_NODE = (3, 11), 20


class SetupError(Exception):
    """Something is missing that only the user can bring."""


def setup() -> None:
    """Brings both environments up to date."""
    _check_tools()
    with ThreadPoolExecutor() as pool:
        parts = (python_environment, node_environment, crates)
        for done in [pool.submit(part) for part in parts]:
            done.result()


def python_environment() -> None:
    """`.venv` with exactly requirements-dev.txt; kept while that file does not change."""
    stamp = VENV / "requirements.sha256"
    wanted = _digest(REQUIREMENTS)
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    if not _has_pip(PYTHON):
        _create_venv()
    _run([PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
          "--requirement", REQUIREMENTS])  # fmt: skip
    stamp.write_text(wanted)


def node_environment() -> None:
    """`node_modules` exactly as locked; kept while the lock file does not change."""
    stamp = NODE_MODULES / ".quorlock-lock.sha256"
    wanted = _digest(ROOT / "package-lock.json")
    if stamp.exists() and stamp.read_text() == wanted:
        return
    # Of what it installed it writes to standard output, of what is wrong to the other.
    _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], is_quiet=True)
    stamp.write_text(wanted)


def crates() -> None:
    """What cargo needs, downloaded while the others are installed."""
    # A clean checkout must build with the lock file as it is.
    locked = ["--locked"] if os.environ.get("CI") else []
    _run(["cargo", "fetch", "--quiet", *locked, "--target", host()])


@cache
def host() -> str:
    """This machine, as the compiler names it."""
    asked = ["rustc", "--print", "host-tuple"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"rustc does not work, install Rust 1.88 or newer: {done.stderr.strip()}")
    return done.stdout.strip()


def _check_tools() -> None:
    if sys.version_info < _OLDEST_PYTHON:
        raise SetupError(f"Python {sys.version.split()[0]} is too old: 3.11 or newer is needed")
    for tool, advice in (
        ("cargo", "install Rust 1.88 or newer: https://rustup.rs"),
        ("rustc", "install Rust 1.88 or newer: https://rustup.rs"),
        ("cc", "install a C compiler: apt-get install gcc"),
        ("node", "install Node.js 20 or newer"),
        ("npm", "install npm (it comes with Node.js; on Debian: apt-get install npm)"),
    ):
        if shutil.which(tool) is None:
            raise SetupError(f"{tool} not found: {advice}")
    answer = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(answer.stdout.strip().lstrip("v").split(".")[0]) < _OLDEST_NODE:
        raise SetupError(f"Node {answer.stdout.strip()} is too old: 20 or newer is needed")


def _create_venv() -> None:
    ways = (_venv_of_python, _venv_of_debian, _venv_of_virtualenv)
    for way in ways:
        shutil.rmtree(VENV, ignore_errors=True)
        try:
            way()
        except (subprocess.CalledProcessError, OSError, SystemExit) as error:
            print(f"setup: {way.__name__.removeprefix('_venv_of_')}: {error}", file=sys.stderr)
            continue
        if _has_pip(PYTHON):
            return
    raise SetupError(
        "no virtual environment can be made: install python3-venv (apt-get install python3-venv) "
        "or virtualenv (pip install virtualenv)"
    )


def _venv_of_python() -> None:
    # Debian leaves ensurepip out of its python3 package.
    venv.create(VENV, with_pip=True)


def _venv_of_debian() -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise OSError("cannot install packages")
    _run(["apt-get", "update", "-qq"])
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "python3-venv"])
    _run([sys.executable, "-m", "venv", VENV])


def _venv_of_virtualenv() -> None:
    # A folder of its own: Debian's Python refuses to let pip change the system (PEP 668).
    target = ROOT / "target" / "virtualenv"
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", target, "virtualenv"])
    environment = {**os.environ, "PYTHONPATH": str(target)}
    _run([sys.executable, "-m", "virtualenv", "--quiet", VENV], environment)


def _has_pip(python: Path) -> bool:
    if not python.exists():
        return False
    answer = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
    return answer.returncode == 0


def _digest(path: Path) -> str:
    # The interpreter counts too: an environment of another one is of no use.
    return hashlib.sha256(path.read_bytes() + sys.version.encode()).hexdigest()


def _run(
    command: Sequence[str | Path],
    environment: dict[str, str] | None = None,
    *,
    is_quiet: bool = False,
) -> None:
    output = subprocess.DEVNULL if is_quiet else None
    subprocess.run(
        list(command),
        cwd=ROOT,
        check=True,
        stdin=subprocess.DEVNULL,
        env=environment,
        stdout=output,
    )


if __name__ == "__main__":
    try:
        setup()
    except SetupError as error:
        sys.exit(f"setup: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"setup: {' '.join(map(str, error.cmd))} failed ({error.returncode})")
