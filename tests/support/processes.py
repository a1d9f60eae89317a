"""Ends processes that a test has started. Owns the clean-up of their groups and pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Any


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kills the process, which leads a group, and its children.

    A child that hangs would keep a pipe open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
