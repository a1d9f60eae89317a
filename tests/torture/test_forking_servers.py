"""Tests servers and queues that fork their workers, with a lease that the parent keeps."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import watchdog
from tests.support.cluster import Cluster
from tests.support.ports import free_port
from tests.support.processes import end_group
from tests.support.servers import APART
from tests.support.wait import eventually
from tests.torture.counts import times

GUNICORN = """
import os
import time
import quorlock

locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","), retry_delay=0.01)
# Before the fork: the engine and its connections are there, and a lease is renewed.
kept = locks.lock("kept", ttl=4, auto_extend=True)
assert kept.acquire()

def application(environ, start_response):
    with locks.lock("request", ttl=5, timeout=20) as lease:
        body = f"{os.getpid()} {lease.fencing_token} {kept.owned()}".encode()
    time.sleep(0.005)  # so that no worker alone can serve everybody
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def test_a_server_that_forks_before_it_serves(cluster3: Cluster, tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(GUNICORN)
    address = f"127.0.0.1:{free_port()}"
    words = ["gunicorn", "--preload", "--workers", "3", "--threads", "2", "--bind", address]
    with service([*words, "application:application"], tmp_path, cluster3):
        eventually(lambda: ask(address) is not None, 30)
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(ask, [address] * times(60, 2000)))
        judge([reply.split() for reply in replies if reply is not None], len(replies), cluster3)


CELERY = """
import os
import celery.signals
import quorlock

app = celery.Celery("jobs", broker="filesystem://", backend="file://" + os.environ["FOLDER"])
app.conf.broker_transport_options = {
    f"{name}_folder{way}": os.path.join(os.environ["FOLDER"], "queue")
    for name, way in (("data", "_in"), ("data", "_out"), ("control", ""))
}
locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","), retry_delay=0.01)
kept = locks.lock("kept", ttl=4, auto_extend=True)

@celery.signals.worker_init.connect  # in the parent of the pool
def begin(**_):
    assert kept.acquire()

@app.task
def job():
    with locks.lock("job", ttl=5, timeout=20) as lease:
        return f"{os.getpid()} {lease.fencing_token} {kept.owned()}"
"""

PRODUCER = """
import sys, jobs
replies = []
# Until more than one worker has come up.
while len({reply.split()[0] for reply in replies}) < 2:
    results = [jobs.job.delay() for _ in range(int(sys.argv[1]))]
    replies += [result.get(timeout=60, interval=0.05) for result in results]
for reply in replies:
    print(reply)
"""


def test_a_queue_that_forks_before_it_works(cluster3: Cluster, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(CELERY)
    (tmp_path / "queue").mkdir()
    words = ["celery", "-A", "jobs", "worker", "--pool", "prefork", "--concurrency", "3"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"]
    with service([*words, *quiet], tmp_path, cluster3):
        out = subprocess.run(
            [sys.executable, "-c", PRODUCER, str(times(20, 500))], cwd=tmp_path, check=True,
            text=True, stdout=subprocess.PIPE, env=variables(tmp_path, cluster3),
            timeout=times(120, 600),
        ).stdout  # fmt: skip
        replies = [line.split() for line in out.splitlines()]
        judge(replies, len(replies), cluster3)


def judge(replies: list[list[str]], count: int, cluster: Cluster) -> None:
    assert len(replies) == count
    pids, tokens, owned = zip(*replies, strict=True)
    assert len(set(pids)) > 1, "one worker did it all"
    assert len(set(tokens)) == count
    assert set(owned) == {"False"}, "a worker takes its parent's lease for its own"
    # The parent renews it, while it does nothing but wait for its children.
    assert cluster.values("kept").count(None) <= 1


@contextlib.contextmanager
def service(words: list[str], folder: Path, cluster: Cluster) -> Iterator[None]:
    """A program that serves; it must end well when it is asked to."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=folder, stdout=output, stderr=output,
            env=variables(folder, cluster), **APART,
        )  # fmt: skip
    watchdog.register(process.pid)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        watchdog.forget(process.pid)
        end_group(process)


def variables(folder: Path, cluster: Cluster) -> dict[str, str]:
    nodes = ",".join(cluster.urls)
    return {**os.environ, "QUORLOCK_NODES": nodes, "FOLDER": str(folder), "C_FORCE_ROOT": "1"}


def ask(address: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=30) as reply:
            return str(reply.read().decode())
    except OSError:
        return None
