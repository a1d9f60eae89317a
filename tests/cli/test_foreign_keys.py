"""Tests `status` and `release --force` on keys that other programs wrote."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from tests.cli.command import ROOT, call
from tests.cli.doctor import Servers
from tests.support.cluster import Cluster

PAGE = (ROOT / "docs" / "on-call.md").read_text()
VALUES = {
    "empty": b"",
    "not-utf-8": b"\xff\xfe\x80",
    "zero": b"a\x00b",
    "largest-token": b"x" * 1024,
    "too-long-for-a-token": b"x" * 1025,
    "long": b"x" * 60_000,
    "longer-than-a-reply": b"x\xff" * 100_000,
    "latin-1": b"caf\xe9",
    "line-end": b"\r\n",
}


def _write(cluster: Cluster, value: bytes) -> None:
    for server in cluster:
        server.command("SET", "job", value, "PX", 60_000)


def _status(cluster: Cluster) -> dict[str, Any]:
    (told,) = json.loads(call("status", "job", "--json", nodes=cluster.urls).out)
    return dict(told)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_release_by_force_of_any_value(cluster3: Cluster, value: bytes) -> None:
    _write(cluster3, value)
    held = call("status", "job", nodes=cluster3.urls)
    assert (held.code, held.err) == (1, "")
    assert " on 3 of 3 nodes, for " in held.out
    ended = call("release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("released 'job', which was held by ")
    assert cluster3.values("job") == [None] * 3
    assert call("run", "--try", "job", "--", "true", nodes=cluster3.urls).code == 0


@pytest.mark.parametrize(("count", "code"), [(1, 0), (2, 69)])
def test_keys_of_another_type_count_as_nodes_that_fail(
    cluster3: Cluster, count: int, code: int
) -> None:
    for server in cluster3[:count]:
        server.command("RPUSH", "job", "x")
    ended = call("status", "job", nodes=cluster3.urls)
    assert ended.code == code
    signs = re.search(r"^\| `(cannot tell)`, and below it `([^`]+)` ", PAGE, re.MULTILINE)
    assert signs
    assert all(sign in ended.out for sign in signs.groups())


def test_release_by_force_of_different_values(cluster3: Cluster) -> None:
    for server, value in zip(cluster3, (b"\xff", b"\xfe", b"x" * 70_000), strict=True):
        server.command("SET", "job", value)
    ended = call("release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert cluster3.values("job") == [None] * 3


def test_release_by_force_that_is_not_permitted(servers: Servers) -> None:
    users = {"app": "on >pw ~* &* +@all -del"}
    cluster = servers(3, users=users)
    _write(cluster, b"\xff")
    nodes = [server.url_for("app", "pw") for server in cluster]
    ended = call("release", "job", "--force", "--yes", nodes=nodes)
    assert (ended.code, ended.out) == (3, "")
    assert "'job' is still held by \\xff: " in ended.err
    assert "del" in ended.err


@pytest.mark.parametrize("rest", ["", "x" * 9000], ids=["short", "long"])
def test_different_values_are_different_holders(cluster3: Cluster, rest: str) -> None:
    """Also where they are the same as far as they can be read as a text, or shown."""
    values = [rest.encode() + end for end in (b"\xff", b"\xfe", b"\xfd")]
    for server, value in zip(cluster3, values, strict=True):
        server.command("SET", "job", value, "PX", 60_000)
    told = _status(cluster3)
    assert (told["state"], told["holder"]) == ("held", None)
    assert len({node["holder"] for node in told["nodes"]}) == 3
    first = call("status", "job", nodes=cluster3.urls).out.splitlines()[0]
    assert first.startswith("'job' has no holder with a quorum, but cannot be had: ")
    if not rest:
        assert first.endswith(": \\xfd on 1, \\xfe on 1, \\xff on 1 of 3 nodes")


def test_a_value_is_shown_without_what_a_terminal_obeys(cluster3: Cluster) -> None:
    _write(cluster3, b"\x1b[2J\\x1b \xc3\xa9\xe9")
    first = call("status", "job", nodes=cluster3.urls).out.splitlines()[0]
    assert first.startswith("'job' is held by \\x1b[2J\\\\x1b é\\xe9 on 3 of 3 nodes")


#: Letters that turn the direction of writing, end lines, or are not seen.
NO_CONTROLS = "\u202e\u2066\u2028\u2029\ufeff\U000e0041\u00ad\u180e\u3164\u115f\u1160\uffa0"
ODD = f"{NO_CONTROLS}\x9b"


def test_letters_that_change_how_a_line_is_shown(cluster3: Cluster) -> None:
    holder = f"a{ODD}é"
    _write(cluster3, holder.encode())
    for server in cluster3:
        server.command("SET", "quorlock:owner:{job}", f"{holder}\n0\nservice=bil{ODD}ling")
    seen = call("status", "job", nodes=cluster3.urls).out
    assert "is held by a\\xe2\\x80\\xae\\xe2\\x81\\xa6" in seen
    assert f"the holder is bil{len(ODD) * chr(0xFFFD)}ling" in seen
    told = call("status", "job", "--json", nodes=cluster3.urls).out
    assert not {*ODD} & {*seen, *told}
    assert json.loads(told)[0]["holder"] == holder


def test_the_words_of_an_owner_are_exact_for_programs(cluster3: Cluster) -> None:
    """Also two that would look the same."""
    owner = {"service": f"bil{ODD}ling", "a\u202e": "1", "a\u2066": "2\r"}
    lines = "".join(f"\n{name}={value}" for name, value in owner.items())
    _write(cluster3, b"holder")
    for server in cluster3:
        server.command("SET", "quorlock:owner:{job}", f"holder\n0{lines}")
    assert _status(cluster3)["owner"] == owner
    seen = call("status", "job", nodes=cluster3.urls).out
    assert "(a\\u{202e}=1, a\\u{2066}=2\\r)\n" in seen


@pytest.mark.parametrize("name", ["two words", "it's", "a;b", "$HOME `x`", "-x"])
@pytest.mark.parametrize("command", ["release", "extend"])
def test_a_shell_reads_the_command_that_a_message_names(
    cluster3: Cluster, command: str, name: str
) -> None:
    for server in cluster3:
        server.command("SET", name, "holder", "PX", 60_000)
    ended = call(command, "--token", "mine", "--", name, nodes=cluster3.urls)
    assert ended.code == 3
    told = re.search(r": quorlock (status .*) tells whom$", ended.err)
    assert told
    assert call(*shlex.split(told[1]), nodes=cluster3.urls).out.startswith(f"'{name}' is held by ")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status",), 1),
        (("release", "--token", "holder"), 0),
        (("release", "--token", "other"), 3),
        (("release", "--force", "--yes"), 0),
        (("extend", "--token", "holder"), 0),
        (("run", "--try", "-v", "--", "true"), 75),
    ],
)
def test_a_name_does_not_change_how_a_line_is_shown(
    cluster3: Cluster, words: tuple[str, ...], code: int
) -> None:
    name = f"سلام{NO_CONTROLS}👩\u200d🔬"
    for server in cluster3:
        server.command("SET", name, "holder", "PX", 60_000)
    ended = call(words[0], name, *words[1:], nodes=cluster3.urls)
    assert ended.code == code
    shown = ended.out + ended.err
    assert not {*NO_CONTROLS} & {*shown}
    assert "'سلام\\u{202e}\\u{2066}\\u{2028}" in shown
    assert "\\u{ffa0}👩\u200d🔬'" in shown


def test_a_user_without_scripts_sees_texts(servers: Servers) -> None:
    """What is no text is not taken for one."""
    cluster = servers(3, users={"watcher": "on >pw ~* +get +pttl +info"})
    nodes = [server.url_for("watcher", "pw") for server in cluster]
    for server in cluster:
        server.command("SET", "quorlock:owner:{job}", "x" * 100_000)
    _write(cluster, b"holder")
    ended = call("status", "job", nodes=nodes)
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.startswith("'job' is held by holder on 3 of 3 nodes")
    _write(cluster, b"\xff")
    ended = call("status", "job", nodes=nodes)
    assert ended.code == 69
    assert "is no text, which takes EVAL (+eval) to read" in " ".join(ended.out.split())


@pytest.mark.parametrize("key", ["quorlock:owner:{job}", "quorlock:sequencer:{job}"])
def test_a_record_that_is_too_large_is_left_out(cluster3: Cluster, key: str) -> None:
    _write(cluster3, b"holder")
    for server in cluster3:
        server.command("SET", key, "holder\n5\nservice=" + "x" * 100_000)
    ended = call("status", "job", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.startswith("'job' is held by holder on 3 of 3 nodes, for ")
    assert "the holder is" not in ended.out
    ended = call("release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert (ended.code, ended.out) == (0, "released 'job', which was held by holder\n")
