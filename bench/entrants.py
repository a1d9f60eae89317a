"""Who takes part, how each is started, and what each can do. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench import prepare

FLOOR, OURS, PEER = "floor", "ours", "peer"


@dataclass(frozen=True)
class Entrant:
    """One library in one way of using it."""

    name: str
    label: str
    role: str
    language: str
    program: str
    variant: str = ""
    #: The way its users wait: `sync`, `asyncio`, `node`, `tokio`, `c`.
    style: str = "sync"
    #: Locks on one node only.
    lone: bool = False
    #: Runs several pairs at once.
    flight: bool = True
    #: Renews leases by itself.
    holds: bool = False

    def command(self) -> list[str | Path]:
        """Its program; the ports of the nodes come after it."""
        variant = [f"--{self.variant}"] if self.variant else []
        contestants = prepare.HERE / "contestants"
        match self.language:
            case "Python":
                alone = self.program == "redlock_ng"
                python = prepare.PYTHON_NG if alone else prepare.PYTHON
                return [python, "-m", f"bench.contestants.python.{self.program}", *variant]
            case "Node":
                return ["node", contestants / "node" / f"{self.program}.mjs", *variant]
            case "Rust" if self.role == OURS:
                return [prepare.ROOT / "target" / "release" / self.program, *variant]
            case "Rust":
                return [prepare.TARGET / "rust-peers" / "release" / self.program, *variant]
            case _:
                return [prepare.TARGET / self.program, *variant]


def _ours(language: str, style: str, program: str, *variants: str) -> Iterable[Entrant]:
    """Ours with its defaults, and in other ways."""
    told = {"sync": "Python", "asyncio": "Python asyncio", "node": "Node", "tokio": "Rust"}[style]
    ways = {
        "": "",
        "plain": ", no fencing",
        "block": ", with block",
        "using": ", using",
        "engine": ", on the engine",
        "blocking": ", blocking",
    }
    for variant in ("", *variants):
        yield Entrant(
            name=f"quorlock {told}{ways[variant]}",
            label=f"quorlock {told}{ways[variant]}",
            role=OURS, language=language, program=program, variant=variant, style=style,
            flight=variant != "blocking", holds=variant == "",
        )  # fmt: skip


ENTRANTS: tuple[Entrant, ...] = (
    Entrant(FLOOR, "the floor: bare sockets in C", FLOOR, "C", "floor", style="c", flight=False),
    *_ours("Rust", "tokio", "quorlock", "plain", "engine", "blocking"),
    *_ours("Python", "sync", "quorlock_sync", "plain", "block"),
    *_ours("Python", "asyncio", "quorlock_aio", "plain"),
    *_ours("Node", "node", "quorlock", "plain", "using"),
    Entrant("rslock", "rslock", PEER, "Rust", "rslock", style="tokio"),
    Entrant("redlock-py", "redlock-py", PEER, "Python", "redlock_py"),
    Entrant("redlock-ng", "redlock-ng", PEER, "Python", "redlock_ng"),
    Entrant("pottery", "pottery", PEER, "Python", "pottery_redlock", flight=False),
    Entrant("redis-py", "redis-py Lock", PEER, "Python", "redis_lock", lone=True),
    Entrant("redis-py asyncio", "redis-py asyncio Lock", PEER, "Python", "redis_lock", "aio",
            style="asyncio", lone=True),
    Entrant("redlock-ng asyncio", "redlock-ng asyncio", PEER, "Python", "redlock_ng", "aio",
            style="asyncio"),
    Entrant("aioredlock", "aioredlock", PEER, "Python", "aioredlock_peer", style="asyncio",
            holds=True),
    Entrant("node-redlock 5", "node-redlock 5", PEER, "Node", "node_redlock_5", style="node",
            holds=True),
    Entrant("node-redlock 4", "node-redlock 4", PEER, "Node", "node_redlock_4", style="node"),
    Entrant("redis-semaphore", "redis-semaphore", PEER, "Node", "redis_semaphore", style="node",
            holds=True),
    Entrant("redlock-universal", "redlock-universal", PEER, "Node", "redlock_universal",
            style="node"),
)  # fmt: skip


def named(name: str) -> Entrant:
    """The entrant of a name in results."""
    return next(entrant for entrant in ENTRANTS if entrant.name == name)
