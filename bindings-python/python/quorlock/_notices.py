"""What people should hear of, in Python's logging. Owns what becomes of errors there."""

from __future__ import annotations

from ._native import report, take_notices
from ._post import log


def tell() -> None:
    """Log what has come up since, as warnings.

    What goes wrong in logging is reported and stops nothing, save what is no `Exception`: Ctrl-C.
    """
    for text, name, node in take_notices():
        try:
            log.warning(text, extra={"notice": name, "node": node})
        except Exception as error:  # noqa: BLE001, PERF203 - of the user's own filters and handlers
            report(error)
