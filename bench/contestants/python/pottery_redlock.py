"""pottery's Redlock: a thread for each node and call. Variant: `tuned`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pottery import Redlock
from redis import Redis

from bench.contestants.python.threads import serve
from bench.contestants.python.wire import TTL, TUNED, addresses, arguments


class Peer:
    """As its documentation shows."""

    def __init__(self, variant: str, ports: list[int]) -> None:
        options = TUNED if variant == "tuned" else {}
        self._masters = {Redis(host, port, **options) for host, port in addresses(ports)}

    def acquire(self, resource: str) -> Any:
        """Waits for as long as it takes."""
        lock = Redlock(key=resource, masters=self._masters, auto_release_time=TTL / 1000)
        return lock if lock.acquire() else None

    def release(self, held: Any) -> None:
        """Gives it back."""
        held.release()


if __name__ == "__main__":
    serve(Peer(*arguments()), version("pottery"))
