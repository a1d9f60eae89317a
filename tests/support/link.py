"""One client's connection through the fault proxy, and the faults applied to it.

Splits both directions into protocol items, so that "the reply to that command" is exact also on a
pipelined connection. Decides nothing: FaultProxy tells it what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.support.resp import frame_end

TO_SERVER, TO_CLIENT = "to_server", "to_client"


class Gate:
    """What holds in one direction for every connection of a proxy."""

    def __init__(self) -> None:
        """Open, without delay or limit."""
        self.delay = 0.0
        #: Bytes that may still pass before the connection is cut.
        self.left: int | None = None
        self.open = asyncio.Event()
        self.open.set()


class Link:
    """Client and server, joined by two queues of items with the time each is due."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        gates: dict[str, Gate],
        on_command: Callable[[bytes], bool],
    ) -> None:
        """`on_command` sees each command and says whether its reply is to be swallowed."""
        self._ends = {TO_SERVER: (client[0], server[1]), TO_CLIENT: (server[0], client[1])}
        self._gates = gates
        self._on_command = on_command
        # For each command under way: is its reply to be swallowed?
        self._awaited: deque[bool] = deque()
        self._resp3 = False
        self._was_cut = asyncio.Event()
        self._passes_on = asyncio.Event()
        self._passes_on.set()

    async def run(self) -> None:
        """Returns when both directions have ended or the link was cut."""
        tasks = set()
        for direction in self._ends:
            queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
            tasks.add(asyncio.ensure_future(self._read(direction, queue)))
            tasks.add(asyncio.ensure_future(self._write(direction, queue)))
        tasks_done = asyncio.gather(*tasks)
        cut = asyncio.ensure_future(self._was_cut.wait())
        try:
            ends: set[asyncio.Future[Any]] = {tasks_done, cut}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (cut, tasks_done):
                task.cancel()
            await asyncio.gather(cut, tasks_done, return_exceptions=True)
            for _, writer in self._ends.values():
                writer.transport.abort()

    def cut(self) -> None:
        """Ends both connections by RST, as a crashed host or a firewall does."""
        for _, writer in self._ends.values():
            sock = writer.get_extra_info("socket")
            if sock is not None:  # a TLS connection that has ended has none
                # Linger for zero seconds: close() sends RST instead of FIN.
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._was_cut.set()

    def strand(self) -> None:
        """What the client sends stays on its way until `arrive()`, also when the client is gone."""
        self._passes_on.clear()

    @property
    def is_stranded(self) -> bool:
        """Whether that is so now."""
        return not self._passes_on.is_set()

    def arrive(self) -> None:
        """Ends that."""
        self._passes_on.set()

    def half_close(self, direction: str) -> None:
        """Says "no more data" in one direction; the other stays open."""
        _, writer = self._ends[direction]
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            writer.write_eof()

    async def _read(self, direction: str, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        reader, _ = self._ends[direction]
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                buffer += chunk
                items, swallowed = bytearray(), False
                while not swallowed and (end := frame_end(buffer)) is not None:
                    item = bytes(buffer[:end])
                    del buffer[:end]
                    swallowed = self._passes(direction, item)
                    if not swallowed:
                        items += item
                if items:
                    queue.put_nowait((loop.time() + self._gates[direction].delay, bytes(items)))
                if swallowed:
                    # What came before the swallowed reply is delivered first; then the cut.
                    await queue.join()
                    self.cut()
                    return
        queue.put_nowait((loop.time(), b""))  # the end, behind all that is still due

    def _passes(self, direction: str, item: bytes) -> bool:
        """Notes one item; True when it is a reply that must not arrive."""
        if direction == TO_SERVER:
            swallow = self._on_command(item)
            words = item.upper().split(b"\r\n", 5)
            name = words[2] if len(words) > 2 else b""
            if name == b"HELLO" and words[4:5] == [b"3"]:
                self._resp3 = True
            # Under RESP3 these are answered by push messages only.
            if not (self._resp3 and name.endswith(b"SUBSCRIBE")):
                self._awaited.append(swallow)
            return False
        if item.startswith(b">"):
            return False
        return bool(self._awaited) and self._awaited.popleft()

    async def _write(self, direction: str, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        gate = self._gates[direction]
        _, writer = self._ends[direction]
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, RuntimeError):
            while True:
                due, items = await queue.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await gate.open.wait()
                if direction == TO_SERVER:
                    await self._passes_on.wait()
                if not items:
                    self.half_close(direction)
                    return
                over = gate.left is not None and len(items) >= gate.left
                if gate.left is not None:
                    items = items[: gate.left]
                    gate.left = None if over else gate.left - len(items)
                writer.write(items)
                await writer.drain()
                if over:
                    self.cut()
                    return
                queue.task_done()
