"""Tests that a holder which paused for longer than its lease cannot write: Redis, object stores."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
import redis
import redis.asyncio
from moto import mock_aws

from quorlock import ConfigError, ConfigTypeError, LockError
from quorlock.fencing import FencedObject, FencedRedis, StaleToken
from tests.python.overtaking import Tokens
from tests.python.programs import Program
from tests.support.cluster import Cluster

FENCE = "fence:invoice:42"


@pytest.fixture
def client(cluster3: Cluster) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(cluster3.urls[0]) as client:
        yield client


def test_redis_refuses_a_paused_holder(client: redis.Redis, overtaken: Tokens) -> None:
    fence = FencedRedis(client, FENCE)
    fence.set("state:42", "paid by the first", overtaken.paused)
    fence.set("state:42", "paid by the second", overtaken.current)
    with pytest.raises(StaleToken) as refused:
        fence.set("state:42", "paid twice", overtaken.paused)
    assert client.get("state:42") == b"paid by the second"
    error = refused.value
    assert (error.resource, error.token, error.highest) == (FENCE, *overtaken)
    # The holder itself may write as often as it likes.
    fence.set("state:42", "sent", overtaken.current)
    assert client.get("state:42") == b"sent"


async def _with_asyncio(url: str, tokens: Tokens) -> None:
    async with redis.asyncio.Redis.from_url(url, decode_responses=True) as client:
        fence = FencedRedis(client, FENCE)
        await fence.set("state:42", "paid", tokens.current)
        assert await fence.write(tokens.current, "INCR", "paid") == 1
        with pytest.raises(StaleToken) as refused:
            await fence.write(tokens.paused, "INCR", "paid")
        assert refused.value.highest == tokens.current
        assert await client.get("paid") == "1"


@pytest.mark.asyncio
async def test_redis_refuses_a_paused_holder_of_asyncio(
    cluster3: Cluster, overtaken: Tokens
) -> None:
    await _with_asyncio(cluster3.urls[0], overtaken)


HOLDER = """
import os, sys
import redis
from quorlock import Redlock
from quorlock.fencing import FencedRedis, StaleToken
nodes = os.environ["QUORLOCK_NODES"].split(",")
fence = FencedRedis(redis.Redis.from_url(nodes[0]), "fence:invoice:42")
lock = Redlock(nodes).lock("invoice:42", ttl=1, auto_extend=True)
lock.acquire()
assert lock.lease.is_valid
print("held", lock.lease.fencing_token)
sys.stdin.readline()
try:
    fence.set("state:42", "paid twice", lock.lease.fencing_token)
except StaleToken as error:
    print("refused", error.token, error.highest)
"""


def test_redis_refuses_a_process_that_stood_still(
    client: redis.Redis, cluster3: Cluster, acquired: Callable[[], int]
) -> None:
    with Program(HOLDER, nodes=cluster3.urls) as holder:
        word, paused = holder.line().split()
        assert word == "held"
        os.kill(holder.pid, signal.SIGSTOP)
        try:
            current = acquired()
            FencedRedis(client, FENCE).set("state:42", "paid", current)
        finally:
            os.kill(holder.pid, signal.SIGCONT)
        holder.write("\n")
        assert holder.line() == f"refused {paused} {current}"
    assert client.get("state:42") == b"paid"


def test_a_command_answers_as_the_server_does(client: redis.Redis) -> None:
    fence = FencedRedis(client, FENCE)
    assert fence.write(1, "SET", "a", b"\xff") == b"OK"
    assert fence.write(1, "GET", "a") == b"\xff"
    assert fence.write(1, "GET", "none") is None
    assert fence.write(1, "RPUSH", "list", 1, 2.5) == 2
    assert fence.write(1, "LRANGE", "list", 0, -1) == [b"1", b"2.5"]
    client.script_flush()
    assert fence.write(1, "DEL", "a") == 1
    assert client.ttl(FENCE) == -1


@pytest.mark.parametrize(
    ("seen", "token"),
    [(2**53 + 1, 2**53), (2**64 - 1, 2**64 - 2), (1_000, 999), (10, 9), (1, 0)],
)  # fmt: skip
def test_tokens_are_compared_exactly(client: redis.Redis, seen: int, token: int) -> None:
    fence = FencedRedis(client, FENCE)
    fence.set("a", 1, token)
    fence.set("a", 2, seen)
    with pytest.raises(StaleToken):
        fence.set("a", 3, token)
    assert client.get("a") == b"2"


def test_a_command_that_fails_raises_the_servers_error(client: redis.Redis) -> None:
    fence = FencedRedis(client, FENCE)
    client.set("a", "text")
    with pytest.raises(redis.ResponseError, match="integer"):
        fence.write(7, "INCR", "a")
    client.set(FENCE, "no token")
    with pytest.raises(redis.ResponseError, match="holds no fencing token"):
        fence.set("a", 1, 8)
    assert client.get("a") == b"text"


@pytest.mark.parametrize(
    ("token", "error", "reason"),
    [(None, ConfigTypeError, "fencing=False"), ("17", ConfigTypeError, "not str"),
     (True, ConfigTypeError, "not bool"), (-1, ConfigError, "from 0"), (2**64, ConfigError, "to")],
)  # fmt: skip
def test_what_is_no_token_is_refused(
    client: redis.Redis, token: Any, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        FencedRedis(client, FENCE).set("a", 1, token)
    assert client.dbsize() == 0 or client.get("a") is None


def test_what_is_no_client_is_refused(client: redis.Redis) -> None:
    for wrong in (client.pipeline(), "redis://a", None):
        with pytest.raises(ConfigTypeError, match="a client of redis-py"):
            FencedRedis(wrong, FENCE)
    with pytest.raises(ConfigError, match="empty"):
        FencedRedis(client, "")
    with pytest.raises(ConfigTypeError, match="a command"):
        FencedRedis(client, FENCE).write(1)
    for own in (FENCE, FENCE.encode()):
        with pytest.raises(ConfigError, match="keeps the fence's tokens"):
            FencedRedis(client, FENCE).set(own, "x", 1)
        with pytest.raises(ConfigError, match="keeps the fence's tokens"):
            FencedRedis(client, FENCE).write(1, "DEL", "other", own)
    assert client.get(FENCE) is None


def test_the_refusal_survives_pickling_and_copying() -> None:
    error = StaleToken.of("invoice:42", token=17, highest=18)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (again.resource, again.token, again.highest) == ("invoice:42", 17, 18)
        assert str(again) == str(error)
    assert isinstance(error, LockError)
    assert error.code == "STALE_TOKEN"


@pytest.fixture
def store() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client(
            "s3",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        client.create_bucket(Bucket="bills")
        yield client


def test_a_store_refuses_a_paused_holder(store: Any, overtaken: Tokens) -> None:
    fence = FencedObject(store, "bills", "invoice-42")
    assert fence.get() is None
    fence.put(b"by the first", overtaken.paused)
    fence.put(b"by the second", overtaken.current, ContentType="text/plain")
    with pytest.raises(StaleToken) as refused:
        fence.put(b"twice", overtaken.paused)
    assert (refused.value.token, refused.value.highest) == overtaken
    assert refused.value.resource == "bills/invoice-42"
    assert fence.get() == (b"by the second", overtaken.current)
    assert store.head_object(Bucket="bills", Key="invoice-42")["ContentType"] == "text/plain"


@pytest.mark.parametrize("existed", [False, True])
def test_a_store_refuses_a_holder_that_paused_just_before_its_write(
    store: Any, overtaken: Tokens, *, existed: bool
) -> None:
    fence = FencedObject(store, "bills", "invoice-42")
    if existed:
        fence.put(b"open", overtaken.paused)
    while_paused(store, lambda: fence.put(b"open", overtaken.current))
    with pytest.raises(StaleToken):
        fence.put(b"twice", overtaken.paused)
    assert fence.get() == (b"open", overtaken.current)


def test_a_write_that_meets_an_older_holders_is_done_after_it(
    store: Any, overtaken: Tokens
) -> None:
    fence = FencedObject(store, "bills", "invoice-42")
    while_paused(store, lambda: fence.put(b"late", overtaken.paused))
    fence.put(b"paid", overtaken.current)
    assert fence.get() == (b"paid", overtaken.current)


def test_a_write_that_the_client_repeats_is_done_once(store: Any) -> None:
    fence = FencedObject(store, "bills", "invoice-42")
    sent: list[dict[str, Any]] = []

    def lose_the_answer(params: dict[str, Any], **_: Any) -> None:
        if not sent:
            sent.append(dict(params))
            # The first request has arrived, and the client repeats it.
            store.put_object(Bucket="bills", Key="invoice-42", Body=sent[0]["Body"])

    store.meta.events.register("provide-client-params.s3.PutObject", lose_the_answer)
    fence.put(b"paid", 17)
    assert fence.get() == (b"paid", 17)


def while_paused(store: Any, write: Callable[[], None]) -> None:
    """Runs `write` when the next object is about to be written."""

    def act(**_: Any) -> None:
        store.meta.events.unregister("before-call.s3.PutObject", act)
        write()

    store.meta.events.register("before-call.s3.PutObject", act)


@pytest.mark.parametrize("content", [b"", b"paid", b"quorlock-fence x\n"])
def test_an_object_of_others_is_left_alone(store: Any, content: bytes) -> None:
    store.put_object(Bucket="bills", Key="invoice-42", Body=content)
    fence = FencedObject(store, "bills", "invoice-42")
    for use in (fence.get, lambda: fence.put(b"paid", 17)):
        with pytest.raises(ConfigError, match="was not written by a fence"):
            use()
    assert store.get_object(Bucket="bills", Key="invoice-42")["Body"].read() == content


def test_an_error_of_the_store_is_raised(store: Any) -> None:
    fence = FencedObject(store, "no-such-bucket", "invoice-42")
    with pytest.raises(store.exceptions.ClientError, match="NoSuchBucket"):
        fence.put(b"paid", 17)
    with pytest.raises(ConfigTypeError, match="bytes"):
        fence.put("paid", 17)  # type: ignore[arg-type]
