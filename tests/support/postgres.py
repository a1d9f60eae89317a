"""A PostgreSQL server of this run's own, on a unix socket. Owns its files and its process."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.support.wait import eventually

#: Why a test without PostgreSQL is skipped.
MISSING = "PostgreSQL is not installed (apt-get install postgresql)"
_READY_WITHIN = 60.0


def programs() -> Path | None:
    """The folder of the newest server's programs; Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    known = shutil.which("initdb")
    found += [Path(known).resolve()] if known else []
    return found[-1].parent if found else None


class Postgres:
    """The server. `folder` is the host that clients connect to."""

    def __init__(self, bin_folder: Path) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="quorlock-pg-", ignore_cleanup_errors=True)
        self.folder = Path(self._home.name)
        # It refuses to run as root.
        self._user = _unprivileged() if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        data, log = self.folder / "data", self.folder / "log"
        self._run([bin_folder / "initdb", "--no-sync", "--auth=trust", "--username=test",
                   "--encoding=UTF8", "--no-locale", "-D", data])  # fmt: skip
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [bin_folder / "postgres", "-D", data, "-k", self.folder, "-c", "fsync=off",
                 "-c", "listen_addresses="],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                user=self._user and self._user.pw_uid, group=self._user and self._user.pw_gid,
            )  # fmt: skip
        try:
            eventually(self._is_ready, within=_READY_WITHIN)
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> str:
        """What clients connect with."""
        return f"host={self.folder} user=test dbname=postgres"

    def close(self) -> None:
        """Stops it and removes its files."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(timeout=30)
        self._home.cleanup()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        told = self.folder / "data" / "postmaster.pid"
        lines = told.read_text().split() if told.exists() else []
        return lines[-1:] == ["ready"]

    def _run(self, command: list[str | Path]) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder,
            user=self._user and self._user.pw_uid, group=self._user and self._user.pw_gid,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("there is no user postgres or nobody to run PostgreSQL as")
