"""The list of contestants: how each is started, and what each can do. Starts nothing."""

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
    #: Renews leases by itself, also those of a pair if it knows no other.
    holds: bool = False
    #: Each of its pairs is a block that renews its lock.
    renews: bool = False

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
                return [prepare.release_build(prepare.ROOT / "target", self.program), *variant]
            case "Rust":
                peers = prepare.TARGET / "rust-peers"
                return [prepare.release_build(peers, self.program), *variant]
            case _:
                return [prepare.TARGET / self.program, *variant]

    def variables(self) -> dict[str, str]:
        """Of its environment, beside those that it inherits."""
        if self.language == "Node":
            return {"QUORLOCK_NATIVE_PATH": str(prepare.addon())}
        return {}


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
            flight=variant != "blocking", holds=variant == "", renews=variant in ("block", "using"),
        )  # fmt: skip


def _node(name: str, program: str, *variants: str, holds: bool = False) -> Iterable[Entrant]:
    """A peer for Node: as documented, as one would set it who knows it, and in other ways."""
    ways = {
        "": ("", name == "redis-semaphore"),
        "tuned": (", tuned", name == "redis-semaphore"),
        "using": (", using", True),
        "once": (", not renewing", False),
    }
    for variant in ("", "tuned", *variants):
        words, renews = ways[variant]
        yield Entrant(
            name=f"{name}{words}", label=f"{name}{words}", role=PEER, language="Node",
            program=program, variant=variant, style="node", holds=holds and variant == "",
            renews=renews,
        )  # fmt: skip


#: A client in C as one would write it at first: what FLOOR is without looking and without DELIFEQ.
PLAIN_C = "plain C"

ENTRANTS: tuple[Entrant, ...] = (
    Entrant(FLOOR, "the floor: the best in C", FLOOR, "C", "floor", style="c", flight=False),
    Entrant(PLAIN_C, "a plain client in C", FLOOR, "C", "floor", "plain", style="c", flight=False),
    *_ours("Rust", "tokio", "quorlock", "plain", "engine", "blocking"),
    *_ours("Python", "sync", "quorlock_sync", "plain", "block"),
    *_ours("Python", "asyncio", "quorlock_aio", "plain"),
    *_ours("Node", "node", "quorlock", "plain", "using"),
    Entrant("rslock", "rslock", PEER, "Rust", "rslock", style="tokio"),
    Entrant("redlock-py", "redlock-py", PEER, "Python", "redlock_py"),
    Entrant("redlock-py, tuned", "redlock-py, tuned", PEER, "Python", "redlock_py", "tuned"),
    Entrant("redlock-ng", "redlock-ng", PEER, "Python", "redlock_ng"),
    Entrant("pottery", "pottery", PEER, "Python", "pottery_redlock", flight=False),
    Entrant("pottery, tuned", "pottery, tuned", PEER, "Python", "pottery_redlock", "tuned",
            flight=False),
    Entrant("redis-py", "redis-py Lock", PEER, "Python", "redis_lock", lone=True),
    Entrant("redis-py asyncio", "redis-py asyncio Lock", PEER, "Python", "redis_lock", "aio",
            style="asyncio", lone=True),
    Entrant("redlock-ng asyncio", "redlock-ng asyncio", PEER, "Python", "redlock_ng", "aio",
            style="asyncio"),
    Entrant("aioredlock", "aioredlock", PEER, "Python", "aioredlock_peer", style="asyncio",
            holds=True),
    *_node("node-redlock 5", "node_redlock_5", "using", holds=True),
    *_node("node-redlock 4", "node_redlock_4"),
    *_node("redis-semaphore", "redis_semaphore", "once", holds=True),
    *_node("redlock-universal", "redlock_universal", "using"),
)  # fmt: skip


def named(name: str) -> Entrant:
    """The entrant of a name in results."""
    return next(entrant for entrant in ENTRANTS if entrant.name == name)
