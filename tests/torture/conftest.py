"""The servers of tests/python, for programs that are treated badly."""

from tests.python.conftest import _five, _three, cluster3, cluster5, fault_proxy, servers

__all__ = ["_five", "_three", "cluster3", "cluster5", "fault_proxy", "servers"]
