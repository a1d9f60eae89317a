"""The protected resource: counters that check fencing tokens. Knows nothing of locks.

A read counts as a use, too: a counter that noted tokens only at writes would let an old holder's
write in between a new holder's read and write. Beside each counter that looks, one that does not
is kept, to see what would be lost without.

One JSON line is one request, on a unix socket:

    > {"do": "read", "name": "a", "lease": "python-1/7", "token": 5}
    < {"accepted": true, "value": 41, "careless": 41}
    > {"do": "write", "name": "a", "lease": "python-1/7", "token": 5, "value": 42, "careless": 42}
    < {"accepted": true}
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.chaos.history import READ, WRITE, Access

Json = dict[str, Any]


class Counters:
    """All counters of a run."""

    def __init__(self) -> None:
        """All at zero."""
        self.accesses: list[Access] = []
        self.careless_writes = 0
        self._values: dict[str, int] = defaultdict(int)
        self._careless: dict[str, int] = defaultdict(int)
        self._highest: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    @property
    def careless_lost(self) -> int:
        """Increments that the counters without a look at tokens have lost."""
        with self._lock:
            return self.careless_writes - sum(self._careless.values())

    def serve(self, request: Json) -> Json:
        """One request."""
        with self._lock:
            name, token = request["name"], request["token"]
            accepted = token >= self._highest[name]
            if accepted:
                self._highest[name] = token
            kind = READ if request["do"] == READ else WRITE
            if kind == WRITE:
                self._write(name, request, accepted=accepted)
            value = request["value"] if kind == WRITE else self._values[name]
            self.accesses.append(Access(name, request["lease"], token, kind, accepted, value))
            if kind == WRITE:
                return {"accepted": accepted}
            return {"accepted": accepted, "value": value, "careless": self._careless[name]}

    def _write(self, name: str, request: Json, *, accepted: bool) -> None:
        if accepted:
            self._values[name] = request["value"]
        self.careless_writes += 1
        self._careless[name] = request["careless"]


class CounterServer:
    """Serves counters on a unix socket, in threads of its own."""

    def __init__(self, path: Path) -> None:
        """Listens at once."""
        self.counters = counters = Counters()

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                # A client that was killed leaves its connection in whatever state.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    for line in self.rfile:
                        answer = json.dumps(counters.serve(json.loads(line)))
                        self.wfile.write(answer.encode() + b"\n")

        class Listener(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 64

        self._listener = Listener(str(path), Handler)
        threading.Thread(target=self._listener.serve_forever, name="counter", daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._listener.shutdown()
        self._listener.server_close()
