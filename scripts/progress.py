"""Shows on a terminal how long a command has been running, and the last line that it wrote."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_EVERY = 0.5  # seconds
_SAVE, _RESTORE_AND_CLEAR = "\x1b7", "\x1b8\x1b[K"
#: How many columns of the line are taken before.
_TAKEN = 40


@contextlib.contextmanager
def shown(log: Path | None = None) -> Iterator[None]:
    """Shows the progress of the block after the text on the line; only on a terminal.

    `log` is a file that it writes its lines to.
    """
    if not sys.stdout.isatty():
        yield
        return
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(ended, log), daemon=True)
    print(_SAVE, end="", flush=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        print(_RESTORE_AND_CLEAR, end="", flush=True)


def _tell(ended: threading.Event, log: Path | None) -> None:
    began = time.monotonic()
    while not ended.wait(_EVERY):
        text = f"{time.monotonic() - began:4.0f} s  {_last_line(log)}"
        room = max(shutil.get_terminal_size().columns - _TAKEN, 8)
        print(f"{_RESTORE_AND_CLEAR}{text[:room]}", end="", flush=True)


def _last_line(log: Path | None) -> str:
    with contextlib.suppress(OSError, IndexError):
        if log is not None:
            return log.read_text(errors="replace").strip().splitlines()[-1].strip()
    return ""
