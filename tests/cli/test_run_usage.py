"""Tests what `run` says of a command that it cannot start, of its own options, and of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, call
from tests.cli.conftest import Start
from tests.python.programs import has_place, is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

#: What an inner `run` says before it waits for ever.
AROUND = (
    "may be held by the `quorlock run` that started this: then it cannot be had before that ends"
)


def _script(folder: Path, text: str) -> Path:
    script = folder / "script"
    script.write_text(text)
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("line", "shown"), [("#!/no/such -x", '"/no/such"'), ("#!/bin/sh\r", '"/bin/sh\\r"')]
)
def test_a_script_whose_interpreter_is_missing(
    cluster3: Cluster, tmp_path: Path, line: str, shown: str
) -> None:
    """With the status that shells give it."""
    script = _script(tmp_path, f"{line}\necho ran\n")
    told = f"script: cannot be executed: its interpreter {shown} is missing\n"
    for word, env in ((str(script), {}), ("script", {"PATH": f"/no/such:{tmp_path}"})):
        ended = call("run", "job", "--", word, nodes=cluster3.urls, env=env)
        assert (ended.code, ended.out) == (127, "")
        assert ended.err.endswith(told)
    assert call(program=("sh", "-c", str(script))).code == 127
    assert is_free(cluster3, "job")


def test_run_prints_no_json(cluster3: Cluster) -> None:
    ended = call("run", "--json", "job", "--", "echo", "ran", nodes=cluster3.urls)
    assert (ended.code, ended.out) == (64, "")
    assert "run prints no JSON" in ended.err
    theirs = call("run", "job", "--", "echo", "--json", nodes=cluster3.urls)
    assert (theirs.code, theirs.out) == (0, "--json\n")


@pytest.mark.parametrize("names", [["job"], ["a,b", "job"], ["a@1", "b", "job"]])
def test_it_says_that_it_may_wait_for_itself(cluster3: Cluster, names: list[str]) -> None:
    inner = (PROGRAM[0], "run", "--wait", "300ms", "job", "--", "echo", "ran")
    ended = call("run", *names, "--", *inner, nodes=cluster3.urls)
    assert (ended.code, ended.out) == (75, "")
    first, second = ended.err.splitlines()
    assert first == f"quorlock: 'job' {AROUND}"
    assert "gave up waiting for 'job'" in second


def test_it_says_so_only_when_it_waits_for_that_lock(cluster3: Cluster, start: Start) -> None:
    """The variable may be left over from a `run` that has ended."""
    left_over = {"QUORLOCK_RESOURCE": "job"}
    ended = call("run", "job", "--", "true", nodes=cluster3.urls, env=left_over)
    assert (ended.code, ended.err) == (0, "")
    holder = start("run", "other", "--", "sh", "-c", "echo on; read end", nodes=cluster3.urls)
    assert holder.line() == "on"
    waiting = start("run", "other", "--", "true", nodes=cluster3.urls, env=left_over)
    eventually(lambda: has_place(cluster3, "other"))
    holder._process.stdin.write(b"\n")  # type: ignore[union-attr]
    ended = waiting.end()
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("names", [["-x"], ["-x", "job"]])
def test_a_name_that_begins_with_a_dash(cluster3: Cluster, names: list[str]) -> None:
    words = ["run", "--min-hold", "9s", "--", *names, "--", "echo", "ran", "--", "-y"]
    ended = call(*words, nodes=cluster3.urls)
    assert (ended.code, ended.out, ended.err) == (0, "ran -- -y\n", "")
    assert all(server.keys().keys() >= {*names} for server in cluster3)
    assert call("status", "--", *names, nodes=cluster3.urls).code == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--", "-x"], "run needs the name of a lock"),
        (["--", "echo", "--", "ran"], "run needs the name of a lock"),
        (["--", "-x", "--"], "run needs a command behind '--', as in: quorlock run -- -x -- CMD"),
        (["--", "-x", "a\nb", "--", "echo"], "control character '\\n'"),
        (["--", b"-\xff", "--", "echo"], "an argument is not UTF-8"),
    ],
)
def test_no_name_behind_dashes(cluster3: Cluster, words: list[str | bytes], told: str) -> None:
    ended = call("run", *words, nodes=cluster3.urls)
    assert (ended.code, ended.out) == (64, "")
    assert told in ended.err
    assert not any(server.keys() for server in cluster3)
