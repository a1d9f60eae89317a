"""A TCP proxy before one server, which breaks the connection as a test demands.

    with FaultProxy(server) as proxy:
        locks = Redlock([proxy.url, ...])
        swallowed = proxy.swallow_reply("invoice:42")   # the next command that names it
        ...
        swallowed.wait()

Its own thread, so that faults can be set from a test that blocks. It can also speak TLS to its
clients, because the embedded server is built without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.support.link import TO_CLIENT, TO_SERVER, Gate, Link
from tests.support.ports import free_port
from tests.support.servers import HOST, Server
from tests.support.wait import eventually

T = TypeVar("T")
BOTH = "both"
_WAIT = 10.0  # seconds that a test waits for what must happen


class Expectation:
    """Something that the proxy was told to look out for."""

    def __init__(self, text: str, *, swallow: bool) -> None:
        """`text` is looked for in whole commands, arguments included."""
        self.text = text.encode()
        self.swallow = swallow
        self._came = threading.Event()

    @property
    def came(self) -> bool:
        """Whether the command has passed."""
        return self._came.is_set()

    def wait(self, timeout: float = _WAIT) -> None:
        """Returns when the command has passed; raises TimeoutError otherwise."""
        if not self._came.wait(timeout):
            raise TimeoutError(f"no command with {self.text!r} came within {timeout} s")

    def meet(self) -> None:
        """The proxy's word that it came."""
        self._came.set()


#: Of the event loop, before it ends.
_LAST_ROUNDS = 10


class FaultProxy:
    """Passes everything on until told otherwise. Every method may be called from any thread."""

    def __init__(self, server: Server, *, tls: ssl.SSLContext | None = None) -> None:
        """Listens at once; with `tls`, clients must speak TLS (the server never does)."""
        self.server = server
        self.port = free_port()
        self.connections = 0  # accepted so far
        self._tls = tls
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._expected: list[Expectation] = []
        self._listener: asyncio.Server | None = None
        self._closed = False
        self._gates: dict[str, Gate] = self._run(self._open())

    @property
    def address(self) -> str:
        """`host:port` of the proxy."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The server's URL, through the proxy."""
        return self.server.url.replace(self.server.address, self.address).replace(
            "redis://", "rediss://" if self._tls else "redis://"
        )

    # -- faults --------------------------------------------------------------------------------

    def delay(self, seconds: float, direction: str = BOTH) -> None:
        """Everything arrives later, in order."""
        self._each_gate(direction, lambda gate: setattr(gate, "delay", seconds))

    def stall(self, direction: str = BOTH) -> None:
        """Connections stay open and nothing arrives, until `heal()`."""
        self._each_gate(direction, lambda gate: gate.open.clear())

    def strand(self) -> None:
        """What clients send over the connections of now stays on its way; new ones pass.

        It arrives with `arrive()`, also if the client has closed that connection.
        """
        self._each_link(lambda link: link.strand())

    def arrive(self) -> None:
        """What was stranded reaches the server. Returns when that has done it, and closed."""
        links = [link for link in list(self._links) if link.is_stranded]
        self._each_link(lambda link: link.arrive())
        eventually(lambda: not self._links.intersection(links))

    def cut_after(self, count: int, direction: str = TO_CLIENT) -> None:
        """Lets this many more bytes pass, then cuts the connection in the middle."""
        self._each_gate(direction, lambda gate: setattr(gate, "left", count))

    def reset(self) -> None:
        """Cuts all open connections by RST; new ones are accepted."""
        self._each_link(lambda link: link.cut())

    def half_close(self, direction: str = TO_CLIENT) -> None:
        """FIN in one direction on all open connections."""
        self._each_link(lambda link: link.half_close(direction))

    def refuse(self) -> None:
        """Cuts all connections and refuses new ones."""
        self._run(self._close_listener())
        self.reset()

    def swallow_reply(self, text: str) -> Expectation:
        """The next command that contains `text` reaches the server; its reply never arrives.

        Replies to earlier commands still do; then the connection is cut.
        """
        return self._expect(Expectation(text, swallow=True))

    def expect(self, text: str) -> Expectation:
        """Changes nothing: tells when the next command that contains `text` has come by."""
        return self._expect(Expectation(text, swallow=False))

    def heal(self) -> None:
        """Ends all faults. What was stalled arrives; what was cut stays cut."""
        self._run(self._heal())

    def close(self) -> None:
        """Ends all connections and stops listening; more than once is harmless."""
        if not self._closed:
            self._closed = True
            self.refuse()
            self._run(self._finish())

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- on the proxy's own thread -------------------------------------------------------------

    async def _open(self) -> dict[str, Gate]:
        await self._listen()
        return {TO_SERVER: Gate(), TO_CLIENT: Gate()}

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._accept, HOST, self.port, ssl=self._tls, reuse_address=True
            )

    async def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _heal(self) -> None:
        for gate in self._gates.values():
            gate.delay, gate.left = 0.0, None
            gate.open.set()
        self._expected.clear()
        await self._listen()

    async def _finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A client may have closed in the TLS handshake: the transport must handle that first.
        for _ in range(_LAST_ROUNDS if self._tls else 0):
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            upstream = await asyncio.open_connection(self.server.host, self.server.port)
        except OSError:
            writer.transport.abort()
            return
        link = Link((reader, writer), upstream, self._gates, self._on_command)
        self._links.add(link)
        try:
            await link.run()
        except asyncio.CancelledError:
            pass  # close(): the streams module would log a cancelled handler as an error
        finally:
            self._links.discard(link)

    def _on_command(self, command: bytes) -> bool:
        for expected in self._expected:
            if expected.text in command:
                self._expected.remove(expected)
                expected.meet()
                return expected.swallow
        return False

    def _expect(self, expectation: Expectation) -> Expectation:
        self._call(lambda: self._expected.append(expectation))
        return expectation

    def _each_link(self, change: Callable[[Link], object]) -> None:
        self._call(lambda: [change(link) for link in list(self._links)])

    def _each_gate(self, direction: str, change: Callable[[Gate], object]) -> None:
        chosen = (TO_SERVER, TO_CLIENT) if direction == BOTH else (direction,)
        self._call(lambda: [change(self._gates[name]) for name in chosen])

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, _loop()).result(_WAIT)


_loop_lock = threading.Lock()
_the_loop: asyncio.AbstractEventLoop | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """One thread with one loop serves all proxies of the process."""
    global _the_loop
    with _loop_lock:
        if _the_loop is None:
            # Not uvloop, whatever policy a test has set: abort() must send RST.
            _the_loop = asyncio.SelectorEventLoop()
            threading.Thread(target=_serve, args=(_the_loop,), name="proxy", daemon=True).start()
        return _the_loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_forever()
