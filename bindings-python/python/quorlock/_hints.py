"""What `typing.get_type_hints` needs to read the signatures of this package from Python 3.9 on.

Annotations of what users call say `Optional` and `Union`, since Python 3.9 cannot evaluate `|`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

if TYPE_CHECKING:
    from typing_extensions import Self as Self  # noqa: PLC0414 - for others here
    from typing_extensions import Unpack as Unpack  # noqa: PLC0414
else:
    try:
        from typing import Self, Unpack
    except ImportError:  # before Python 3.11
        # : The names only need to exist.
        Self, Unpack = Any, dict

K = TypeVar("K", bound=type)


def evaluated(kind: K) -> K:
    """Evaluate the annotations of a class here.

    Later the class says that its module is the one that users import, which lacks their names.
    """
    kind.__annotations__ = get_type_hints(kind)
    return kind
