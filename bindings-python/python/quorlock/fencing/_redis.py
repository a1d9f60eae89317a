"""A fence in one Redis or Valkey server. Owns how it is called; the script is the core's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Union

from quorlock._errors import ConfigError, ConfigTypeError
from quorlock._native import FENCE

from ._tokens import StaleToken, checked_name, checked_token


class FencedRedis:
    """Writes to a Redis or Valkey server that are refused if a later holder has written.

    `client` is one of redis-py or valkey-py; the methods of one for asyncio are awaited. `key`
    keeps the highest token that was seen; it has no expiry, and must stay as long as the data that
    it guards. One script compares, raises `key` and writes: nothing comes in between. Give each
    lock a key of its own. On a server that is a node of the locks, neither `key` nor a key that is
    written may be the name of a lock: a lock is a key of its name there, which the write would
    destroy. In a Redis Cluster the keys written must be in the slot of `key`, by a `{tag}` in both
    names.

    Raises `ConfigTypeError` for a client that has no scripts (a pipeline cannot be fenced: the
    answer would come too late).

        fence = FencedRedis(client, "fence:invoice:42")
        with locks.lock("invoice:42", ttl=10) as lease:
            fence.set("state:42", "paid", lease.fencing_token)
    """

    def __init__(self, client: Any, key: str) -> None:
        self.key = checked_name("the key of a fence", key)
        # Only pipelines have it.
        is_pipeline = hasattr(client, "immediate_execute_command")
        if is_pipeline or not hasattr(client, "register_script"):
            raise ConfigTypeError(
                f"a fence takes a client of redis-py or valkey-py, not {type(client).__name__}"
            )
        self._script = client.register_script(FENCE)

    def set(self, name: Union[str, bytes], value: Any, token: int) -> Any:
        """Set `name` to `value`, as the holder with the fencing token `token`.

        Raises `StaleToken` if a larger token was seen, and what the client raises. If that is a
        lost connection or a timeout, the write may or may not have happened.
        """
        return self.write(token, "SET", name, value)

    def write(self, token: int, *command: Any) -> Any:
        """Run `command`, as `"HSET", "bill:42", "state", "paid"`; returns the server's answer.

        The answer is as the server gives it to a script (`b"OK"`, a number, a list). Raises as
        `set` does. `key` is raised also if the command fails.
        """
        number = checked_token(token)
        if not command:
            raise ConfigTypeError("write() takes a command behind the token")
        if any(word in (self.key, self.key.encode()) for word in command[1:]):
            raise ConfigError(f"{self.key!r} keeps the fence's tokens: write to another key")
        answer = self._script(keys=[self.key], args=[number, *command])
        return (
            self._awaited(answer, number)
            if inspect.isawaitable(answer)
            else (self._judged(answer, number))
        )

    async def _awaited(self, answer: Awaitable[Any], token: int) -> Any:
        return self._judged(await answer, token)

    def _judged(self, answer: Any, token: int) -> Any:
        was_written, rest = answer if len(answer) > 1 else (*answer, None)
        if not was_written:
            raise StaleToken.of(self.key, token=token, highest=int(rest))
        return rest

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}>"
