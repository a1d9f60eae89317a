"""A fence around one object of an S3-compatible store, by conditional writes.

A write replaces exactly the version that was looked at (`If-Match`), so that a holder that paused
between the look and the write is refused. The store tells versions apart by their content alone:
two equal contents, with another in between, look like one. So each write begins with a line that no
other write has; the token stands in it.
"""

from __future__ import annotations

import re
import uuid
from typing import Any, Optional

from quorlock._errors import ConfigError, ConfigTypeError

from ._tokens import StaleToken, checked_name, checked_token


class FencedObject:
    """An object of an S3-compatible store whose writers are fenced.

    `client` is an S3 client of boto3, for a store that knows conditional writes (`If-Match` and
    `If-None-Match` of `PutObject`). The object begins with a line of the fence's, which `get()`
    leaves out. An object that must be read by others stays outside: write it under a new name, and
    that name into the fenced object. Deleting the object forgets the highest token.

        fence = FencedObject(boto3.client("s3"), "bills", "invoice-42")
        with locks.lock("invoice:42", ttl=10) as lease:
            fence.put(b"paid", lease.fencing_token)
    """

    def __init__(self, client: Any, bucket: str, key: str) -> None:
        self._client = client
        self._names = {"Bucket": checked_name("a bucket", bucket), "Key": checked_name("key", key)}
        self._title = f"{bucket}/{key}"

    def put(self, body: bytes, token: int, **options: Any) -> None:
        """Write `body`, as the holder with the fencing token `token`.

        `options` are further arguments of `put_object`, as `ContentType`. Raises `StaleToken` if a
        larger token has been written, `ConfigError` for an object that was not written by a fence,
        and what boto3 raises. If that is a timeout, the write may or may not have happened; it may
        be repeated with the same token.
        """
        number = checked_token(token)
        if not isinstance(body, (bytes, bytearray)):
            raise ConfigTypeError(f"the body must be bytes, not {type(body).__name__}")
        line = b"quorlock-fence %d %s\n" % (number, uuid.uuid4().hex.encode())
        for _ in range(_MOST_CONFLICTS):
            condition, seen, seen_line = self._look()
            if seen_line == line:
                return  # the client has repeated the write, and the first one was done
            if seen > number:
                raise StaleToken.of(self._title, token=number, highest=seen)
            try:
                self._client.put_object(**options, **self._names, **condition, Body=line + body)
                return
            except self._client.exceptions.ClientError as error:
                # Another has written since the look, or does at this moment, or has deleted it.
                if _code(error) not in _CONFLICTS:
                    raise
                conflict = error
        raise conflict

    def get(self) -> Optional[tuple[bytes, int]]:
        """What was written last, and its fencing token; `None` if there is no object.

        Raises `ConfigError` for an object that was not written by a fence, and what boto3 raises.
        """
        answer = self._ask()
        if answer is None:
            return None
        line, end, body = answer["Body"].read().partition(b"\n")
        return body, self._token_of(line + end)

    def _look(self) -> tuple[dict[str, str], int, bytes]:
        """The condition of the next write, and the token and line of the last one."""
        answer = self._ask(Range=f"bytes=0-{_LONGEST_LINE - 1}")
        if answer is None:
            return {"IfNoneMatch": "*"}, 0, b""
        line = b"".join(answer["Body"].read().partition(b"\n")[:2])
        return {"IfMatch": answer["ETag"]}, self._token_of(line), line

    def _ask(self, **options: str) -> Any:
        try:
            return self._client.get_object(**self._names, **options)
        except self._client.exceptions.ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            if _code(error) == "InvalidRange":
                raise self._foreign() from error  # an empty object has no first byte
            raise

    def _token_of(self, line: bytes) -> int:
        match = re.fullmatch(rb"quorlock-fence (\d{1,20}) [0-9a-f]{32}\n", line)
        if match is None:
            raise self._foreign()
        return int(match[1])

    def _foreign(self) -> ConfigError:
        return ConfigError(
            f"the object {self._title!r} was not written by a fence: choose another key, or write "
            f"its content anew with put() after it was deleted"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._title!r}>"


def _code(error: Any) -> str:
    code: str = error.response["Error"]["Code"]
    return code


_CONFLICTS = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"}
_MOST_CONFLICTS = 20
_LONGEST_LINE = 80  # 'quorlock-fence ', 20 digits, a space, 32 digits, the end
