"""Hands out ports for servers and proxies of tests, each only once.

A port stays with the process that was given it, also while nobody listens there: a client that
goes on dialling a dead server must never meet a server of another test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
import threading
from pathlib import Path

from tests.support.options import HOST

#: Below the range that outgoing connections are given: within it a client that keeps dialling a
#: dead server can be handed the server's own port as its source, connect to itself, and keep the
#: server from coming back.
FIRST, BLOCK, BLOCKS = 20_000, 100, 120

_lock = threading.Lock()
_left: list[int] = []
#: Open as long as the process lives: with them the locks of its blocks would go.
_files: list[int] = []


def free_port() -> int:
    """A port that nobody listens on, and that no other test is given meanwhile."""
    with _lock:
        while True:
            if not _left:
                _left.extend(_take_block())
            port = _left.pop()
            with contextlib.suppress(OSError), socket.create_server((HOST, port)):
                return port


def _take_block() -> range:
    """Ports that belong to this process from now on."""
    folder = Path(tempfile.gettempdir()) / f"quorlock-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for block in random.sample(range(BLOCKS), BLOCKS):
        file = os.open(folder / str(block), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            continue
        _files.append(file)
        return range(FIRST + block * BLOCK, FIRST + (block + 1) * BLOCK)
    raise RuntimeError("other tests have all ports")
