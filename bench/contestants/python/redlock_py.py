"""redlock-py: asks the nodes one after the other. Variant: `tuned`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from redlock import Redlock

from bench.contestants.python.threads import serve
from bench.contestants.python.wire import TTL, TUNED, addresses, arguments


class Peer:
    """As its documentation shows."""

    def __init__(self, variant: str, ports: list[int]) -> None:
        options = TUNED if variant == "tuned" else {}
        nodes = [{"host": host, "port": port, "db": 0} for host, port in addresses(ports)]
        self._locks = Redlock([{**node, **options} for node in nodes])

    def acquire(self, resource: str) -> Any:
        """False after three tries."""
        return self._locks.lock(resource, TTL) or None

    def release(self, held: Any) -> None:
        """Never says whether it did."""
        self._locks.unlock(held)


if __name__ == "__main__":
    serve(Peer(*arguments()), version("redlock-py"))
