"""Measures the rows about one round of an acquisition: time, ids, lost replies, leftovers."""

from __future__ import annotations

import re
import socket
import time
from itertools import pairwise

from bench.compare.rows import ALL, SEVERAL, row
from bench.compare.trial import LIMIT, RESOURCE, WARM_UP, Trial, addresses, key_of
from tests.support.link import TO_CLIENT
from tests.support.wait import eventually

#: Seconds within which a caller that polls asks again.
TO_ASK = 0.5


@row("validity goes by", SEVERAL)
def validity(trial: Trial) -> str:
    """The wall clock of the client is set an hour forward while nodes are asked."""
    cluster, clock = trial.servers(), trial.clock()
    proxies = trial.proxies(cluster)
    peer = trial.peer(addresses(proxies), clock)
    asked = [proxy.expect(RESOURCE) for proxy in proxies]
    for proxy in proxies:
        proxy.stall(TO_CLIENT)
    peer.begin("acquire", ttl=20_000, once=True)
    # Some ask one node after the other: the first must have been asked.
    eventually(lambda: any(expectation.came for expectation in asked))
    clock.step(3600)
    for proxy in proxies:
        proxy.heal()
    answer = peer.finish()
    over = not answer or not answer["held"] or (answer.get("valid_for") or 1) <= 0
    return "the wall clock" if over else "time that has passed"


@row("a round that takes longer than the ttl")
def slow_round(trial: Trial) -> str:
    """Every node answers 0.8 s after it was asked for a lock of 0.4 s."""
    cluster = trial.servers()
    proxies = trial.proxies(cluster)
    peer = trial.peer(addresses(proxies))
    for proxy in proxies:
        proxy.delay(0.4)
    answer = peer.acquire(ttl=400, once=True)
    return "handed out" if answer and answer["held"] else "no lock"


@row("holder id over retries")
def holder_id(trial: Trial) -> str:
    """Another holds the lock: the values that the tries ask with."""
    (server,) = trial.servers(1)
    peer = trial.peer([server.address])
    for key in (RESOURCE, f"redlock:{RESOURCE}"):
        server.command("SET", key, "another", "PX", 60_000)
    with socket.create_connection((server.host, server.port), 5.0) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        peer.begin("acquire", ttl=20_000)
        values = _values(monitor, 2.0)
    if len(values) < 2:
        return "one try"
    return "fresh" if len(set(values)) > 1 else "reused"


@row("a wait for a lock that another holds")
def waiting(trial: Trial) -> str:
    """Whether the caller asks for the key again and again, or is called when it is gone."""
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    for server in cluster:
        for key in (RESOURCE, f"redlock:{RESOURCE}"):
            server.command("SET", key, "another", "PX", 60_000)
    with socket.create_connection((cluster[0].host, cluster[0].port), 5.0) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        peer.begin("acquire", ttl=20_000)
        _lines(monitor, TO_ASK)  # the first try, and what it does to wait
        asks = [line for line in _lines(monitor, TO_ASK) if RESOURCE in line]
    if asks:
        return "polls"
    for server in cluster:
        server.command("DEL", RESOURCE, f"redlock:{RESOURCE}")
    answer = peer.finish(TO_ASK)
    return "is called" if answer and answer["held"] else "gives up"


def _values(monitor: socket.socket, seconds: float) -> list[str]:
    """What clients (not scripts) put beside the key, with how long it stays."""
    found = []
    for line in _lines(monitor, seconds):
        words = re.findall(r'"([^"]*)"', line)
        for key, value in pairwise(words):
            if key in (RESOURCE, f"redlock:{RESOURCE}") and len(value) >= 16:
                found.append(value)
    return found


def _lines(monitor: socket.socket, seconds: float) -> list[str]:
    """What clients (not scripts) send within that time."""
    seen, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        monitor.settimeout(left)
        try:
            seen += monitor.recv(1 << 16)
        except TimeoutError:
            break
    return [line for line in seen.decode().splitlines() if " lua] " not in line]


@row("the reply to a grant is lost")
def lost_reply(trial: Trial) -> str:
    """The node has granted; then the connection is cut."""
    cluster = trial.servers(1)
    (proxy,) = trial.proxies(cluster)
    peer = trial.peer(addresses([proxy]))
    swallowed = proxy.swallow_reply(RESOURCE)
    peer.begin("acquire", ttl=60_000)
    swallowed.wait()
    answer = peer.finish(LIMIT)
    return "gets the lock" if answer and answer["held"] else "locks itself out"


@row("fencing tokens")
def fencing(trial: Trial) -> str:
    """A number that grows for the next holder must outlive the lock on the nodes."""
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    peer.acquire()
    peer.release()
    # Ours keeps them in one table a node; its guards' keys are no tokens.
    guards = {"quorlock:{node}:canary", "quorlock:{node}:notes"}
    # A lock key may stay: a SET of pottery's can land behind its release.
    locks = {f"{before}{name}" for before in ("", "redlock:") for name in (RESOURCE, WARM_UP)}
    left = {name for server in cluster for name in server.command("KEYS", "*")}
    return "yes" if left - guards - locks else "no"


@row("a cancelled acquisition", ("quorlock", "aioredlock", "redis-py `Lock`"))
def cancelled(trial: Trial) -> str:
    """A task is cancelled when the node has granted and the reply is under way."""
    cluster = trial.servers(1)
    (proxy,) = trial.proxies(cluster)
    peer = trial.peer(addresses([proxy]))
    asked = proxy.expect(RESOURCE)
    proxy.delay(0.3, TO_CLIENT)
    peer.begin("cancel", ttl=60_000)
    asked.wait()
    eventually(lambda: key_of(cluster[0]) is not None)
    peer.begin("go on")
    peer.finish()
    peer.begin("idle", seconds=1.0)
    peer.finish()
    return "leaves its key" if key_of(cluster[0]) else "leaves no key"


@row("the release of an expired lock", ALL)
def expired(trial: Trial) -> str:
    """What the caller is told of it."""
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    peer.acquire()
    usual = peer.release()
    peer.acquire(ttl=200)
    eventually(lambda: not any(map(key_of, cluster)))
    told = peer.release()
    if told is None or usual is None:
        return "no answer"
    if told["raised"]:
        return "error after seconds" if told["seconds"] > 1 else "error at once"
    return "not told" if told["told"] == usual["told"] else "told"
