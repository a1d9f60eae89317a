"""A fake Redis node that answers only what it is told to. Knows the calls of this library's client,
and nothing of what an answer means to it.

    node = await ScriptedNode.open()
    ...                                   # a client connects to node.url and sends a grant
    node.commands[-1].kind                # "grant"
    node.answer(node.commands[-1], [1, 7, -2, 0])

What belongs to logging in is answered by itself, and with a `Site` what the guards ask. Like a
server that hangs, it answers in order, and a second connection only when the first is gone.

A first grant comes as commands of the server's own: `SET NX PX`, with fencing `ZADD`, then `GET` of
the canary and `TIME`. It is one command here, with one answer. What these replies
cannot say the client hears by asking again by script, which is no command of its own either.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.resp import bulk, decode, frame_end, integers
from tests.support.scripted_site import CHECKUP, Site

_SCRIPTS = Path(__file__).parents[2] / "core/client/src/scripts"
_KINDS = {"raise_fence": "raise"}
_KEEP_FENCES = (_SCRIPTS / "keep_fences.lua").read_text()
#: The name of a resource that is asked for only to make the client connect; nobody holds it.
WARM_UP = "warm-up"

Reply = bytes | Iterable[int]


@dataclass
class Command:
    """One command of a client; a copy that was sent again after a cut is the same command."""

    kind: str  # grant, extend, revoke, raise or inspect
    holder: str
    ttl: int | None  # milliseconds, of a grant or an extend
    proposal: int | None  # the fencing token that a grant proposes
    relied: str  # what a grant by script wants of the canary: see grant.lua
    words: tuple[str, ...]
    arrived: float  # time.monotonic() of the first copy
    copies: int = 1
    #: Cut the connection instead of answering, however often it comes.
    breaks: bool = False
    is_answered: bool = False


@dataclass
class _Slot:
    """A place in the order of replies."""

    reply: bytes | None = None
    command: Command | None = None
    part: str = ""  # which of the commands of a grant, if it has several
    in_turn: Callable[[], bytes] | None = None  # tells the reply when it is due
    is_look: bool = False


@dataclass
class _Connection:
    writer: asyncio.StreamWriter
    slots: deque[_Slot] = field(default_factory=deque)
    granting: Command | None = None  # what comes next may belong to it
    is_gone: bool = False


class ScriptedNode:
    """One node, on the event loop that opened it."""

    def __init__(self, site: Site | None) -> None:
        """See `open`."""
        self.port = 0
        self.site = site
        #: How many looks of the guards were answered.
        self.looks = 0
        self.commands: list[Command] = []
        self.is_warm = False
        #: Whether revokes are answered by themselves, as done.
        self.takes_back = True
        #: Set, and made anew, whenever something arrives.
        self.news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: list[_Connection] = []
        self._first = asyncio.Condition()
        self._to_come_again: list[Command] = []
        #: What a grant hears when it is asked for again by script, by its holder.
        self._told_later: dict[str, bytes] = {}
        self._digests: dict[str, str] = {}

    @classmethod
    async def open(cls, site: Site | None = None) -> ScriptedNode:
        """A node that listens; with a site it can be looked at by the guards."""
        node = cls(site)
        node._server = await asyncio.start_server(node._accept, "127.0.0.1", 0)
        node.port = node._server.sockets[0].getsockname()[1]
        return node

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    def answer(self, command: Command, reply: Reply) -> None:
        """Replies with the numbers of a script, or with bytes as they are."""
        if not isinstance(reply, bytes) and command.kind == "extend":
            reply = list(reply)[:1]  # its code says everything
        for connection in self._connections:
            for slot in connection.slots:
                if slot.command is command:
                    slot.reply = self._part_of(reply, slot)
                    command.is_answered = True
            self._flush(connection)

    def _part_of(self, reply: Reply, slot: _Slot) -> bytes:
        """What an answer is in one of the slots of its command."""
        command = slot.command
        if not slot.part or command is None:
            return reply if isinstance(reply, bytes) else integers(reply)
        if isinstance(reply, bytes):
            # What is no error ends the connection.
            return reply if slot.part == "SET" or reply.startswith(b"-") else b""
        code, token, *_ = reply
        if code == 1 and token == (command.proposal or 0):
            return b"+OK\r\n" if slot.part == "SET" else b":1\r\n"
        self._told_later[command.holder] = integers(reply)
        return b"$-1\r\n" if slot.part == "SET" else b":1\r\n"

    @property
    def owes_a_look(self) -> bool:
        """Whether a look waits behind a command that is not answered."""
        return any(slot.is_look for connection in self._connections for slot in connection.slots)

    def unanswered_before(self, command: Command) -> list[Command]:
        """What must be answered first, as replies come in order."""
        earlier = self.commands[: self.commands.index(command)]
        return [each for each in earlier if not each.is_answered and not each.breaks]

    def cut(self) -> None:
        """Breaks the connection: what is unanswered may come again."""
        for connection in self._connections[:1]:
            left = [slot.command for slot in connection.slots if slot.command]
            self._to_come_again = [command for command in left if not command.is_answered]
            connection.is_gone = True
            connection.writer.transport.abort()

    async def close(self) -> None:
        """Ends all connections, also those that are about to be made."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            return writer.transport.abort()
        connection = _Connection(writer)
        self._connections.append(connection)
        task = asyncio.ensure_future(self._serve(reader, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    async def _serve(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        try:
            async with self._first:
                await self._first.wait_for(lambda: self._connections[0] is connection)
            buffer = bytearray()
            while chunk := await reader.read(65536):
                buffer += chunk
                while not connection.is_gone and (end := frame_end(buffer)) is not None:
                    words = decode(bytes(buffer[:end]))
                    del buffer[:end]
                    self._take(connection, tuple(map(str, words)))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            connection.is_gone = True
            self._connections.remove(connection)
            connection.writer.transport.abort()
            async with self._first:
                self._first.notify_all()

    def _take(self, connection: _Connection, words: tuple[str, ...]) -> None:
        ready = self._reply_to_login(words)
        if ready is not None:
            connection.slots.append(_Slot(reply=ready))
            return self._flush(connection)
        if self.site is not None and words[:2] == ("EVAL", CHECKUP):
            look = partial(self._look, words[5:])
            connection.slots.append(_Slot(in_turn=look, is_look=True))
            return self._flush(connection)
        if words[:2] == ("EVAL", _KEEP_FENCES):
            connection.slots.append(_Slot(in_turn=lambda: b":%d\r\n" % self._micros))
            return self._flush(connection)
        if words[0] in {"ZADD", "GET", "TIME"}:
            connection.slots.append(self._part(connection.granting, words))
            return self._flush(connection)
        command = self._parse(words)
        connection.granting = None
        if command is None:
            connection.slots.append(_Slot(reply=b"-ERR unknown command\r\n"))
        elif later := self._told_later.pop(command.holder, b"") if command.kind == "grant" else b"":
            connection.slots.append(_Slot(reply=later))
        elif command.kind == "inspect" or WARM_UP in words:
            connection.slots.append(_Slot(reply=self._warm_up(command)))
        else:
            command = self._known(command)
            if words[0] == "SET":
                connection.granting = command
            part = "SET" if words[0] == "SET" else ""
            connection.slots.append(_Slot(command=command, part=part))
            if command.kind == "revoke" and self.takes_back:
                self.answer(command, [1, 0, -2, 0])
            if command.breaks:
                return self.cut()
        self._flush(connection)
        self._tell_news()
        return None

    def _part(self, command: Command | None, words: tuple[str, ...]) -> _Slot:
        """The slot of what comes behind the `SET` of a grant."""
        match words[0]:
            case "GET":
                return _Slot(in_turn=self._canary)
            case "TIME":
                return _Slot(in_turn=self._time)
            case "ZADD" if command is not None:
                command.proposal = int(words[4])
        return _Slot(command=command, part=words[0]) if command else _Slot(reply=b":1\r\n")

    def _look(self, arguments: tuple[str, ...]) -> bytes:
        """The reply to a look of the guards."""
        self.looks += 1
        self._tell_news()
        return self.site.check_up(arguments) if self.site else b""

    def _canary(self) -> bytes:
        return bulk(self.site.canary) if self.site else b"$-1\r\n"

    @property
    def _micros(self) -> int:
        return self.site.micros if self.site else int(time.time() * 1_000_000)

    def _time(self) -> bytes:
        seconds, rest = divmod(self._micros, 1_000_000)
        return b"*2\r\n" + bulk(str(seconds)) + bulk(str(rest))

    def _warm_up(self, command: Command) -> bytes:
        """The reply to what only makes the client connect."""
        self.is_warm = self.is_warm or WARM_UP in command.words
        if command.words[0] == "SET":
            return b"+OK\r\n" if self.site else b"$-1\r\n"
        if command.kind == "inspect" or self.site is None:
            return integers([2, 0, -2, 0])
        if command.kind == "grant" and not self.site.stands(command.relied):
            return self.site.forgot()
        return integers([1, command.proposal or 0, -2, self.site.micros])

    def _known(self, command: Command) -> Command:
        """The command itself, or the earlier one that this is a copy of."""
        for earlier in self._to_come_again:
            # By digest before, as a whole script now: what follows is the same. A grant, with
            # a holder of its own, may have come by the server's own commands.
            is_same = (
                earlier.holder == command.holder
                if command.kind == "grant"
                else (earlier.words[2:] == command.words[2:])
            )
            if earlier.kind == command.kind and is_same:
                self._to_come_again.remove(earlier)
                earlier.copies += 1
                earlier.relied = command.relied
                return earlier
        self.commands.append(command)
        return command

    def _reply_to_login(self, words: tuple[str, ...]) -> bytes | None:
        match [word.upper() for word in words[:2]]:
            case ["ROLE", *_]:
                return b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
            case ["CLIENT", "INFO"]:
                return bulk(f"id={len(self.commands)} addr=127.0.0.1:{self.port}")
            case ["CLIENT" | "AUTH" | "SELECT", *_]:
                return b"+OK\r\n"
            case ["INFO", *_] if self.site is not None:
                return self.site.info()
            case ["SCRIPT", "LOAD"]:
                digest = hashlib.sha1(words[2].encode()).hexdigest()
                self._digests[digest] = words[2]
                return bulk(digest)
        return None

    def _parse(self, words: tuple[str, ...]) -> Command | None:
        now = time.monotonic()
        if words[0] == "SET":
            return Command("grant", words[2], int(words[5]), None, "", words, now)
        if words[0] not in {"EVAL", "EVALSHA"}:
            return None
        text = self._digests.get(words[1], "") if words[0] == "EVALSHA" else words[1]
        kind = _TEXTS.get(text)
        if kind is None:
            return None
        arguments = words[3 + int(words[2]) :]
        if kind == "grant":
            return self._grant(words, arguments, now)
        holder, *rest = arguments
        ttl = int(rest[0].partition("/")[0]) if kind == "extend" else None
        return Command(kind, holder, ttl, None, "", words, now)

    def _grant(self, words: tuple[str, ...], arguments: tuple[str, ...], now: float) -> Command:
        _, relied, holder, ttl, *fence = arguments
        proposal = int(fence[0]) if fence and fence[0] else None
        # What a lease gets back looks like a grant without guards and fence, after an extension.
        known = {each.holder for each in self.commands if each.kind == "extend"}
        is_bare = not relied and proposal is None
        kind = "restore" if is_bare and holder in known else "grant"
        return Command(kind, holder, int(ttl), proposal, relied, words, now)

    def _flush(self, connection: _Connection) -> None:
        slots = connection.slots
        while slots and not connection.is_gone:
            slot = slots[0]
            reply = slot.in_turn() if slot.in_turn else slot.reply
            if reply is None:
                return
            slots.popleft()
            connection.writer.write(reply)

    def _tell_news(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


# : Some of the scripts stand behind a text that they have in common.
_TEXTS = {
    before + path.read_text(): _KINDS.get(path.stem, path.stem)
    for path in sorted(_SCRIPTS.glob("*.lua"))
    for before in ("", (_SCRIPTS / "plain.lua").read_text())
}
