"""Makes each fault and ends it again. Knows locks only by name.

An action begins a fault and returns what ends it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from tests.chaos.clients import Clients
from tests.chaos.testbed import Node
from tests.support.link import TO_CLIENT, TO_SERVER
from tests.support.old_data import Failback
from tests.support.ports import free_port
from tests.support.proxy import BOTH, FaultProxy
from tests.support.resp import ReplyError
from tests.support.servers import HOST, Server
from tests.support.wait import eventually

Undo = Callable[[], object]


def _nothing() -> None:
    pass


def _kill(node: Node, _: float) -> Undo:
    node.server.kill()
    return node.server.restart


def _forget(node: Node, _: float) -> Undo:
    node.server.kill()
    node.forget()
    return node.server.restart


def _until_held(nodes: Sequence[Node], names: Sequence[str]) -> None:
    # Not between two holders: somebody who has just come loses the ground under his feet.
    def held() -> bool:
        return any(all(_left(node, name) > 700 for node in nodes) for name in names)

    with contextlib.suppress(TimeoutError):
        eventually(held, 3)


def _roll(nodes: Sequence[Node], names: Sequence[str], _: float) -> Undo:
    _until_held(nodes, names)
    for node in nodes:
        _forget(node, 0)()
    return _nothing


def _forget_one_by_one(nodes: Sequence[Node], names: Sequence[str], lasts: float) -> Undo:
    _until_held(nodes, names)
    steps = [*nodes, nodes[0]]

    def go_on() -> None:
        for number, node in enumerate(steps):
            if number:
                time.sleep(lasts / len(steps))
            _forget(node, 0)()

    thread = threading.Thread(target=go_on)
    thread.start()
    return thread.join


def _fail_back(node: Node, _: float) -> Undo:
    old = Failback(node.server)

    def undo() -> None:
        with old:
            old.bring_back()
        # As Sentinel does it.
        node.server.cut_connections()

    return undo


def _fail_back_to_the_beginning(node: Node, _: float) -> Undo:
    assert node.beginning is not None
    node.beginning.bring_back()
    return _nothing


def _fail_back_together(nodes: Sequence[Node], names: Sequence[str], _: float) -> Undo:
    undos = [_fail_back(node, 0) for node in nodes]
    _until_held(nodes, names)
    for undo in undos:
        undo()
    return _nothing


def _fail_back_to_the_beginning_together(
    nodes: Sequence[Node], names: Sequence[str], _: float
) -> Undo:
    _until_held(nodes, names)
    for node in nodes:
        _fail_back_to_the_beginning(node, 0)
    return _nothing


GROUP_ACTIONS: dict[str, Callable[[Sequence[Node], Sequence[str], float], Undo]] = {
    "rolling": _roll,
    "successive": _forget_one_by_one,
    "failbacks": _fail_back_together,
    "old failbacks": _fail_back_to_the_beginning_together,
}


def _left(node: Node, name: str) -> int:
    """Milliseconds that a key has left there."""
    return int(node.server.command("PTTL", name))


def _pause(node: Node, _: float) -> Undo:
    node.server.pause()
    return node.server.resume


def _reset(node: Node, _: float) -> Undo:
    node.each_link(FaultProxy.reset)
    return _nothing


def _refuse(node: Node, _: float) -> Undo:
    node.each_link(FaultProxy.refuse)
    return lambda: node.each_link(FaultProxy.heal)


def _half_close(node: Node, strength: float) -> Undo:
    direction = TO_CLIENT if strength < 0.5 else TO_SERVER
    node.each_link(lambda link: link.half_close(direction))
    return _nothing


def _half_open(node: Node, strength: float) -> Undo:
    direction = (TO_CLIENT, TO_SERVER, BOTH)[int(strength * 3)]
    node.each_link(lambda link: link.stall(direction))
    return lambda: node.each_link(FaultProxy.heal)


def _cut(node: Node, strength: float) -> Undo:
    node.each_link(lambda link: link.cut_after(int(strength * 400)))
    return lambda: node.each_link(FaultProxy.heal)


def _delay(node: Node, strength: float) -> Undo:
    node.each_link(lambda link: link.delay(0.005 + strength * strength * 0.4))
    return lambda: node.each_link(FaultProxy.heal)


def lose_reply(node: Node, name: str) -> Undo:
    node.each_link(lambda link: link.swallow_reply(name))
    return lambda: node.each_link(FaultProxy.heal)


def _flush_scripts(node: Node, _: float) -> Undo:
    node.server.command("SCRIPT", "FLUSH")
    return _nothing


def _fill_memory(node: Node, _: float) -> Undo:
    node.server.command("CONFIG", "SET", "maxmemory", 1)
    return lambda: node.server.command("CONFIG", "SET", "maxmemory", 0)


def _fill_disk(node: Node, _: float) -> Undo:
    # A save that cannot put its file in place: a directory has the name. Works for root, too.
    file = node.server.directory / "dump.rdb"
    if file.is_file():
        file.unlink()
    (file / "in the way").mkdir(parents=True, exist_ok=True)
    node.server.command("CONFIG", "SET", "save", "3600 1000000")
    with contextlib.suppress(ReplyError):  # one is under way
        node.server.command("BGSAVE")
    eventually(
        lambda: "rdb_last_bgsave_status:err" in node.server.command("INFO", "persistence"), 10
    )
    return lambda: node.server.command("CONFIG", "SET", "save", "")


def _demote(node: Node, _: float) -> Undo:
    # A replica of a master that is not there: it keeps its data and refuses writes.
    node.server.command("REPLICAOF", HOST, free_port())
    return lambda: node.server.command("REPLICAOF", "NO", "ONE")


def _wipe_queues(node: Node, _: float) -> Undo:
    for pattern in ("quorlock:queue:*", "quorlock:alive:*"):
        if keys := node.server.keys(pattern):
            node.server.command("DEL", *keys)
    return _nothing


def _cut_wakes(node: Node, _: float) -> Undo:
    node.server.command("CLIENT", "KILL", "TYPE", "pubsub")
    return _nothing


def _deny_news(node: Node, _: float) -> Undo:
    # Connections that listen already are ended by the server.
    node.server.command("ACL", "SETUSER", "default", "resetchannels", "-publish", "-subscribe")
    return lambda: node.server.command(
        "ACL", "SETUSER", "default", "allchannels", "+publish", "+subscribe"
    )


def _flush(node: Node, _: float) -> Undo:
    node.server.flush()
    return _nothing


def _set_back(node: Node, strength: float) -> Undo:
    node.clock.step(-(0.2 + strength * 2.5))
    return _nothing


def _set_ahead(node: Node, strength: float) -> Undo:
    node.clock.step(0.5 + strength * 40)
    return _nothing


NODE_ACTIONS: dict[str, Callable[[Node, float], Undo]] = {
    "kill": _kill,
    "power cut": _kill,
    "pause": _pause,
    "blackout": _pause,
    "reset": _reset,
    "refuse": _refuse,
    "half close": _half_close,
    "half open": _half_open,
    "cut": _cut,
    "delay": _delay,
    "script flush": _flush_scripts,
    "out of memory": _fill_memory,
    "disk full": _fill_disk,
    "read only": _demote,
    "lost queues": _wipe_queues,
    "lost wakes": _cut_wakes,
    "no news": _deny_news,
    "clock back": _set_back,
    "forget": _forget,
    "flush": _flush,
    "clock ahead": _set_ahead,
    "failback": _fail_back,
    "old failback": _fail_back_to_the_beginning,
}


def _pause_client(clients: Clients, number: int, _: float) -> Undo:
    clients[number].pause()
    return clients[number].resume


def _kill_client(clients: Clients, number: int, _: float) -> Undo:
    clients[number].kill()
    return clients[number].start


def _set_client_clock(clients: Clients, number: int, strength: float) -> Undo:
    clock = clients[number].clock
    # Around the right time, so that it does not drift away for ever.
    clock.step((strength - 0.5) * 7200 - clock.offset)
    return _nothing


def cut_link(link: FaultProxy, strength: float) -> Undo:
    if strength < 0.5:
        link.refuse()
    else:
        link.stall()
    return link.heal


def set_all_ahead(servers: Sequence[Server], strength: float) -> Undo:
    for server in servers:
        server.step_clock(0.2 + strength * 40)
    return _nothing


CLIENT_ACTIONS: dict[str, Callable[[Clients, int, float], Undo]] = {
    "client pause": _pause_client,
    "client kill": _kill_client,
    "client clock": _set_client_clock,
}
