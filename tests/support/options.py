"""How a test wants its server, and how that is said on the server's command line."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.servers import Server

HOST = "127.0.0.1"
ADMIN = "harness"  # the harness's own ACL user, so that a test may lock out everybody else


@dataclass(frozen=True)
class Options:
    """How to start a server. Everything else goes into `flags`, as on the command line."""

    password: str | None = None
    #: ACL rules by user name, as in `{"app": "on >secret ~* &* +@all"}`; kept in an ACL file.
    users: Mapping[str, str] = field(default_factory=dict)
    unix_socket: bool = False
    replica_of: Server | None = None
    #: Keys survive `kill()` and `restart()`.
    appendonly: bool = False
    flags: Sequence[str] = ()
    #: `set_clock()` works; needs libfaketime.
    clock: bool = False


def arguments(options: Options, port: int, directory: Path, socket_path: str) -> Iterator[str]:
    """The server's command line; writes its ACL file where there is one."""
    yield from ("--port", str(port), "--bind", HOST, "--dir", str(directory))
    yield from ("--save", "", "--appendonly", "yes" if options.appendonly else "no")
    if options.appendonly:
        yield from ("--appendfsync", "always")
    if options.unix_socket:
        yield from ("--unixsocket", socket_path)
    if options.users:
        yield from ("--aclfile", str(_write_users(options, directory / "users.acl")))
    elif options.password:
        yield from ("--requirepass", options.password)
    if options.replica_of is not None:
        yield from ("--replicaof", options.replica_of.host, str(options.replica_of.port))
        if options.replica_of.options.password:
            yield from ("--masterauth", options.replica_of.options.password)
    yield from options.flags


def environment(options: Options, clock_file: Path) -> dict[str, str]:
    """What is added to the server's environment."""
    if not options.clock:
        return {}
    library = faketime_library()
    if library is None:
        raise RuntimeError("there is no libfaketime: a server's clock cannot be set")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock_file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@functools.cache
def faketime_library() -> Path | None:
    """Where libfaketime is, as scripts/faketime.py finds it; None if it is not to be had."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "faketime.py"
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) if found.stdout.strip() else None


def _write_users(options: Options, path: Path) -> Path:
    rules = {"default": "on nopass ~* &* +@all", **options.users}
    if options.password and "default" not in options.users:
        rules["default"] = f"on >{options.password} ~* &* +@all"
    rules[ADMIN] = f"on >{ADMIN} ~* &* +@all"
    path.write_text("".join(f"user {name} {rule}\n" for name, rule in rules.items()))
    return path
