"""Tests the schedule of faults: the same for one seed, every kind in turn, a whole majority."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.chaos.actions import CLIENT_ACTIONS, GROUP_ACTIONS, NODE_ACTIONS
from tests.chaos.clients import Clients
from tests.chaos.kinds import FORGETTING, GUARDED, KINDS, PROMISED, Target
from tests.chaos.plan import QUIET, Fault, World, schedule

WORLD = World(nodes=5, clients=Clients.COUNT, clocks=Clients.CLOCKS)
SEEDS = range(30)


def faults(seed: int, seconds: float = 120.0, names: list[str] = PROMISED) -> list[Fault]:
    return schedule(seed, seconds, names, WORLD)


def test_a_seed_gives_one_schedule() -> None:
    assert faults(1) == faults(1)
    assert faults(1) != faults(2)


@pytest.mark.parametrize("names", [PROMISED, GUARDED, FORGETTING])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_minute_has_every_kind(seed: int, names: list[str]) -> None:
    assert {fault.kind.name for fault in faults(seed, 60, names)} == set(names)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_majority_is_whole_unless_a_kind_says_otherwise(seed: int) -> None:
    plan = faults(seed)
    for fault in plan:
        hurt = {
            node
            for other in plan
            if other.kind.harms and other.kind.target is Target.NODE
            and other.begin <= fault.begin < other.end
            for node in other.targets
        }  # fmt: skip
        assert len(hurt) <= 2
        if fault.kind.target in (Target.MAJORITY, Target.ALL):
            assert not hurt


@pytest.mark.parametrize("seed", SEEDS)
def test_one_fault_at_a_time_hits_a_target(seed: int) -> None:
    by_target: dict[tuple[str, int], list[Fault]] = {}
    for fault in faults(seed):
        kind = fault.kind.target
        what = kind.value if kind in (Target.CLIENT, Target.LINK) else "node"
        # Of a link, its client: one that reaches a majority is left to most.
        targets = fault.targets[:1] if kind is Target.LINK else fault.targets
        for target in targets:
            by_target.setdefault((what, target), []).append(fault)
    for plan in by_target.values():
        for before, after in pairwise(plan):
            assert before.end < after.begin


def test_all_is_over_before_the_end() -> None:
    assert max(fault.end for seed in SEEDS for fault in faults(seed)) <= 120 - QUIET[1]


def test_only_clocks_that_can_be_set_are_set() -> None:
    for seed in SEEDS:
        for fault in faults(seed):
            if fault.kind.name == "client clock":
                assert fault.targets[0] in WORLD.clocks


def test_every_kind_can_be_made() -> None:
    made = {*NODE_ACTIONS, *CLIENT_ACTIONS, *GROUP_ACTIONS, "lost reply", "link", "other clocks"}
    assert made == set(KINDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_links_are_those_of_one_client_and_one_node(seed: int) -> None:
    for fault in faults(seed, names=["link"]):
        client, node = fault.targets
        assert client in range(WORLD.clients)
        assert node in range(WORLD.nodes)


@pytest.mark.parametrize("seed", SEEDS)
def test_old_data_does_not_come_back_before_it_is_old(seed: int) -> None:
    for fault in faults(seed, names=FORGETTING):
        assert fault.begin >= fault.kind.not_before
