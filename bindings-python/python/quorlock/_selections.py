"""Counts the commands by which a client of redis-py or valkey-py leaves its database.

Owns the client's callbacks for the replies to them. It must not know what a count means.
"""

from __future__ import annotations

from typing import Any, Callable


class Selections:
    """Counts one command of one client: reads its replies in the stead of the usual callback."""

    def __init__(self, usual: Callable[..., Any] | None) -> None:
        self.count = 0
        self._usual = usual

    def __call__(self, reply: Any, **options: Any) -> Any:
        """What the client calls with a reply."""
        self.count += 1
        return reply if self._usual is None else self._usual(reply, **options)

    def hear(self, reply: Any, **_options: Any) -> Any:
        """The same for a command that no callback is for, such as `"SELECT 3"` as one text."""
        self.count += 1
        return reply


class Noticing(dict[Any, Any]):
    """A part of the class of a client's callbacks, which also counts commands that names miss."""

    def __contains__(self, name: Any) -> bool:
        return super().__contains__(name) or _counted(name) is not None

    def __getitem__(self, name: Any) -> Any:
        if not super().__contains__(name) and (counted := _counted(name)):
            return super().__getitem__(counted).hear
        return super().__getitem__(name)


def _counted(name: str | bytes) -> str | None:
    """Which counted command it is: clients also take `"select 3"` and `b"SELECT"`."""
    words = name.split(None, 1)
    first = words[0].upper() if words else ""
    return next((it for it in _COMMANDS if first in {it, it.encode()}), None)


def watch(client: Any) -> Callable[[], str | None]:
    """Start to count; returns what tells why the client's database is no longer known, if it is."""
    if type(client.response_callbacks) is dict:  # one of the user's own
        client.response_callbacks = Noticing(client.response_callbacks)
    callbacks = client.response_callbacks
    counts = {name: callbacks.get(name) for name in _COMMANDS}
    for name, count in counts.items():
        if not isinstance(count, Selections):  # all managers share it
            counts[name] = Selections(count)
            client.set_response_callback(name, counts[name])
    if not isinstance(callbacks, Noticing):
        # The object stays the same: pipelines that were made before have it too.
        kind = type(callbacks)
        callbacks.__class__ = _noticing.setdefault(kind, type("Noticing", (Noticing, kind), {}))

    def reason() -> str | None:
        for name, count in counts.items():
            if count.count:
                return f"has run {name.lower()}(), on one of its connections"
            if callbacks.get(name) is not count or client.response_callbacks is not callbacks:
                return f"no longer tells of {name.lower()}(), because its callbacks were replaced"
        return None

    return reason


#: The commands after which a connection may use another database.
_COMMANDS = ("SELECT", "RESET")
# : The classes of clients' callbacks, by what they were before.
_noticing: dict[type[Any], type[Any]] = {}
