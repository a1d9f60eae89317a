"""Measures the rows about nodes: down, hung, forgetful, with another clock, or one server twice."""

from __future__ import annotations

import contextlib

from bench.compare.rows import SEVERAL, row
from bench.compare.trial import LIMIT, RESOURCE, Failed, Trial, addresses, key_of
from tests.support.wait import eventually

#: Seconds within which a pair counts as undisturbed by a node that is down or hangs.
AT_ONCE = 1.0


@row("several independent nodes")
def several(trial: Trial) -> str:
    """On how many of three servers the key is."""
    cluster = trial.servers()
    trial.peer(addresses(cluster)).acquire()
    with contextlib.suppress(TimeoutError):
        # It may be told before the last node has it.
        eventually(lambda: all(map(key_of, cluster)), within=2.0)
        return "yes"
    return "no"


@row("one of three nodes down", SEVERAL)
def down(trial: Trial) -> str:
    """It dies while the library is connected."""
    return _with_one_lost(trial, "kill")


@row("one of three nodes hung", SEVERAL)
def hung(trial: Trial) -> str:
    """It is stopped: connections stay open and nothing is answered."""
    return _with_one_lost(trial, "pause")


def _with_one_lost(trial: Trial, fault: str) -> str:
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    getattr(cluster[0], fault)()
    answer, seconds = peer.pair()
    if answer is None:
        return f"no pair in {LIMIT:g} s"
    if answer.get("raised"):
        return "raises" + ", leaves keys" * any(map(key_of, cluster[1:]))
    if not answer["held"]:
        return "no lock"
    # The next pair, as the first may be slow once.
    answer, seconds = peer.pair()
    if answer is None:
        return f"no pair in {LIMIT:g} s"
    return "goes on" if seconds < AT_ONCE else f"{seconds:.0f} s a pair"


@row("an even split of votes", SEVERAL)
def split(trial: Trial) -> str:
    """Two of four nodes belong to another; one try."""
    cluster = trial.servers(4)
    peer = trial.peer(addresses(cluster))
    for server in cluster[:2]:
        for key in (RESOURCE, f"redlock:{RESOURCE}"):
            server.command("SET", key, "another", "PX", 60_000)
    peer.begin("acquire", ttl=20_000, once=True)
    return "never settles" if peer.finish(5.0) is None else "settles"


@row("two of three nodes restart without their keys", SEVERAL)
def restart(trial: Trial) -> str:
    """Whether another process gets what is still held."""
    cluster = trial.servers()
    first, second = (trial.peer(addresses(cluster)) for _ in range(2))
    first.acquire()
    eventually(lambda: all(map(key_of, cluster)))
    for server in cluster[1:]:
        server.restart()
    answers = [second.acquire(once=True) for _ in range(3)]
    return "counts them" if any(it and it["held"] for it in answers) else "holds them back"


@row("the clock of a node set forward", SEVERAL)
def forward(trial: Trial) -> str:
    """The holder has two of three nodes; on one of these the key expires an hour too soon."""
    cluster = trial.servers(clock=True)
    first, second = (trial.peer(addresses(cluster)) for _ in range(2))
    first.acquire()
    eventually(lambda: all(map(key_of, cluster)))
    cluster[0].command("DEL", RESOURCE, f"redlock:{RESOURCE}")
    cluster[1].set_clock(3600)
    answers = [second.acquire(once=True) for _ in range(3)]
    return "counts them" if any(it and it["held"] for it in answers) else "holds them back"


@row("two databases of one server as two nodes", SEVERAL)
def databases(trial: Trial) -> str:
    """The third node belongs to another: one server would be a majority."""
    return _one_server_twice(trial, "/0", "/1")


@row("two names of one server as two nodes", SEVERAL)
def names(trial: Trial) -> str:
    """The same, by two addresses."""
    return _one_server_twice(trial, "", "", "localhost")


def _one_server_twice(trial: Trial, one: str, two: str, name: str = "127.0.0.1") -> str:
    twice, other = trial.servers(2)
    nodes = [f"{twice.address}{one}", f"{name}:{twice.port}{two}", other.address]
    try:
        peer = trial.peer(nodes)
    except Failed:
        return "refused"
    for key in (RESOURCE, f"redlock:{RESOURCE}"):
        other.command("SET", key, "another", "PX", 60_000)
    answer = peer.acquire(once=True)
    if answer and answer.get("raised") == "ConfigError":
        return "refused"
    return "counts twice" if answer and answer["held"] else "counts once"
