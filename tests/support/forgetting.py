"""A way to one server that forgets connections, as a firewall does with those that were idle: what
is sent over them then is lost, and neither end is told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from tests.support.servers import HOST, Server

_SIZE = 65_536


class ForgettingWay:
    """Passes on all connections but those that it has forgotten."""

    def __init__(self, server: Server) -> None:
        """Listens at once."""
        self._server = server
        self._listener = socket.create_server((HOST, 0))
        self._sockets: list[socket.socket] = []
        self._forgotten: set[int] = set()
        self._count = 0
        self.url = f"redis://{HOST}:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def forget(self, *numbers: int) -> None:
        """Forget these connections, counted from 0 as they came; all that there are if none."""
        self._forgotten.update(numbers or range(self._count))

    def __enter__(self) -> ForgettingWay:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all connections."""
        for end in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._server.port))
                self._sockets += [client, server]
                number = self._count
                self._count += 1  # before anything is passed on, after which it may be forgotten
                self._start(self._pass_on, number, client, server)
                self._start(self._pass_on, number, server, client)

    def _pass_on(self, number: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while data := source.recv(_SIZE):
                if number not in self._forgotten:
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)
