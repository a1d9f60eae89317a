"""The options of a test's server, and how they are written on its command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
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
    #: ACL rules by user name, as in `{"app": "on >secret ~* &* +@all"}`; kept in an ACL file. A
    #: list of rules where one holds a space, as a password may.
    users: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    unix_socket: bool = False
    replica_of: Server | None = None
    #: Keys survive `kill()` and `restart()`.
    appendonly: bool = False
    flags: Sequence[str] = ()
    #: Environment variables of the process, beside those of the harness.
    env: Mapping[str, str] = field(default_factory=dict)
    #: `set_clock()` works. Linux only.
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


def _write_users(options: Options, path: Path) -> Path:
    everything = ("~*", "&*", "+@all")
    password = f">{options.password}" if options.password else "nopass"
    users = {"default": ("on", password, *everything), **options.users}
    users[ADMIN] = ("on", f">{ADMIN}", *everything)
    path.write_text("".join(f"user {name} {_rules(rules)}\n" for name, rules in users.items()))
    return path


def _rules(rules: str | Sequence[str]) -> str:
    words = rules.split() if isinstance(rules, str) else rules
    return " ".join(_without_spaces(word) for word in words)


def _without_spaces(rule: str) -> str:
    """A password by its hash: nothing can be quoted in an ACL file."""
    return f"#{sha256(rule[1:].encode()).hexdigest()}" if rule.startswith(">") else rule
