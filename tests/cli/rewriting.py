"""Proxies that look at what a client and a server say to each other, or change it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

from tests.support.servers import HOST, Server

Change = Callable[[bytes], bytes]


def _as_it_is(data: bytes) -> bytes:
    return data


@contextlib.contextmanager
def rewriting(server: Server, words: Mapping[bytes, bytes]) -> Iterator[str]:
    """The address of a proxy that replaces words of the server, each by one as long."""
    assert all(len(old) == len(new) for old, new in words.items())

    def change(data: bytes) -> bytes:
        for old, new in words.items():
            data = data.replace(old, new)
        return data

    with between(server, to_client=change) as url:
        yield url


@contextlib.contextmanager
def between(
    server: Server, *, to_server: Change = _as_it_is, to_client: Change = _as_it_is
) -> Iterator[str]:
    """The address of a proxy; what the two say is passed through these functions."""
    with socket.create_server((HOST, 0)) as listener:
        arguments = (listener, server, to_server, to_client)
        threading.Thread(target=_accept, args=arguments, daemon=True).start()
        yield f"redis://{HOST}:{listener.getsockname()[1]}"


def _accept(listener: socket.socket, server: Server, to_server: Change, to_client: Change) -> None:
    with contextlib.suppress(OSError):
        while True:
            client = listener.accept()[0]
            upstream = socket.create_connection((server.host, server.port))
            for arguments in ((client, upstream, to_server), (upstream, client, to_client)):
                threading.Thread(target=_copy, args=arguments, daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket, change: Change) -> None:
    with contextlib.suppress(OSError), source, sink:
        while data := source.recv(1 << 20):
            sink.sendall(change(data))
