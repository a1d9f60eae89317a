"""Waits until a condition holds, instead of for a fixed time that may be too short."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], within: float = 20.0) -> None:
    """Returns when `condition()` is true; raises TimeoutError after `within` seconds.

    An AssertionError inside the condition counts as "not yet", and is the cause of the timeout.
    """
    limit = time.monotonic() + within
    pause = 0.001
    while True:
        failure: AssertionError | None = None
        try:
            if condition():
                return
        except AssertionError as error:
            failure = error
        if time.monotonic() > limit:
            raise TimeoutError(f"not true within {within} s") from failure
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
