"""Tests that the checker finds what it should, with histories made by hand, good and bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import GRACE, STALL, Verdict, judge, with_majority
from tests.chaos.counter import Counters
from tests.chaos.history import READ, WRITE, Access, Claim, Harm, History, read_logs
from tests.chaos.kinds import KINDS, QUARANTINE

A = Claim("a#1", "a", ("r",), token=10, began=99.9, at=100.0, until=101.0)
B = Claim("b#1", "b", ("r",), token=11, began=101.0, at=101.1, until=102.0)


def verdict_on(*claims: Claim, **more: Any) -> Verdict:
    history = History(begun=100.0, ended=110.0, nodes=5, claims=list(claims))
    return judge(replace(history, **more))


def kinds(verdict: Verdict) -> list[str]:
    return [violation.kind for violation in verdict.violations]


def test_one_after_another_is_good() -> None:
    assert kinds(verdict_on(A, B, ended=103.0)) == []


@pytest.mark.parametrize(
    "second",
    [
        replace(B, at=100.999),
        replace(B, at=100.5, until=100.6),  # within the other
        replace(B, at=100.5, until=105.0),
        replace(B, at=100.0),
        replace(B, names=("other", "r"), at=100.5),
    ],
)
def test_two_promises_at_one_moment_overlap(second: Claim) -> None:
    assert "overlap" in kinds(verdict_on(A, second))
    assert "overlap" in kinds(verdict_on(second, A))


def test_every_pair_counts() -> None:
    third = replace(B, lease="c#1", at=100.2, token=12)
    assert verdict_on(A, replace(B, at=100.1), third).count("overlap") == 3


@pytest.mark.parametrize(
    "first",
    [
        replace(A, ended=100.4),  # given back before
        replace(A, until=100.5),  # over at the moment that the other begins
        replace(A, names=("other",)),
    ],
)
def test_what_does_not_overlap(first: Claim) -> None:
    assert kinds(verdict_on(first, replace(B, began=100.45, at=100.5))) == []


def test_a_release_after_the_end_does_not_prolong_a_promise() -> None:
    assert kinds(verdict_on(replace(A, ended=105.0), B, ended=106.0)) == []


def test_a_long_promise_is_seen_behind_shorter_ones() -> None:
    short = replace(B, lease="s#1", names=("r",), at=100.1, until=100.2, token=12)
    late = replace(B, lease="l#1", at=104.0, until=105.0, token=13)
    assert verdict_on(replace(A, until=104.5), short, late).count("overlap") == 2


@pytest.mark.parametrize("token", [9, 10])
def test_a_later_acquisition_without_a_larger_token(token: int) -> None:
    assert kinds(verdict_on(A, replace(B, token=token), ended=103.0)) == ["token order"]


def test_concurrent_acquisitions_have_tokens_in_any_order() -> None:
    first = replace(A, until=100.5)
    second = replace(B, began=99.95, at=100.6, token=9)
    assert kinds(verdict_on(first, second)) == []


def test_tokens_are_compared_with_the_highest_before() -> None:
    high = replace(A, lease="h#1", token=50, began=100.0, at=100.0, until=100.1)
    low = replace(B, lease="l#1", token=40, began=100.05, at=100.2, until=100.3)
    last = replace(B, lease="z#1", token=45, began=100.25, at=100.4, until=100.5)
    # The second began before the first was told, so only the last is wrong.
    assert kinds(verdict_on(replace(high, at=100.06), low, last)) == ["token order"]


def access(token: int, kind: object, value: int, *, accepted: bool = True) -> Access:
    return Access("r", f"lease-{token}", token, kind, accepted, value)  # type: ignore[arg-type]


def test_increments_in_order_are_good() -> None:
    accesses = [
        access(1, READ, 0), access(1, WRITE, 1), access(2, READ, 1),
        access(1, WRITE, 2, accepted=False), access(2, WRITE, 2), access(2, WRITE, 3),
    ]  # fmt: skip
    verdict = verdict_on(A, ended=101.0, accesses=accesses)
    assert kinds(verdict) == []
    assert verdict.refused == 1


def test_a_lost_update() -> None:
    accesses = [
        access(1, READ, 0), access(2, READ, 0), access(2, WRITE, 1), access(3, WRITE, 1)
    ]  # fmt: skip
    assert kinds(verdict_on(A, ended=101.0, accesses=accesses)) == ["lost update"]


def test_a_late_writer_that_was_let_in() -> None:
    accesses = [access(2, READ, 0), access(1, WRITE, 1), access(2, WRITE, 2)]
    assert kinds(verdict_on(A, ended=101.0, accesses=accesses)) == ["late writer"]


def test_late_is_measured_by_the_highest_token_not_by_the_last() -> None:
    accesses = [access(3, READ, 0), access(1, READ, 0), access(2, WRITE, 1)]
    assert kinds(verdict_on(A, ended=101.0, accesses=accesses)) == ["late writer"] * 2


def test_a_late_reader_that_was_let_in() -> None:
    accesses = [access(2, WRITE, 1), access(1, READ, 1)]
    assert kinds(verdict_on(A, ended=101.0, accesses=accesses)) == ["late writer"]


def test_a_problem_is_a_violation() -> None:
    assert kinds(verdict_on(A, ended=101.0, problems=["it crashed"])) == ["problem"]


def test_nobody_acquires_although_a_majority_is_up() -> None:
    quiet = STALL + GRACE + 1
    verdict = verdict_on(replace(A, at=100.0), ended=100.0 + quiet)
    assert kinds(verdict) == ["stall"]
    assert verdict.longest_wait == pytest.approx(quiet - GRACE)


def test_a_stall_between_two_acquisitions() -> None:
    claims = [replace(A, at=104.0, until=104.1), replace(B, began=104, at=105 + STALL, until=120.0)]
    assert kinds(verdict_on(*claims, ended=106 + STALL)) == ["stall"]


def test_nobody_need_acquire_without_a_majority() -> None:
    harms = [Harm("pause", frozenset({0, 1, 2}), 101.0, 130.0)]
    assert kinds(verdict_on(A, ended=130.0, harms=harms)) == []


def test_a_minority_is_no_excuse() -> None:
    harms = [Harm("pause", frozenset({0, 1}), 101.0, 130.0)]
    assert kinds(verdict_on(A, ended=130.0, harms=harms)) == ["stall"]


def test_harms_of_several_nodes_add_up() -> None:
    harms = [
        Harm("pause", frozenset({0, 1}), 110.0, 130.0),
        Harm("kill", frozenset({1, 2}), 120.0, 140.0),
    ]
    history = History(begun=100.0, ended=150.0, nodes=5, harms=harms)
    # Three are hurt from 120 to 130.
    assert with_majority(history) == [(100.0 + GRACE, 120.0), (130.0 + GRACE, 150.0)]


def test_a_node_is_hurt_until_the_last_of_its_harms_ends() -> None:
    harms = [
        Harm("pause", frozenset({0, 1, 2}), 110.0, 130.0),
        Harm("kill", frozenset({0, 1, 2}), 120.0, 140.0),
    ]
    history = History(begun=100.0, ended=150.0, nodes=5, harms=harms)
    assert with_majority(history) == [(100.0 + GRACE, 110.0), (140.0 + GRACE, 150.0)]


def test_an_overlap_is_told_with_its_length() -> None:
    (violation,) = verdict_on(A, replace(B, began=100.0, at=100.25)).violations
    assert violation.text.endswith("750.000 ms for both")


def test_availability_counts_seconds_with_a_holder() -> None:
    held = replace(A, at=101.5, until=104.5)
    verdict = verdict_on(held, ended=110.0)
    assert verdict.available == pytest.approx(4 / 9)  # 101 to 104, of 101 to 109


def test_the_counter_takes_a_read_for_a_use() -> None:
    counters = Counters()
    use = {"name": "r", "lease": "a#1", "token": 1}
    assert counters.serve({**use, "do": "read"}) == {"accepted": True, "value": 0, "careless": 0}
    late = {**use, "do": "write", "value": 1, "careless": 1}
    assert counters.serve({**use, "token": 2, "do": "read"})["accepted"]
    assert counters.serve(late) == {"accepted": False}
    assert counters.serve({**late, "token": 2}) == {"accepted": True}
    assert counters.careless_lost == 1


LOG = """\
{"what": "held", "lease": "a#1", "names": ["r"], "token": 7, "asked": 5, "at": 9, "until": 9.9, "ttl": 1}
{"what": "still", "lease": "a#1", "until": 10.5, "latest": 10.6}
{"what": "still", "lease": "a#1", "until": 10.2, "latest": 10.55}
{"what": "ends", "lease": "a#1", "at": 10.1}
{"what": "ends", "lease": "never told", "at": 10.1}
{"what": "error", "name": "LeaseLost"}
{"what": "problem", "text": "oh"}
{"what": "hel"""  # noqa: E501


def test_logs_are_read_up_to_a_torn_line(tmp_path: Path) -> None:
    log = tmp_path / "a.1.log"
    log.write_text(LOG)
    history = History(0, 0, 5)
    read_logs([log], history)
    (claim,) = history.claims
    # The winning round began a ttl before the end of the first promise, not when it was asked for.
    assert claim.began == pytest.approx(8.9)
    assert replace(claim, began=0) == Claim("a#1", "a.1", ("r",), 7, 0, 9, 10.5, 10.1)
    assert claim.shortened == 0, "the process may have been stopped before it wrote 10.2"
    assert claim.over == 10.1
    assert history.endings == {"LeaseLost": 1}
    assert history.problems == ["oh"]


def test_an_end_that_is_taken_back_is_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "a.1.log"
    log.write_text(LOG.replace('"latest": 10.55', '"latest": 10.25'))
    history = History(0, 0, 5)
    read_logs([log], history)
    (claim,) = history.claims
    assert claim.until == 10.5
    assert claim.shortened == pytest.approx(0.25)


@pytest.mark.parametrize(("by", "found"), [(0.25, ["shortened"]), (0.001, [])])
def test_an_end_that_is_taken_back_is_a_violation(by: float, found: list[str]) -> None:
    assert kinds(verdict_on(replace(A, shortened=by), ended=103.0)) == found


def test_a_link_that_is_cut_is_no_excuse_for_a_stall() -> None:
    # Others reach the node: a link is no harm that the nemesis notes.
    assert not KINDS["link"].harms
    assert not KINDS["other clocks"].harms


@pytest.mark.parametrize("kind", ["failback", "old failback", "failbacks", "successive"])
def test_a_node_that_forgot_is_of_no_use_until_it_is_trusted(kind: str) -> None:
    assert KINDS[kind].harms
    assert KINDS[kind].needs_guards
    harms = [Harm(kind, frozenset({0, 1, 2}), 101.0, 101.5 + QUARANTINE)]
    history = History(begun=100.0, ended=115.0, nodes=5, harms=harms)
    assert with_majority(history) == [(101.5 + QUARANTINE + GRACE, 115.0)]
