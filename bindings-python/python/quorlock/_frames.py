"""Keeps passwords out of what shows the local variables of a traceback, as `pytest -l` does.

Rich and error trackers show them, too. Owns only the frames of this package.
"""

from __future__ import annotations


def forget_locals(error: BaseException) -> None:
    """Clear the variables of our frames that have ended, in an error and those behind it.

    A frame that still runs deletes its own.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        pending += [one.__cause__, one.__context__]
        step = one.__traceback__
        while step is not None:
            frame, step = step.tb_frame, step.tb_next
            if str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
                try:
                    frame.clear()
                except RuntimeError:
                    continue  # it runs
