"""How often: little in the ordinary run, in full with `make torture`. counts.mjs is the same."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("QUORLOCK_TORTURE"))


def times(short: int, full: int) -> int:
    """A number of rounds."""
    return full if FULL else short
