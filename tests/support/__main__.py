"""Servers and proxies as a command, for tests and demos in other languages.

    python -m tests.support --count 5

prints one JSON line that describes the servers, then answers JSON lines on standard input with
JSON lines on standard output, and ends with all its servers when the input closes:

    > {"id": 1, "do": "pause", "server": 0}
    < {"id": 1, "result": null}
    > {"id": 2, "do": "proxy", "server": 1}
    < {"id": 2, "result": {"proxy": 0, "port": 41999, "url": "redis://127.0.0.1:41999"}}
    > {"id": 3, "do": "proxy.swallow_reply", "proxy": 0, "text": "invoice:42"}
    < {"id": 3, "result": 0}
    > {"id": 4, "do": "wait", "expectation": 0}
    < {"id": 4, "error": "no command with ...", "type": "TimeoutError"}

The first line has such an `error`, too, if the servers do not start; the program then ends.

Commands: server.* and proxy.* call the method of that name on Server and FaultProxy with the other
fields as arguments; the rest are the functions of Commands below.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from typing import Any

from tests.support.binary import server_version
from tests.support.cluster import reset, start_servers
from tests.support.proxy import Expectation, FaultProxy
from tests.support.servers import Options, Server

Json = dict[str, Any]
_SERVER_METHODS = {
    "pause",
    "resume",
    "kill",
    "stop",
    "restart",
    "heal",
    "flush",
    "keys",
    "command",
    "set_clock",
}
_PROXY_METHODS = {
    "delay", "stall", "cut_after", "reset", "half_close", "refuse", "heal", "close",
    "swallow_reply", "expect",
}  # fmt: skip


class Commands:
    """Takes commands; each public method is one."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.proxies: list[FaultProxy] = []
        self.expectations: list[Expectation] = []

    def start(self, count: int, **options: Any) -> list[Json]:
        """Starts more servers; options as in `Options` (`replica_of` is a server's number)."""
        if (master := options.get("replica_of")) is not None:
            options["replica_of"] = self.servers[master]
        first = len(self.servers)
        self.servers += start_servers(count, Options(**options))
        return [self.describe(index) for index in range(first, len(self.servers))]

    def describe(self, server: int) -> Json:
        """Where a server is."""
        it = self.servers[server]
        return {
            "server": server,
            "host": it.host,
            "port": it.port,
            "pid": it.pid if it.running else None,
            "url": it.url,
            "unix_url": it.unix_url if it.options.unix_socket else None,
        }

    def log(self, server: int) -> str:
        """What a server has written."""
        return self.servers[server].log

    def reset(self) -> None:
        """As `Cluster.reset`, for all servers."""
        reset(self.servers)

    def proxy(self, server: int, *, tls: bool = False, ask_client: bool = False) -> Json:
        """Puts a fault proxy before a server."""
        context = None
        if tls:
            from tests.support.tls import certificates

            context = certificates().server_context(ask_client=ask_client)
        proxy = FaultProxy(self.servers[server], tls=context)
        self.proxies.append(proxy)
        return {"proxy": len(self.proxies) - 1, "port": proxy.port, "url": proxy.url}

    def connections(self, proxy: int) -> int:
        """How many connections a proxy has accepted."""
        return self.proxies[proxy].connections

    def has_clocks(self) -> bool:
        """Whether servers with `clock` can be started."""
        return sys.platform == "linux"

    def certificates(self) -> Json:
        """Paths of the certificates that `proxy` with `tls` uses."""
        from tests.support.tls import certificates

        return vars(certificates())

    def came(self, expectation: int) -> bool:
        """Whether the command that was looked out for has passed."""
        return self.expectations[expectation].came

    def wait(self, expectation: int, timeout: float = 10.0) -> None:
        """Until it has passed."""
        self.expectations[expectation].wait(timeout)

    def call(self, name: str, arguments: Json) -> Any:
        """Runs one command by its name."""
        kind, _, method = name.rpartition(".")
        if kind == "server" and method in _SERVER_METHODS:
            target: Any = self.servers[arguments.pop("server")]
            words = arguments.pop("words", [])
            return getattr(target, method)(*words, **arguments)
        if kind == "proxy" and method in _PROXY_METHODS:
            result = getattr(self.proxies[arguments.pop("proxy")], method)(**arguments)
            if isinstance(result, Expectation):
                self.expectations.append(result)
                return len(self.expectations) - 1
            return result
        if not kind and not method.startswith("_") and method != "call" and hasattr(self, method):
            return getattr(self, method)(**arguments)
        raise ValueError(f"unknown command {name!r}")

    def close(self) -> None:
        """Ends everything."""
        for proxy in self.proxies:
            proxy.close()
        for server in self.servers:
            server.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5, help="servers to start (default 5)")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON, as in Options")
    arguments = parser.parse_args()
    # The one who started us says when to end, by closing our input; a Ctrl-C in the terminal
    # reaches it as well as us. A polite kill still leaves no server behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    commands = Commands()
    try:
        servers, (name, version) = _begin(commands, arguments)
        _say({"servers": servers, "name": name, "version": ".".join(map(str, version))})
        for line in sys.stdin:
            request = json.loads(line)
            if request.get("do") == "wait":
                # Others must be able to make happen what this one waits for.
                threading.Thread(target=_answer, args=(commands, request), daemon=True).start()
            else:
                _answer(commands, request)
    finally:
        commands.close()


def _begin(
    commands: Commands, arguments: argparse.Namespace
) -> tuple[list[Json], tuple[str, tuple[int, ...]]]:
    try:
        return commands.start(arguments.count, **arguments.options), server_version()
    except Exception as error:
        _say({"error": str(error), "type": type(error).__name__})
        raise


def _answer(commands: Commands, request: Json) -> None:
    number = request.pop("id", None)
    try:
        _say({"id": number, "result": commands.call(request.pop("do"), request)})
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told
        _say({"id": number, "error": str(error), "type": type(error).__name__})


_output = threading.Lock()


def _say(message: Json) -> None:
    with _output:
        print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
