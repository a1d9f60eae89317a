"""The `quorlock` command of the wheel: hands the command line to the core."""

from __future__ import annotations

import sys

from ._native import command


def main() -> int:
    """Runs the command, and returns the status to exit with."""
    return command(sys.argv[1:])
