"""The sequencer of a lease: `resource@token` as one text. The core says how it is written."""

from __future__ import annotations

from ._native import LeaseState, read_sequencer, sequencer_text


class Sequencer(str):
    """The names of the locked resources and the fencing token of one lease, as one text.

    A holder hands it to others, which ask `locks.verify(sequencer)` whether that lease is still the
    one that is held. It is a `str` and can be put wherever one can: a header, a message, JSON.
    Several names are joined by `,`. In a name, `%`, `,`, `@` and bytes outside of printable ASCII
    are written as `%XX`. Raises `ConfigError` for a text that is none.

    >>> from quorlock import Sequencer
    >>> sequencer = Sequencer.parse("stock%40berlin,stock%40paris@17")
    >>> sequencer.resources, sequencer.token
    (('stock@berlin', 'stock@paris'), 17)
    >>> str(sequencer)
    'stock%40berlin,stock%40paris@17'
    """

    __slots__ = ("_parts",)

    _parts: tuple[tuple[str, ...], int]

    def __new__(cls, text: str) -> Sequencer:
        """The sequencer that `text` is; see `parse`."""
        written, resources, token = read_sequencer(text)
        self = super().__new__(cls, written)
        self._parts = (resources, token)
        return self

    @classmethod
    def parse(cls, text: str) -> Sequencer:
        """The sequencer that `text` is. Raises `ConfigError` if it is none."""
        return cls(text)

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources."""
        return self._parts[0]

    @property
    def token(self) -> int:
        """The fencing token."""
        return self._parts[1]

    def __reduce__(self) -> tuple[type[Sequencer], tuple[str]]:
        return type(self), (str(self),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


def sequencer_of(lease: LeaseState) -> Sequencer | None:
    """That of a lease; `None` without a fencing token."""
    text = sequencer_text(lease)
    return None if text is None else Sequencer(text)
