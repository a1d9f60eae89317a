"""Drives another lock library that runs in a process of its own, in Python or in Node alike.

with PeerProcess("node-redlock", cluster_addresses) as peer:
    token = peer.acquire("invoice:42", ttl=5.0)  # None: held by another
    peer.release("invoice:42")
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NODE_PEERS = {
    "node-redlock": "node-redlock.mjs",
    "node-redlock-4": "node-redlock-4.mjs",
    "redlock-universal": "redlock-universal.mjs",
}
PYTHON_PEERS = ("redlock-py", "redis-py", "redis-py-asyncio", "valkey-py", "aioredlock", "pottery")


class PeerError(RuntimeError):
    """The other library raised."""


class PeerProcess:
    """One worker; holds any number of resources, one request at a time."""

    def __init__(self, name: str, addresses: Sequence[str]) -> None:
        """Starts it on `host:port` addresses and waits until it is ready."""
        self.name = name
        self._process = subprocess.Popen(
            [*_program(name), *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            #: Version of the library, as its package says.
            self.version: str = self._read()["version"]
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id, for tests that pause or kill the holder."""
        return self._process.pid

    def acquire(self, resource: str, ttl: float = 10.0) -> str | None:
        """One attempt; the token, or None when held by another. `ttl` in seconds."""
        token: str | None = self._ask(do="acquire", resource=resource, ttl=round(ttl * 1000))
        return token

    def extend(self, resource: str, ttl: float = 10.0) -> bool:
        """Whether the library says that it extended."""
        return bool(self._ask(do="extend", resource=resource, ttl=round(ttl * 1000)))

    def release(self, resource: str) -> bool:
        """Whether the library says that it released."""
        return bool(self._ask(do="release", resource=resource))

    def close(self) -> None:
        """Ends the worker as a crash does: nothing is released."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self.name}: the worker ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _program(name: str) -> list[str]:
    if name in NODE_PEERS:
        return ["node", str(ROOT / "tests" / "node" / "peers" / NODE_PEERS[name])]
    if name in PYTHON_PEERS:
        return [sys.executable, "-m", "tests.support.peers", name]
    raise ValueError(f"unknown peer {name!r}")
