"""Measures the rows about a held lock: renewal, loss, blocks, forks."""

from __future__ import annotations

import time

from bench.compare.rows import BLOCKS, OURS, POTTERY, REDIS_PY, RENEWING, row
from bench.compare.trial import Peer, Trial, addresses, key_of, steal

#: Milliseconds. A renewal falls well before its end in every library.
TTL = 2000
#: Seconds after the end of the validity within which a loss counts as told in time.
IN_TIME = 0.05


@row("renewal by itself")
def renewal(trial: Trial) -> str:
    """Whether the key is there after two ttls, while the program rests."""
    return "yes" if _held(trial, blocked=False) else "no"


@row("renewal while the event loop is blocked", RENEWING)
def blocked(trial: Trial) -> str:
    """The same, while the program computes."""
    return "yes" if _held(trial, blocked=True) else "no"


def _held(trial: Trial, *, blocked: bool) -> bool:
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    peer.begin("hold", ttl=TTL, seconds=3 * TTL / 1000, blocked=blocked)
    peer.finish()  # it is inside
    time.sleep(2 * TTL / 1000)  # still inside
    return sum(key_of(server) is not None for server in cluster) > len(cluster) // 2


@row("loss told, the lock is stolen", RENEWING)
def stolen(trial: Trial) -> str:
    """Another has the keys: by when the holder is told, seen from the end of its validity."""
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    peer.begin("loss", ttl=TTL, seconds=10.0)
    peer.finish()
    steal(cluster)
    return _told(peer)


@row("loss told, all nodes hang", RENEWING)
def hanging(trial: Trial) -> str:
    """The same where no node answers any more."""
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    peer.begin("loss", ttl=TTL, seconds=10.0)
    peer.finish()
    for server in cluster:
        server.pause()
    return _told(peer)


def _told(peer: Peer) -> str:
    answer = peer.finish(20.0)
    if answer is None or answer["after"] is None:
        return "not within 8 s"
    return "in time" if answer["after"] <= IN_TIME else "late"


@row("a block whose lock was stolen", BLOCKS)
def block(trial: Trial) -> str:
    """Its body ends well, after another got the keys."""
    return "ends well" if _out_of_block(trial, fails=False) is None else "fails"


@row("the error of a block's body", BLOCKS)
def body(trial: Trial) -> str:
    """The body fails, after another got the keys: which error the caller sees."""
    return "kept" if _out_of_block(trial, fails=True) == "BodyError" else "masked"


def _out_of_block(trial: Trial, *, fails: bool) -> str | None:
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    peer.begin("block", ttl=20_000, fails=fails)
    peer.finish()
    steal(cluster)
    peer.begin("go on")
    answer = peer.finish()
    came_out: str | None = answer["came_out"] if answer else "nothing"
    return came_out


@row("a forked child leaves the parent's block", (OURS, POTTERY, REDIS_PY))
def fork(trial: Trial) -> str:
    """Whether the parent's keys are there afterwards."""
    cluster = trial.servers()
    peer = trial.peer(addresses(cluster))
    peer.begin("fork", ttl=20_000)
    peer.finish()
    kept = sum(key_of(server) is not None for server in cluster)
    # redis-py knows the first server alone.
    return "stays locked" if kept >= (1 if trial.library == REDIS_PY else 2) else "is freed"
