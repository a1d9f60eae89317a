"""Tests that the bench judges by its rows alone: ratios in a round, waits for a lock, failures."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bench import prepare
from bench.__main__ import main
from bench.entrants import ENTRANTS, Entrant
from bench.measure import Staying, quantile, summary
from bench.report import page
from bench.report.figures import Results
from bench.report.targets import targets
from bench.worker import Failed
from bench.workloads import WORKLOADS, contention

Row = dict[str, Any]


def row(entrant: str, number: int, p50: float, **fields: Any) -> Row:
    figures = {"p25": p50, "p50": p50, "p75": p50, "p99": p50, "cpu": p50}
    return {"workload": "single", "nodes": 5, "entrant": entrant, "round": number,
            **figures, **fields}  # fmt: skip


def content(rows: list[Row]) -> dict[str, Any]:
    machine = {"system": "S", "processor": "P", "cores": 2, "pinned": True, "spinning": True}
    return {"date": "2026-11-21", "quick": False, "machine": machine, "server": "valkey 9.1.2",
            "turns": "7 rounds", "versions": {"Python": "3.11"}, "rows": rows}  # fmt: skip


def verdict(rows: list[Row], text: str) -> str:
    return next(it.verdict for it in targets(Results(content(rows))) if text in it.text)


@pytest.mark.parametrize(("times", "met"), [(1.34, "met"), (1.36, "NOT met")])
def test_a_target_is_judged_by_the_ratio_to_the_floor(times: float, met: str) -> None:
    rows = [row("floor", 0, 100.0), row("quorlock Python", 0, times * 100.0)]
    assert verdict(rows, "of the floor's time") == met


def test_a_slow_round_is_slow_for_everybody() -> None:
    # Medians over all rounds would say 100 to 200.
    floor = [row("floor", number, value) for number, value in enumerate((100.0, 100.0, 1000.0))]
    ours = [row("quorlock Python", number, value)
            for number, value in enumerate((120.0, 200.0, 1200.0))]  # fmt: skip
    assert verdict(floor + ours, "of the floor's time") == "met"


def test_what_was_not_measured_is_not_met() -> None:
    assert verdict([], "of the floor's time") == "not measured"


def test_the_page_shows_what_failed_and_where_others_are_ahead(tmp_path: Path) -> None:
    rows = [
        row("floor", 0, 100.0), row("quorlock Node", 0, 300.0), row("node-redlock 5", 0, 200.0),
        {"workload": "single", "nodes": 5, "entrant": "pottery", "failed": "pottery has ended"},
    ]  # fmt: skip
    page.write(content(rows), Path("bench/results/latest.json"), tmp_path)
    text = (tmp_path / page.NAME).read_text()
    assert "pottery has ended" in text
    assert "node-redlock 5 is ahead by 1.50x" in text
    assert (tmp_path / "benchmarks" / "five-nodes.svg").read_text().count("<rect") == 1 + 3


def test_a_lock_lies_idle_only_while_somebody_wants_it() -> None:
    # One holds it from 0 to 10 and from 50 to 60, and rests until 40; the other wants it at 15.
    alone = contention._handoffs([[(0, 0, 10), (40, 50, 60)]])
    assert (alone["acquired"], alone["p50"]) == (2, 10)
    together = contention._handoffs([[(0, 0, 10), (40, 50, 60)], [(15, 70, 80)]])
    assert (together["p50"], together["longest_wait"]) == (quantile([10, 35], 0.5), 55)


def test_two_holders_at_once_are_counted() -> None:
    assert contention._handoffs([[(0, 0, 10)], [(5, 9, 20)]])["overlaps"] == 1
    assert contention._handoffs([[(0, 0, 10)], [(5, 10, 20)]])["overlaps"] == 0


def test_a_turn_without_a_pair_is_a_failure() -> None:
    with pytest.raises(Failed):
        summary({"micros": [], "seconds": 1.0, "cpu": 0.0})


def test_who_fails_in_a_round_keeps_the_others(tmp_path: Path) -> None:
    def faulty(number: int, phase: str) -> Row:
        case = {"workload": "faulty", "case": "hung", "phase": phase}
        return {**row("pottery", number, 4000.0, max=9000.0), **case}

    silent = {"workload": "faulty", "case": "hung", "entrant": "pottery", "round": 1,
              "failed": "pottery: no answer within 10 s"}  # fmt: skip
    rows = [faulty(number, phase) for number in (0, 2) for phase in ("first", "healthy", "after")]
    page.write(content([*rows, silent]), Path("bench/results/latest.json"), tmp_path)
    (line,) = [it for it in (tmp_path / page.NAME).read_text().splitlines() if "1 of 3" in it]
    assert line.startswith("| pottery | 4 ms | 9 ms | 4 ms |")
    assert line.endswith("| 1 of 3: no answer within 10 s |")


def test_only_who_never_succeeds_is_left_out_of_further_rounds() -> None:
    stay = Staying(7)
    for name in ("once", "never"):
        for _ in range(3):
            assert stay.asked(name)
            stay.failed(name)
        if name == "once":
            stay.succeeded(name)
    assert stay.asked("once")
    assert not stay.asked("never")


def test_the_page_names_the_commit_and_missed_targets(tmp_path: Path) -> None:
    rows = [row("floor", 0, 100.0), row("quorlock Python", 0, 136.0)]
    told = {**content(rows), "versions": {"commit": "abc1234-dirty"}}
    page.write(told, Path("bench/results/latest.json"), tmp_path)
    text = (tmp_path / page.NAME).read_text()
    assert "commit abc1234 and changes that were not committed" in text
    assert "one at a time, of the floor's time: 1.36x, not at most 1.35x." in text


def test_a_whole_run_is_refused_on_a_tree_with_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "uncommitted", lambda: " M README.md")
    monkeypatch.setattr(prepare, "prepare", lambda: pytest.fail("prepared all the same"))
    monkeypatch.setattr("sys.argv", ["bench"])
    with pytest.raises(SystemExit):
        main()
    assert " M README.md" in capsys.readouterr().err


@pytest.mark.parametrize("entrant", ENTRANTS, ids=lambda entrant: entrant.name)
def test_every_entrant_has_a_program(entrant: Entrant) -> None:
    folder = prepare.HERE / "contestants"
    endings = (
        "c/{}.c",
        "rust/src/bin/{}.rs",
        "rust_peers/src/{}.rs",
        "python/{}.py",
        "node/{}.mjs",
    )
    assert any((folder / ending.format(entrant.program)).exists() for ending in endings)


def test_every_workload_is_named_after_its_file() -> None:
    assert [module.NAME for module in WORKLOADS.values()] == list(WORKLOADS)


@pytest.mark.parametrize("crate", ["core/client", "core/protocol", "bench/contestants/rust"])
def test_the_rust_peers_lock_file_has_what_our_crates_need(crate: str) -> None:
    # A workspace of its own, which no other check builds.
    lock = tomllib.loads((prepare.HERE / "contestants/rust_peers/Cargo.lock").read_text())
    manifest = tomllib.loads((prepare.ROOT / crate / "Cargo.toml").read_text())
    name = manifest["package"]["name"]
    locked = next(one["dependencies"] for one in lock["package"] if one["name"] == name)
    parts = [manifest, *manifest.get("target", {}).values()]
    # What is optional is locked only where it is asked for.
    wanted = {
        name
        for part in parts
        for name, how in part.get("dependencies", {}).items()
        if not (isinstance(how, dict) and how.get("optional"))
    }
    assert wanted == {name.split()[0] for name in locked}
