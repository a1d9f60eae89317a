"""Gives a server data that it held before, in several ways. Knows nothing of locks.

    with Failback(server) as old:     # what the server holds now
        ...
        old.bring_back()              # is what it holds again, and nothing that came since

All but `OldLog` leave the process running and the connections of its clients open.
"""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.support.binary import server_version
from tests.support.servers import Server
from tests.support.wait import eventually


class OldData(ABC):
    """What a server holds when this is made."""

    #: How its server must be started, as in `Options`.
    OPTIONS: ClassVar[dict[str, Any]] = {}

    def __init__(self, server: Server) -> None:
        """Returns when it is kept."""
        self.server = server
        self._started = contextlib.ExitStack()

    @abstractmethod
    def bring_back(self) -> None:
        """Returns when the server holds it again, and takes writes."""

    def close(self) -> None:
        """Ends what was started for it."""
        self._started.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Failback(OldData):
    """A replica that stopped following takes over, and the old master becomes the master again."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        _hurries(server)
        with contextlib.ExitStack() as started:
            self._replica = started.enter_context(Server())
            _hurries(self._replica)
            self._replica.command("REPLICAOF", server.host, server.port)
            _follows(self._replica)
            self._replica.command("REPLICAOF", "NO", "ONE")
            self._started = started.pop_all()

    def bring_back(self) -> None:
        self.become_replica()
        self.be_promoted()

    def become_replica(self) -> None:
        """The first half: it refuses writes afterwards."""
        _hurries(self.server)  # it may have been started anew since
        self.server.command("REPLICAOF", self._replica.host, self._replica.port)
        _follows(self.server)

    def be_promoted(self) -> None:
        """The second half."""
        self.server.command("REPLICAOF", "NO", "ONE")


class Reload(OldData):
    """A snapshot on disk that the running process loads."""

    # Older servers allow it always, and do not know the option.
    OPTIONS: ClassVar[dict[str, Any]] = (
        {"flags": ("--enable-debug-command", "yes")} if server_version()[1] >= (7,) else {}
    )

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        server.command("SAVE")

    def bring_back(self) -> None:
        self.server.command("DEBUG", "RELOAD", "NOSAVE")


class Swap(OldData):
    """A copy in another database of the server, which is swapped in."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        for key in server.command("KEYS", "*"):
            server.command("COPY", key, key, "DB", 1, "REPLACE")

    def bring_back(self) -> None:
        self.server.command("SWAPDB", 0, 1)


class OldLog(OldData):
    """An older state of the disk of a server that writes down everything before it answers."""

    OPTIONS: ClassVar[dict[str, Any]] = {"appendonly": True}

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        # The name is that of a folder since Redis 7, and of a file before.
        names = ("appendonlydir", "appendonly.aof")
        self._log = next(path for name in names if (path := server.directory / name).exists())
        self._copy = server.directory / "old-log"
        _copy(self._log, self._copy)

    def bring_back(self) -> None:
        self.server.kill()
        _copy(self._copy, self._log)
        self.server.restart()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _hurries(server: Server) -> None:
    """Replication begins at once, and what arrives is loaded at once: each would take a second."""
    server.command("CONFIG", "SET", "repl-diskless-sync", "yes")  # Redis 6.2 would write a file
    server.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    server.command("CONFIG", "SET", "repl-diskless-load", "swapdb")


def _follows(replica: Server) -> None:
    """Returns when it holds what its master holds, and has written that down where it does."""

    def is_in_step() -> bool:
        return "master_link_status:up" in replica.command(
            "INFO", "replication"
        ) and "aof_rewrite_in_progress:1" not in replica.command("INFO", "persistence")

    eventually(is_in_step)
