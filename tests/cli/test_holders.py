"""Tests `status`, `release`, `extend` and `verify` on real servers."""

from __future__ import annotations

import json
import re
import signal
import time
from typing import Any

import pytest

from quorlock import Redlock
from tests.cli.command import Ended, call
from tests.cli.conftest import Start
from tests.cli.doctor import Servers
from tests.cli.terminal import Terminal
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy
from tests.support.wait import eventually

TELLS = ("sh", "-c", "echo $QUORLOCK_TOKEN; echo $QUORLOCK_SEQUENCER; exec sleep 60")


class Holder:
    """A `run` that holds `job`."""

    def __init__(self, cluster: Cluster, start: Start, *options: str) -> None:
        self.command = start("run", *options, "job", "--", *TELLS, nodes=cluster.urls)
        self.token = self.command.line()
        self.sequencer = self.command.line()


@pytest.fixture
def holder(cluster3: Cluster, start: Start) -> Holder:
    return Holder(cluster3, start)


def _json(ended: Ended) -> Any:
    assert ended.err == ""
    return json.loads(ended.out)


def _make_unreachable(cluster: Cluster) -> None:
    for server in cluster[:2]:
        server.kill()


def test_status_of_a_free_lock(cluster3: Cluster) -> None:
    ended = call("status", "job", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("'job' is free\n")
    assert all(url in ended.out for url in cluster3.urls)


def test_a_replica_does_not_count_beside_its_master(cluster3: Cluster, servers: Servers) -> None:
    replica = servers(1, replica_of=cluster3[0])[0]
    cluster3[0].command("SET", "job", "holder", "PX", 60_000)
    eventually(lambda: replica.command("GET", "job") == "holder")
    nodes = [cluster3[0].url, replica.url, cluster3[1].url]
    ended = call("status", "--json", "job", nodes=nodes)
    told = json.loads(ended.out)[0]["nodes"]
    assert [node["says"] for node in told] == ["held", "error", "free"]
    assert told[0].keys() == told[1].keys() == told[2].keys()
    assert ended.code == 69
    assert "it is a replica" in call("status", "job", nodes=nodes).out


@pytest.mark.parametrize("words", [("status",), ("release", "--force", "--yes")])
def test_a_server_does_not_count_twice(cluster3: Cluster, words: tuple[str, ...]) -> None:
    """Nor do its keys, when it is listed under two addresses."""
    cluster3[0].command("SET", "job", "holder", "PX", 60_000)
    with FaultProxy(cluster3[0]) as proxy:
        nodes = [cluster3[0].url, cluster3[1].url, proxy.url]
        ended = call(words[0], "job", *words[1:], nodes=nodes)
    assert (ended.code, ended.out) == (64, "")
    assert f"{nodes[0]} and {nodes[2]} are one and the same server" in ended.err
    assert cluster3[0].command("GET", "job") == "holder"


def test_status_of_a_lock_whose_keys_are_divided(cluster3: Cluster) -> None:
    for server, holder in zip(cluster3, ("one", "two", "three"), strict=True):
        server.command("SET", "job", holder, "PX", 60_000)
    ended = call("status", "job", nodes=cluster3.urls)
    assert ended.code == 1
    assert ended.out.startswith("'job' has no holder with a quorum, but cannot be had: ")
    assert ended.out.splitlines()[0].endswith("one on 1, three on 1, two on 1 of 3 nodes")
    (told,) = _json(call("status", "job", "--json", nodes=cluster3.urls))
    assert (told["state"], told["holder"]) == ("held", None)


def test_status_tells_the_holder_by_quorum(cluster3: Cluster, holder: Holder) -> None:
    cluster3[2].command("SET", "job", "another", "PX", 60_000)
    ended = call("status", "job", nodes=cluster3.urls)
    assert ended.code == 1
    token = holder.sequencer.partition("@")[2]
    first = ended.out.splitlines()[0]
    assert re.fullmatch(
        rf"'job' is held by {holder.token} on 2 of 3 nodes, fencing token {token}, "
        r"for \d+\.\d s more unless renewed",
        first,
    )
    assert "another" in ended.out
    told = _json(call("--json", "status", "job", nodes=cluster3.urls,
                      env={"QUORLOCK_TOKEN": holder.token}))  # fmt: skip
    assert told[0]["holder"] == holder.token
    assert (told[0]["state"], told[0]["ours"]) == ("held", True)
    assert told[0]["fencing_token"] == int(token)
    assert [node["says"] for node in told[0]["nodes"]] == ["held"] * 3
    assert told[0]["nodes"][2]["holder"] == "another"


def test_without_an_owner_nothing_is_told(cluster3: Cluster, holder: Holder) -> None:
    (lock,) = _json(call("status", "job", "--json", nodes=cluster3.urls))
    assert (lock["holder"], lock["owner"], lock["held_since"]) == (holder.token, None, None)
    assert "the holder is" not in call("status", "job", nodes=cluster3.urls).out
    assert all(not server.keys("quorlock:owner:*") for server in cluster3)


def test_what_others_have_written_does_not_command_the_terminal(cluster3: Cluster) -> None:
    for server in cluster3:
        server.command("SET", "job", "\x1b[2Jid", "PX", 60_000)
        server.command("SET", "quorlock:owner:{job}", "\x1b[2Jid\n0\nservice=\x1b[31mx")
    told = call("status", "job", nodes=cluster3.urls)
    assert told.code == 1
    assert "the holder is \ufffd[31mx" in told.out
    assert "\x1b[2J" not in told.out
    assert "\x1b[31m" not in told.out


def test_status_of_several(cluster3: Cluster, holder: Holder) -> None:
    assert holder.token
    told = call("status", "free", "job", "--json", nodes=cluster3.urls)
    assert told.code == 1
    assert [lock["state"] for lock in _json(told)] == ["free", "held"]


def test_status_of_a_key_without_an_end(cluster3: Cluster) -> None:
    for server in cluster3:
        server.command("SET", "job", "for ever")
    ended = call("status", "job", nodes=cluster3.urls)
    assert ended.code == 1
    assert "for ever: its key has no ttl" in ended.out


def test_status_without_a_quorum(cluster3: Cluster) -> None:
    _make_unreachable(cluster3)
    ended = call("status", "job", nodes=cluster3.urls)
    assert ended.code == 69
    assert "too few nodes tell who holds 'job'" in ended.out
    assert "connection refused" in ended.out


def test_status_of_a_hung_node_ends_in_time(cluster3: Cluster, holder: Holder) -> None:
    cluster3[0].pause()
    ended = call("--timeout", "300ms", "status", "job", nodes=cluster3.urls, within=5)
    assert ended.code == 1
    assert f"held by {holder.token} on 2 of 3 nodes" in ended.out
    assert "no answer within 300 ms" in ended.out


def test_release_by_token(cluster3: Cluster, holder: Holder) -> None:
    wrong = call("release", "job", "--token", "wrong", nodes=cluster3.urls)
    assert wrong.code == 3
    assert "'job' is held by another" in wrong.err
    ended = call("release", "job", "--token", holder.token, nodes=cluster3.urls)
    assert (ended.code, ended.out, ended.err) == (0, "released 'job'\n", "")
    assert cluster3.values("job") == [None] * 3
    again = call("release", "job", "--token", holder.token, nodes=cluster3.urls)
    assert again.code == 1
    assert "is not held" in again.err
    # The holder learns it from the nodes.
    assert holder.command.end().code == 76


def test_release_of_a_lock_of_another_language(cluster3: Cluster) -> None:
    with Redlock(cluster3.urls) as locks:
        lock = locks.lock("job", ttl=60)
        assert lock.acquire()
        assert lock.lease is not None
        ended = call("release", "job", "--token", lock.lease.token, nodes=cluster3.urls)
        assert ended.code == 0
    assert cluster3.values("job") == [None] * 3


def test_release_by_force_tells_who_it_was(cluster3: Cluster, holder: Holder) -> None:
    unsure = call("release", "job", "--force", nodes=cluster3.urls)
    assert unsure.code == 64
    assert "--yes" in unsure.err
    ended = call("release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"released 'job', which was held by {holder.token}\n"
    assert cluster3.values("job") == [None] * 3
    again = call("release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert again.code == 1


def test_release_by_force_of_a_split_lock(cluster3: Cluster) -> None:
    for server, value in zip(cluster3, ["one", "two words", "one"], strict=True):
        server.command("SET", "job", value)
    ended = call("--json", "release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert ended.code == 0
    assert _json(ended)["holders"] == ["one", "two words"]
    assert cluster3.values("job") == [None] * 3


def test_release_by_force_while_others_wait(cluster3: Cluster, start: Start) -> None:
    for server in cluster3:
        server.command("SET", "job", "holder", "PX", 60_000)
    waiter = start("run", "--wait", "30s", "job", "--", *TELLS, nodes=cluster3.urls)
    eventually(lambda: all(server.keys("quorlock:queue:*") for server in cluster3))
    time.sleep(0.3)
    ended = call("release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "released 'job', which was held by holder\n"
    token = waiter.line()
    assert cluster3.values("job").count(token) >= 2


@pytest.mark.parametrize(
    ("words", "keys", "outcome"),
    [
        (("release", "job", "--token", "x"), 0, (1, "not-held")),
        (("release", "job", "--token", "x"), 3, (3, "held-by-another")),
        (("release", "job", "--force", "--yes"), 0, (1, "not-held")),
        (("extend", "job", "--token", "x"), 0, (1, "not-held")),
        (("extend", "job", "--token", "x"), 3, (3, "held-by-another")),
    ],
)
def test_what_was_not_done_is_told_to_programs(
    cluster3: Cluster, words: tuple[str, ...], keys: int, outcome: tuple[int, str]
) -> None:
    for server in cluster3[:keys]:
        server.command("SET", "job", "holder", "PX", 60_000)
    ended = call(*words, "--json", nodes=cluster3.urls)
    assert ended.code == outcome[0]
    assert json.loads(ended.out) == {"name": "job", "outcome": outcome[1]}
    assert ended.err.startswith("quorlock: 'job' is ")


UNKNOWN = {"name": "job", "outcome": "unknown"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["release", "job", "--token", "x"], UNKNOWN),
        (["release", "job", "--force", "--yes"], UNKNOWN),
        (["extend", "job", "--token", "x"], UNKNOWN),
        (["verify", "job@1"], {"sequencer": "job@1", "current": None}),
    ],
)
def test_without_a_quorum(cluster3: Cluster, words: list[str], told: dict[str, object]) -> None:
    _make_unreachable(cluster3)
    ended = call("--timeout", "500ms", *words, nodes=cluster3.urls)
    assert (ended.code, ended.out) == (69, ""), ended
    assert "connection refused" in ended.err
    ended = call("--timeout", "500ms", "--json", *words, nodes=cluster3.urls)
    assert (ended.code, json.loads(ended.out)) == (69, told)
    assert "connection refused" in ended.err


def test_extend(cluster3: Cluster, start: Start) -> None:
    holder = Holder(cluster3, start, "--ttl", "3s")
    holder.command.signal(signal.SIGSTOP)  # it has handed its work over
    words = ("extend", "job", "--token", holder.token, "--ttl", "10m")
    ended = call(*words, nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert "extended 'job'" in ended.out
    keys = ("job", "quorlock:sequencer:{job}")
    assert all(server.command("PTTL", key) > 500_000 for server in cluster3 for key in keys)
    assert call("verify", holder.sequencer, nodes=cluster3.urls).code == 0
    wrong = call("extend", "job", "--token", "wrong", nodes=cluster3.urls)
    assert wrong.code == 3
    absent = call("extend", "free", "--token", holder.token, nodes=cluster3.urls)
    assert absent.code == 1


def test_an_extension_leaves_a_longer_time_as_it_is(cluster3: Cluster, start: Start) -> None:
    holder = Holder(cluster3, start, "--ttl", "60s")  # which goes by these 60 s
    words = ("extend", "job", "--token", holder.token, "--ttl", "1s")
    ended = call("--json", *words, nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    told = json.loads(ended.out)
    assert told["outcome"] == "extended"
    assert 30 < told["validity_seconds"] < 60
    assert all(server.command("PTTL", "job") > 30_000 for server in cluster3)


def test_an_extension_leaves_a_longer_time_where_a_node_has_missed_it(
    cluster3: Cluster, start: Start
) -> None:
    holder = Holder(cluster3, start, "--ttl", "60s")
    holder.command.signal(signal.SIGSTOP)
    for turn in range(9):  # whichever two of them answer first
        missed = cluster3[turn % 3]
        missed.command("PEXPIRE", "job", 5_000)
        ended = call("extend", "job", "--token", holder.token, nodes=cluster3.urls)
        assert (ended.code, ended.err) == (0, "")
        others = [server for server in cluster3 if server is not missed]
        assert all(server.command("PTTL", "job") > 30_000 for server in others)
        missed.command("PEXPIRE", "job", 60_000)


def test_an_extension_gives_a_key_without_an_end_one(cluster3: Cluster) -> None:
    for server in cluster3:
        server.command("SET", "job", "mine")
    ended = call("extend", "job", "--token", "mine", "--ttl", "1m", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert all(50_000 < server.command("PTTL", "job") <= 60_000 for server in cluster3)


@pytest.mark.parametrize("command", ["extend", "release"])
@pytest.mark.parametrize(
    ("values", "code"), [(("other", "other"), 3), (("other", "third"), 3), (("other",), 1)]
)
def test_another_has_a_lock_if_no_majority_is_left_of_it(
    cluster3: Cluster, command: str, values: tuple[str, ...], code: int
) -> None:
    for _ in range(15):
        for server, value in zip(cluster3, values, strict=False):
            server.command("SET", "job", value, "PX", 60_000)
        assert call(command, "job", "--token", "mine", nodes=cluster3.urls).code == code


def test_verify(cluster3: Cluster, holder: Holder) -> None:
    current = call("verify", holder.sequencer, nodes=cluster3.urls)
    assert (current.code, current.err) == (0, "")
    assert current.out == f"{holder.sequencer} is the one that is held\n"
    # An attempt that is refused leaves the lease as it is.
    assert call("run", "--try", "job", "--", "true", nodes=cluster3.urls).code == 75
    assert call("verify", holder.sequencer, nodes=cluster3.urls).code == 0
    name, _, token = holder.sequencer.partition("@")
    old = call("verify", f"{name}@{int(token) - 1}", "--json", nodes=cluster3.urls)
    assert old.code == 1
    assert _json(old)["current"] is False
    holder.command.signal(signal.SIGTERM)
    holder.command.end()
    over = call("verify", holder.sequencer, nodes=cluster3.urls)
    assert (over.code, over.err) == (1, "")


def test_verify_from_within_the_command(cluster3: Cluster) -> None:
    from tests.cli.command import PROGRAM

    script = f'{PROGRAM[0]} verify "$QUORLOCK_SEQUENCER"'
    ended = call("run", "a,b", "c", "--", "sh", "-c", script, nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["release", "job"], "release needs the holder's token"),
        (["extend", "job"], "extend needs the holder's token"),
        (["release", "job", "--token", ""], "a lease token must not be empty"),
        (["release", "job", "--token", "x", "--force"], "cannot be used with"),
        (["extend", "job", "--token", "x", "--ttl", "0s"], "ttl must be at least"),
        (["verify"], "NAME@TOKEN"),
        (["verify", "job"], "is no sequencer"),
        (["verify", "job@x"], "there must be a fencing token"),
        (["verify", "job%zz@1"], "hexadecimal"),
        (["status"], "<NAME>"),
    ],
)
def test_wrong_command_lines(cluster3: Cluster, words: list[str], told: str) -> None:
    ended = call(*words, nodes=cluster3.urls)
    assert (ended.code, ended.out) == (64, "")
    assert told in ended.err


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("is_coloured", [True, False])
def test_the_table_fits_the_terminal(
    cluster3: Cluster, holder: Holder, columns: int, *, is_coloured: bool
) -> None:
    assert holder.token
    env = {} if is_coloured else {"NO_COLOR": "1"}
    cluster3[0].kill()
    with Terminal("status", "job", nodes=cluster3.urls, env=env, size=(24, columns)) as shown:
        code, text = shown.end()
    assert code == 1
    assert ("\x1b[" in text) == is_coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    table = plain.splitlines()[1:]
    assert max(map(len, table)) <= columns, plain
    assert "connection refused" in " ".join(plain.split())
