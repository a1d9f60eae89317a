"""How often tests repeat: rarely in an ordinary run, often with `make torture`. As counts.mjs."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("QUORLOCK_TORTURE"))


def times(short: int, full: int) -> int:
    """A number of rounds."""
    return full if FULL else short
