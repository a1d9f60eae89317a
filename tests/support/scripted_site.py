"""What the guards see of a scripted node: who the server is, its canary, its notes and its clock.
One site stands behind the nodes of several clients. Knows no lock.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from tests.support.resp import bulk, integers

CHECKUP = (Path(__file__).parents[2] / "core/client/src/scripts/checkup.lua").read_text()
_numbers = itertools.count(1)


class Site:
    """A server without keys, which may forget and set its clock."""

    def __init__(self) -> None:
        """A new server."""
        self.ahead = 0.0
        self.restart()

    def restart(self) -> None:
        """It is started anew, with nothing."""
        self.run = f"{next(_numbers):040x}"
        self.flush()

    def flush(self) -> None:
        """Its keys are deleted."""
        self.canary = ""
        self.longest = 0
        self.skew: tuple[str, ...] = ("", "", "")

    @property
    def micros(self) -> int:
        """What its clock shows, in microseconds since 1970."""
        return int((time.time() + self.ahead) * 1_000_000)

    def info(self) -> bytes:
        """The reply to INFO."""
        return bulk(f"# Server\r\nrun_id:{self.run}\r\nmaster_replid:{self.run}\r\n")

    def check_up(self, words: tuple[str, ...]) -> bytes:
        """Does what checkup.lua does; see there for the arguments."""
        _, longest, *skew, canary, expected = words
        if canary and self.canary == expected:
            self.canary = canary
        if int(longest) > 0:
            self.longest = max(self.longest, int(longest))
            if skew[0] or canary:
                self.skew = tuple(skew)
        ahead, *rest = self.skew
        parts = [bulk(self.canary) if self.canary else b"$-1\r\n", b":%d\r\n" % self.micros]
        parts += [b":%d\r\n" % self.longest, bulk(ahead) if ahead else b"$-1\r\n"]
        parts += map(bulk, rest)
        return b"*%d\r\n" % len(parts) + b"".join(parts)

    def forgot(self) -> bytes:
        """The reply to a grant that wants another canary than there is."""
        return integers([5, 0, -2, self.micros])
