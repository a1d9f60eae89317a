"""Tests wrong command lines: each has its own message, exit status 64, and locks nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, call
from tests.support.cluster import Cluster

RAN = ("--", "sh", "-c", "echo ran")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fly"], "unrecognized subcommand 'fly'"),
        (
            ["run", "--bogus", "job", *RAN],
            "unexpected argument '--bogus' found\n\nUsage: quorlock run",
        ),
        ([], "Usage: quorlock"),
        (["run"], "run needs the name of a lock"),
        (["run", "job"], "run needs a command behind '--', as in: quorlock run job -- CMD"),
        (["run", "job", "echo", "hi"], "run needs a command behind '--'"),
        (["run", "--ttl", "soon", "job", *RAN], '"soon" is wrong for --ttl <DURATION>: a time is'),
        (["run", "--ttl", "10", "job", *RAN], "a number and a unit"),
        (["run", "--ttl", "0s", "job", *RAN], "ttl must be at least 1 ms"),
        (["run", "--wait", "-1s", "job", *RAN], '"-1s" is wrong for --wait <DURATION>: a time is'),
        (["run", "--ttl", "--fair", "job", *RAN], '"--fair" is wrong for --ttl <DURATION>: a time'),
        (["run", "--try", "--wait", "1s", "job", *RAN], "cannot be used with"),
        (["--timeout", "0s", "run", "job", *RAN], "or no node can answer"),
        (
            ["--user-prefix", "a\n", "run", "job", *RAN],
            "a prefix must not hold the control character",
        ),
        (["--timeout", "x", "run", "job", *RAN], '"x" is wrong for --timeout'),
        (["--timeout", "400000000000y", "doctor"], "a time is 36500 days at most"),
        (["run", "--grace", "101y", "job", *RAN], "a time is 36500 days at most"),
        (["run", "--owner", "a=" + 5000 * "x", "job", *RAN], "owner may take 4096 bytes at most"),
        (["run", "--owner", "=x", "job", *RAN], "it must be a name and a value"),
        (["run", "--owner", "", "job", *RAN], "it must be a name and a value"),
        (
            ["run", "--owner", "a=1", "--owner", "a=2", "job", *RAN],
            '--owner says twice what "a" is',
        ),
        (
            ["--nodes", "redis://a", "run", "--nodes=redis://b", "job", *RAN],
            "--nodes stands before the command and behind it",
        ),
        (
            ["--nodes-file", "a", "run", "--nodes-file", "b", "job", *RAN],
            "--nodes-file stands before the command and behind it",
        ),
        (
            [b"--nodes-file=\xff", "run", b"--nodes-file=\xff", "job", *RAN],
            "--nodes-file stands before the command and behind it",
        ),
        (
            ["--user-prefix=a", "run", "--user-prefix", "b", "job", *RAN],
            "--user-prefix stands before the command and behind it",
        ),
        (
            ["--timeout", "1s", "run", "--timeout=1s", "job", *RAN],
            "--timeout stands before the command and behind it",
        ),
        (["fly\nhigh"], "unrecognized subcommand 'fly\\nhigh'\n"),
        (["--nodes-file", "a\nb", "run", "job", *RAN], "the nodes file 'a\\nb': "),
        (["run", "two words"], "as in: quorlock run 'two words' -- CMD ARG..."),
        (["run", "--owner", "a=x\ny", "job", *RAN], "without control characters"),
        (["run", "", *RAN], "must not be empty"),
        (["run", "quorlock:x", *RAN], "must not begin with"),
        (["run", "a\nb", *RAN], "control character '\\n'"),
        (["run", b"a\xff", *RAN], "not UTF-8"),
        (["run", "job", "job", *RAN], "'job' is named twice"),
        (["run", "x" * 5000, *RAN], "longer than 4096 bytes"),
    ],
)
def test_a_wrong_command_line(cluster3: Cluster, words: list[str | bytes], told: str) -> None:
    ended = call(*words, nodes=cluster3.urls)
    assert (ended.code, ended.out) == (64, ""), ended
    assert told in ended.err
    assert all(not server.keys() for server in cluster3)


def test_a_byte_that_npx_has_replaced(cluster3: Cluster) -> None:
    words = ["run", "a\ufffd", *RAN]
    ended = call(*words, nodes=cluster3.urls, env={"npm_lifecycle_event": "npx"})
    assert (ended.code, ended.out) == (64, "")
    assert "npx has replaced a byte that is not UTF-8" in ended.err
    assert call(*words, nodes=cluster3.urls).code == 0, "a name like any other"


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ("", "no nodes were given"),
        (" , ", "no nodes were given"),
        ("http://a", "its scheme is not one of"),
        ("redis://a:port", "the port is not a number"),
        ("redis://a,redis://a", "is named twice"),
        ("redis://:secret@a:x", "the port is not a number"),
        ("redis://user name:secret@a", "has a blank in it: write %20"),
        ("redis://:secret secret@a,redis://b", "has a blank in it: write %20"),
        ("redis://a?bogus=1", "unknown option 'bogus'"),
        ("memory://a,memory://b,memory://c", "memory://a is inside this process"),
        ("redis://a,memory://", "its locks would keep nobody else out"),
        ('"redis://a,redis://b"', "it has quotes around it"),
        ("'redis://:secret@a'", "it has quotes around it"),
    ],
)
def test_a_wrong_list_of_nodes(nodes: str, told: str) -> None:
    for words, env in ([["--nodes", nodes], {}], [[], {"QUORLOCK_NODES": nodes}]):
        ended = call(*words, "run", "job", *RAN, env=env)
        assert (ended.code, ended.out) == (64, ""), ended
        assert told in ended.err
        assert "secret" not in ended.err


def test_nodes_from_a_file(cluster3: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("# ours\n" + "\n".join(cluster3.urls) + "\n")
    ended = call("--nodes-file", str(file), "run", "job", *RAN)
    assert (ended.code, ended.out, ended.err) == (0, "ran\n", "")
    # Some editors begin a file with a byte order mark.
    lines = [f"{url}  # node {number}" for number, url in enumerate(cluster3.urls)]
    file.write_text("\ufeff# ours\n" + "\n".join(lines) + "\n")
    ended = call("--nodes-file", str(file), "run", "job", *RAN)
    assert (ended.code, ended.out, ended.err) == (0, "ran\n", "")
    absent = call("--nodes-file", str(tmp_path / "absent"), "run", "job", *RAN)
    assert absent.code == 64
    assert "cannot read the nodes file" in absent.err
    endless = call("--nodes-file", "/dev/zero", "run", "job", *RAN)
    assert endless.code == 64
    assert "it is longer than a list of nodes can be" in endless.err


def test_nodes_from_a_file_and_others(cluster3: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text(f"{cluster3[1].url} {cluster3[2].url}\n")
    ended = call("--nodes", cluster3[0].url, "--nodes-file", str(file), "status", "job")
    assert ended.code == 0
    assert all(url in ended.out for url in cluster3.urls)


def test_a_key_prefix(cluster3: Cluster) -> None:
    command = 'test "$(echo $QUORLOCK_RESOURCE)" = job'
    script = ["--user-prefix", "app:", "run", "--min-hold", "9s", "job", "--", "sh", "-c", command]
    assert call(*script, nodes=cluster3.urls).code == 0
    assert all(server.keys("app:job") for server in cluster3)


_COMMANDS = re.findall(r"^  ([a-z]+)  ", call("--help").out.partition("Commands:")[2], re.MULTILINE)


@pytest.mark.parametrize("words", [[], *([it] for it in _COMMANDS if it != "help")])
def test_help_ends_with_examples(words: list[str]) -> None:
    ended = call(*words, "--help")
    assert (ended.code, ended.err) == (0, "")
    examples = ended.out.rstrip().rpartition("\n\n")[2].splitlines()
    assert examples[0] in {"Example:", "Examples:"}
    command = " ".join(["quorlock", *words])
    assert all(line.startswith("  ") for line in examples[1:])
    assert command in " ".join(examples[1:])


def test_the_version() -> None:
    ended = call("--version")
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(r"quorlock \d+\.\d+\.\d+\n", ended.out)


@pytest.mark.parametrize(
    "words", [["status", "job"], ["doctor"], ["nodes", "--watch"], ["man"], ["--help"]]
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_what_cannot_be_written_is_said(cluster3: Cluster, words: list[str]) -> None:
    program = ("sh", "-c", 'exec "$0" "$@" >/dev/full', *PROGRAM)
    ended = call(*words, nodes=cluster3.urls, program=program)
    told = "quorlock: standard output cannot be written: No space left on device"
    assert (ended.code, ended.out) == (74, "")
    assert ended.err.startswith(told)
    assert ended.err.count("\n") == 1, "once"


@pytest.mark.parametrize("words", [["status", "job"], ["nodes", "--watch"], ["man"]])
def test_a_reader_that_has_gone_hears_nothing(cluster3: Cluster, words: list[str]) -> None:
    program = ("sh", "-c", '{ "$0" "$@"; echo "code=$?" >&2; } | :', *PROGRAM)
    ended = call(*words, nodes=cluster3.urls, program=program)
    assert (ended.code, ended.err) == (0, "code=0\n")


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "redis://u:hidden@h"],
        ["redis://u:hidden@h", "status", "job"],
        ["--timeout", "redis://u:hidden@h", "doctor"],
        ["--nodes-file", "redis://u:hidden@h", "doctor"],
        ["--nodes", "memory://u:hidden@h", "doctor"],
    ],
)
def test_an_address_in_the_wrong_place_shows_no_password(words: list[str]) -> None:
    ended = call(*words)
    assert ended.code == 64
    assert "hidden" not in ended.err
