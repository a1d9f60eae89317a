"""The server fixtures of tests/python, for the programs of this folder."""

from tests.python.conftest import _five, _three, cluster3, cluster5, fault_proxy, servers

__all__ = ["_five", "_three", "cluster3", "cluster5", "fault_proxy", "servers"]
