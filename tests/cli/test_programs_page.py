"""Tests that the lines for a shell in docs/programs.md do what the page says, on real servers."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.cli.command import PROGRAM, ROOT, Ended, call
from tests.cli.conftest import Start
from tests.support.cluster import Cluster
from tests.support.wait import eventually

PAGE = (ROOT / "docs" / "programs.md").read_text()
PATH = f"{Path(PROGRAM[0]).parent}:{os.environ['PATH']}"


def _block(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(block)


def _script(folder: Path, text: str) -> Path:
    script = folder / "script.sh"
    script.write_text(text)
    script.chmod(0o755)
    return script


def test_the_line_for_cron_tells_failures_alone(cluster3: Cluster, tmp_path: Path) -> None:
    script = _script(tmp_path, "#!/bin/sh\necho report\n")
    nodes = tmp_path / "nodes"
    nodes.write_text("\n".join(cluster3.urls))
    line = _block("crontab").split(maxsplit=5)[5].strip()
    line = line.replace("/etc/quorlock-nodes", str(nodes)).replace("/srv/report.sh", str(script))

    def by_cron() -> Ended:
        return call(program=("env", "-u", "QUORLOCK_NODES", "sh", "-c", line), env={"PATH": PATH})

    first, second = by_cron(), by_cron()
    assert (first.code, first.out, first.err) == (0, "report\n", "")
    assert (second.code, second.out, second.err) == (75, "", "")
    for server in cluster3[:2]:
        server.kill()
    failed = by_cron()
    assert (failed.code, failed.out) == (69, "")
    assert "no quorum for 'nightly'" in failed.err


def test_a_script_puts_itself_under_the_lock(cluster3: Cluster, tmp_path: Path) -> None:
    script = _script(tmp_path, f'{_block("sh")}echo "$QUORLOCK_RESOURCE: $1|$2"; exit 7\n')
    ended = call("one two", "3", nodes=cluster3.urls, program=(str(script),), env={"PATH": PATH})
    assert (ended.code, ended.out, ended.err) == (7, "nightly: one two|3\n", "")


def test_such_a_script_takes_the_lock_also_with_the_variables_of_an_earlier_one(
    cluster3: Cluster, tmp_path: Path
) -> None:
    script = _script(tmp_path, f'{_block("sh")}echo "$QUORLOCK_SEQUENCER"\n')
    given = {"PATH": PATH, "QUORLOCK_RESOURCE": "nightly", "QUORLOCK_SEQUENCER": "nightly@1"}
    ended = call(nodes=cluster3.urls, program=(str(script),), env=given)
    assert (ended.code, ended.err) == (0, "")
    name, token = ended.out.strip().split("@")
    assert name == "nightly"
    assert int(token) > 1


def test_such_a_script_under_another_lock_takes_its_own(cluster3: Cluster, tmp_path: Path) -> None:
    script = _script(tmp_path, f'{_block("sh")}echo "$QUORLOCK_RESOURCE"\n')
    ended = call("run", "other", "--", str(script), nodes=cluster3.urls, env={"PATH": PATH})
    assert (ended.code, ended.out, ended.err) == (0, "nightly\n", "")


def test_such_a_script_does_not_wait_for_itself_where_the_lock_cannot_be_verified(
    cluster3: Cluster, start: Start, tmp_path: Path
) -> None:
    """The nodes hang while it asks whether the lock is held, and answer again after that."""
    wrapper = tmp_path / "quorlock"
    wrapper.write_text(
        f'#!/bin/sh\n{PROGRAM[0]} "$@"; code=$?\n'
        '[ "$1" = run ] || { echo "$1: $code"; read -r _; }\nexit "$code"\n'
    )
    wrapper.chmod(0o755)
    script = _script(tmp_path, f"{_block('sh')}echo work\n")
    words = ("sh", "-c", f"read -r _; {script}; echo end: $?")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = start("run", "--ttl", "60s", "nightly", "--", *words, nodes=cluster3.urls, env=env)
    eventually(lambda: None not in cluster3.values("nightly"))
    for server in cluster3[:2]:
        server.pause()
    command.type("\n")
    assert command.line() == "verify: 69"
    cluster3.heal()
    command.type("\n")
    assert command.line() == "end: 75"
    assert command.end().code == 0
