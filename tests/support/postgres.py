"""A PostgreSQL server of this run's own, on a unix socket."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.database_server import DatabaseServer

#: Why a test without PostgreSQL is skipped.
MISSING = "PostgreSQL is not installed (apt-get install postgresql)"


def programs() -> Path | None:
    """The folder of the newest server's programs; Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    known = shutil.which("initdb")
    found += [Path(known).resolve()] if known else []
    return found[-1].parent if found else None


class Postgres(DatabaseServer):
    """The server. `folder` is the host that clients connect to."""

    users = ("postgres", "nobody")

    @property
    def settings(self) -> str:
        """What clients connect with."""
        return f"host={self.folder} user=test dbname=postgres"

    def set_up(self) -> None:
        """Makes its files."""
        self.run([self.programs / "initdb", "--no-sync", "--auth=trust", "--username=test",
                  "--encoding=UTF8", "--no-locale", "-D", self.folder / "data"])  # fmt: skip

    def command(self) -> list[str | Path]:
        """What starts it."""
        return [self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder,
                "-c", "fsync=off", "-c", "listen_addresses="]  # fmt: skip

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        told = self.folder / "data" / "postmaster.pid"
        lines = told.read_text().split() if told.exists() else []
        return lines[-1:] == ["ready"]
