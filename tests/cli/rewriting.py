"""A proxy that replaces words in what a server says: for servers that cannot be had."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping

from tests.support.servers import HOST, Server


@contextlib.contextmanager
def rewriting(server: Server, words: Mapping[bytes, bytes]) -> Iterator[str]:
    """The address of the proxy. A replacement must be as long as what it replaces."""
    assert all(len(old) == len(new) for old, new in words.items())
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=_accept, args=(listener, server, words), daemon=True).start()
        yield f"redis://{HOST}:{listener.getsockname()[1]}"


def _accept(listener: socket.socket, server: Server, words: Mapping[bytes, bytes]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client = listener.accept()[0]
            upstream = socket.create_connection((server.host, server.port))
            for source, sink, changed in ((client, upstream, {}), (upstream, client, words)):
                arguments = (source, sink, changed)
                threading.Thread(target=_copy, args=arguments, daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket, words: Mapping[bytes, bytes]) -> None:
    with contextlib.suppress(OSError), source, sink:
        while data := source.recv(1 << 20):
            for old, new in words.items():
                data = data.replace(old, new)
            sink.sendall(data)
