"""A MariaDB server of this run's own, on a unix socket."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.support.database_server import DatabaseServer

#: Why a test without MariaDB is skipped.
MISSING = "MariaDB is not installed (apt-get install mariadb-server)"


def programs() -> Path | None:
    """The folder of the server's program; the one that makes its files is in the path."""
    places = [shutil.which("mariadbd"), *map(str, Path("/usr/sbin").glob("mariadbd"))]
    known = next((place for place in places if place), None)
    return Path(known).parent if known and shutil.which("mariadb-install-db") else None


class MariaDb(DatabaseServer):
    """The server, with a database `test`."""

    stop = signal.SIGTERM
    users = ("mysql", "nobody")

    @property
    def socket(self) -> str:
        """Where clients connect, as root without a password."""
        return str(self.folder / "socket")

    def set_up(self) -> None:
        """Makes its files."""
        self.run(["mariadb-install-db", "--no-defaults", f"--datadir={self.folder / 'data'}",
                  "--auth-root-authentication-method=normal"])  # fmt: skip

    def command(self) -> list[str | Path]:
        """What starts it."""
        return [self.programs / "mariadbd", "--no-defaults", f"--datadir={self.folder / 'data'}",
                f"--socket={self.socket}", f"--pid-file={self.folder / 'pid'}",
                "--skip-networking", "--innodb-flush-log-at-trx-commit=0"]  # fmt: skip

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        return "ready for connections" in self.log.read_text()
