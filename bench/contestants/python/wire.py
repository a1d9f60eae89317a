"""Exchanges lines of JSON between a Python contestant and the bench. Knows nothing of locks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
TTL = 10_000  # milliseconds: the same for everybody
#: Of a peer over redis-py, `--tuned`: a hung node is given the 250 ms that ours gives it.
TUNED: dict[str, Any] = {"socket_timeout": 0.25, "socket_connect_timeout": 0.25}
#: Ours without what the others do not have.
PLAIN: dict[str, Any] = {"fencing": False, "restart_guard": "off", "clock_guard": False}


def arguments() -> tuple[str, list[int]]:
    """The variant ("" for the library's defaults) and the ports of the nodes."""
    words = sys.argv[1:]
    variant = words.pop(0).removeprefix("--") if words and words[0].startswith("--") else ""
    return variant, [int(word) for word in words]


def addresses(ports: list[int]) -> list[tuple[str, int]]:
    """Host and port of each node."""
    return [("127.0.0.1", port) for port in ports]


def urls(ports: list[int]) -> list[str]:
    """The nodes as URLs."""
    return [f"redis://127.0.0.1:{port}" for port in ports]


def say(message: Json) -> None:
    """Writes one line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(line: str, actions: dict[str, Callable[..., Json]]) -> None:
    """Does what a line asks for and says what came of it."""
    request = json.loads(line)
    try:
        say(actions[request.pop("do")](**request))
    except Exception as error:  # noqa: BLE001 - whatever it is, the bench is told
        say({"error": f"{type(error).__name__}: {error}"})
