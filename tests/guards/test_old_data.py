"""Tests this folder's harness: servers do get old data, and their clocks do run fast."""

from __future__ import annotations

import sys
import time

import pytest

from tests.support.old_data import Failback, OldData, OldLog, Reload, Swap
from tests.support.resp import Connection
from tests.support.servers import Options, Server
from tests.support.wait import eventually

KINDS = [Failback, Reload, Swap, OldLog]


def run_of(server: Server) -> str:
    lines = str(server.command("INFO", "server")).splitlines()
    return next(line for line in lines if line.startswith("run_id:"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_holds_again_what_it_held_before(kind: type[OldData]) -> None:
    with Server(Options(**kind.OPTIONS)) as server:
        server.command("SET", "a", "old", "PX", 60_000)
        run = run_of(server)
        with Connection((server.host, server.port), 5) as client, kind(server) as old:
            server.command("SET", "a", "new")
            server.command("SET", "b", "new")
            old.bring_back()
            assert (server.command("GET", "a"), server.command("GET", "b")) == ("old", None)
            assert 0 < server.command("PTTL", "a") <= 60_000
            assert server.command("SET", "c", "new") == "OK"
            if kind is OldLog:
                assert run_of(server) != run
            else:
                assert run_of(server) == run
                assert client.command("GET", "a") == "old", "its connections are kept"


def test_connections_are_cut() -> None:
    with Server() as server, Connection((server.host, server.port), 5) as client:
        client.command("PING")
        server.cut_connections()
        with pytest.raises(ConnectionError):
            client.command("PING")
        assert server.command("PING") == "PONG"


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
def test_a_clock_gains_time_and_is_set_besides() -> None:
    def ahead() -> float:
        seconds, micros = server.command("TIME")
        return float(seconds) + float(micros) / 1e6 - time.time()

    with Server(Options(clock=True)) as server:
        server.set_clock(100)
        begun = time.monotonic()
        server.gain_time(0.5)
        eventually(lambda: ahead() > 101, 10)
        took = time.monotonic() - begun
        assert 1 < ahead() - 100 <= took * 0.5 + 0.2
