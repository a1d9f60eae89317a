"""Logs notices with Python's logging when they come. Owns the thread that does it.

That is a thread of its own, or the greenlets' hub: never a thread that waits for a lock, and no
thread once the interpreter ends.
"""

from __future__ import annotations

import os
import threading

from ._ends import see_out
from ._hubs import router_of_hub
from ._native import listen as native_listen
from ._native import report, take_notices
from ._router import Dispatcher, log


def listen() -> None:
    """Start logging notices. Must be called once, while an operation is under way.

    Called from Python: a thread of native code must not run Python code, which may be stopped at
    any step when the interpreter ends.
    """
    with _starting:
        if is_heard[0]:
            return
        try:
            hub = router_of_hub()
            if hub is None:
                see_out()
            router = hub or Dispatcher("quorlock-notices")
            native_listen(router.queue, router.stand_by(tell))
        except RuntimeError:
            pass  # the interpreter ends: it starts no thread any more
        is_heard[0] = True


def tell() -> None:
    """Log the notices that came since the last call, as warnings.

    An error in logging stops nothing.
    """
    for text, name, node in take_notices():
        warn(name, text, node)


def warn(name: str, text: str, node: str | None = None) -> None:
    """Log one warning."""
    try:
        log.warning(text, extra={"notice": name, "node": node})
    except BaseException as error:  # noqa: BLE001 - of the user's filters and handlers
        report(error)


def _renew() -> None:
    """In a forked child a thread that does not exist there may hold the guard, and none listens."""
    global _starting
    _starting = threading.Lock()
    is_heard[0] = False


# : Whether a thread listens in this process. A list, so that others can read its current value.
is_heard = [False]
_starting = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
