"""Refuses blocks of the other kind: `async with` over a blocking lock, `with` over one of asyncio.

Type checkers do not see these methods, and so they refuse such a block, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


class ForBlocking:
    """Refuses `async with` in words."""

    if not TYPE_CHECKING:

        def __aenter__(self) -> object:
            raise TypeError(
                "this is for blocking code: use 'with', or quorlock.aio.Redlock for 'async with'"
            )

        def __aexit__(self, *_: object) -> object:
            """Never reached."""


class ForAsyncio:
    """Refuses `with` in words."""

    if not TYPE_CHECKING:

        def __enter__(self) -> object:
            raise TypeError("this is for asyncio: use 'async with', or quorlock.Redlock for 'with'")

        def __exit__(self, *_: object) -> None:
            """Never reached."""
