"""Runs the blocks of docs/guide.md as they are, on real servers, and those of docs/programs.md.

The Rust block is compiled by the crate's own doctests.
"""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python.programs import Program
from tests.support.cluster import Cluster, start_servers
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
AROUND = {
    "python": """
import sqlite3
def build_report(): print("report")
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE invoice (id, state)")
def pay_invoice(number, fencing_token): print("paid", number, fencing_token)
""",
    "js": """
async function buildReport() { console.log('report') }
async function payInvoice(number, { signal, fencingToken }) {
  if (!signal.aborted) console.log('paid', number, fencingToken)
}
""",
}


def blocks(page: str, language: str) -> list[str]:
    """The code of a page in one language."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def on(cluster: Cluster, code: str) -> str:
    """With the servers that there are."""
    for name, url in zip("abc", cluster.urls, strict=True):
        code = code.replace(f"redis://{name}:6379", url)
    return code


@pytest.mark.parametrize("language", AROUND)
def test_the_guide_runs(language: str, cluster3: Cluster) -> None:
    code = on(cluster3, "\n".join([AROUND[language], *blocks("guide.md", language)]))
    quit_ = "\nawait redlock.quit()\n" if language == "js" else ""
    program = ["node", "--input-type=module", "-e"] if language == "js" else [sys.executable, "-c"]
    run = subprocess.run(
        [*program, code + quit_], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert lines.count("report") == {"python": 5, "js": 2}[language]
    assert "0 wait" in lines
    assert len([line for line in lines if re.fullmatch(r"paid 42 [1-9]\d*", line)]) == 1
    eventually(lambda: cluster3.values("invoice:42") == [None] * 3)


def test_a_terminated_program_gives_its_lock_back(
    cluster3: Cluster,
) -> None:
    handler = blocks("programs.md", "python")[0]
    code = f"""
import time
import quorlock
{handler}
with quorlock.redlock("report", ttl=600):
    print("inside")
    time.sleep(60)
"""
    assert after_sigterm(code, cluster3) == [None] * 3
    # Without the handler the lock stays: that is why the page speaks of it.
    cluster3.reset()
    without = code.replace(handler, "")
    assert None not in after_sigterm(without, cluster3)


def test_a_terminated_task_gives_its_lock_back(
    cluster3: Cluster,
) -> None:
    handler, main = blocks("programs.md", "python")[:2]
    code = f"""
{handler}
{main}
import os
from quorlock.aio import Redlock
async def work():
    async with Redlock(os.environ["QUORLOCK_NODES"].split(",")).lock("report", ttl=600):
        print("inside")
        await asyncio.sleep(60)
asyncio.run(main(work()))
"""
    assert after_sigterm(code, cluster3) == [None] * 3


def after_sigterm(code: str, cluster: Cluster) -> list[str | None]:
    """What the servers have of the lock when the program has ended."""
    with Program(code, nodes=cluster.urls) as program:
        assert program.line() == "inside"
        program.signal(signal.SIGTERM)
        program.end()
    return cluster.values("report")


def test_a_terminated_node_program_gives_its_lock_back(cluster3: Cluster) -> None:
    code = f"""
import {{ Redlock }} from 'quorlock'
const redlock = new Redlock({cluster3.urls!r})
function buildReport({{ signal }}) {{
  console.log('inside')
  return new Promise((end) => signal.addEventListener('abort', () => end()))
}}
{blocks("programs.md", "js")[0]}
"""
    program = subprocess.Popen(
        ["node", "--input-type=module", "-e", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "inside\n"
        program.send_signal(signal.SIGTERM)
        program.wait(20)
    finally:
        program.kill()
        program.communicate()
    assert cluster3.values("report") == [None] * 3


@pytest.mark.parametrize("code", blocks("programs.md", "python"))
def test_the_blocks_for_frameworks_are_python(code: str) -> None:
    ast.parse(code)


LIST = re.search(
    r"^ACL SETUSER app on >password .*$", (ROOT / "docs/servers.md").read_text(), re.MULTILINE
)
LOCKING = """
import logging, sys
from quorlock import LockNotAcquired, Redlock
logging.basicConfig(stream=sys.stdout)
with Redlock(sys.argv[1:]) as locks:
    both = locks.lock(resources=["invoice:1", "invoice:2"], ttl=5, lock_delay=1, min_hold=0.1)
    with both as lease:
        lease.extend(6)
        lease.check()
        assert lease.fencing_token
        assert locks.lock("invoice:1").locked()
        assert not locks.lock("invoice:1").acquire(blocking=False)
    with locks.lock("invoice:3"):
        waiting = locks.lock("invoice:3", timeout=0.3, retry_delay=60, retry_jitter=0)
        assert not waiting.acquire()
    with waiting, locks.lock("invoice:4", fair=True), Redlock(sys.argv[1:]) as others:
        assert not others.lock("invoice:4", timeout=0.3, fair=True).acquire()
        assert others.lock("invoice:4").waiters() == 0
    print(*{node.state for node in locks.nodes})
"""


def lock_with(access_list: str) -> subprocess.CompletedProcess[str]:
    """A program that does everything, by the user that this command makes, as a person sends it."""
    with start_servers(3) as cluster:
        for server in cluster:
            server.command(*access_list.split())
        urls = [server.url_for("app", "password") for server in cluster]
        return subprocess.run(
            [sys.executable, "-c", LOCKING, *urls],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


def test_the_access_list_is_enough() -> None:
    assert LIST
    done = lock_with(LIST[0])
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "healthy\n")


@pytest.mark.parametrize("missing", ["~quorlock:*", "+pttl", "+zscore"])
def test_nothing_of_the_access_list_can_be_left_out(missing: str) -> None:
    assert LIST
    assert missing in LIST[0].split()
    assert lock_with(LIST[0].replace(missing, "")).returncode != 0
