"""Ends a forked child whose last Python code is not that of a main thread.

A thread that forks is the main thread of the child. If its function returns there instead of
exiting, nothing ends the interpreter: the process would run until its last thread ends, and the
engine's thread never does.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from ._router import finish, threads


def see_out() -> None:
    """End such a child when its main thread and all threads that it has started have ended.

    It ends as it would without this package: with status 0, and nothing run at its exit.
    """
    main = threading.main_thread()
    if type(main).__name__ in _OTHERS:
        return
    threading.Thread(target=_wait, args=(main,), name="quorlock-end", daemon=True).start()


def _wait(main: threading.Thread) -> None:
    main.join()
    ours = {threading.get_ident(), *(thread.ident for thread in threads())}
    while set(sys._current_frames()) - ours:
        time.sleep(_PATIENCE)
        ours.update(thread.ident for thread in threads())
    finish()
    os._exit(0)


#: An ordinary main thread, and one that Python did not start and cannot wait for.
_OTHERS = ("_MainThread", "_DummyThread")
_PATIENCE = 0.05  # seconds
