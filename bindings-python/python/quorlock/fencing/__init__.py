"""Helpers that refuse a write whose fencing token is not the newest.

    from quorlock import fencing

    fence = fencing.FencedRedis(client, "fence:invoice:42")
    with locks.lock("invoice:42", ttl=10) as lease:
        fence.set("state:42", "paid", lease.fencing_token)

A holder that paused for longer than its lease is refused with `StaleToken` once a later holder has
written. They need no lock, no server of `quorlock` and no other package: only the client or cursor
that they are given, and the token.
"""

from __future__ import annotations

from ._objects import FencedObject
from ._redis import FencedRedis
from ._sql import SqlFence
from ._tokens import StaleToken

__all__ = ["FencedObject", "FencedRedis", "SqlFence", "StaleToken"]

# As in `quorlock`.
for _type in (FencedObject, FencedRedis, SqlFence, StaleToken):
    _type.__module__ = __name__
