"""Tests that each cell of COMPARE.md's table has a program in bench/compare, and vice versa."""

from __future__ import annotations

from bench.compare.__main__ import PARTS, Claim, cells, claims
from bench.compare.rows import ALL, ROWS

NOT_ASKED = "–"  # noqa: RUF001 - a dash, as the table has it


def test_every_cell_has_a_program() -> None:
    programs = {(claim.row.title, claim.library) for claim in claims()}
    assert {where for where, said in cells().items() if said != NOT_ASKED} == programs
    assert {library for _, library in cells()} == set(ALL)


def test_every_module_of_programs_has_rows() -> None:
    assert {row.play.__module__ for row in ROWS} == {part.__name__ for part in PARTS}


def test_a_word_of_the_command_line_names_rows_and_libraries() -> None:
    named = [claim for claim in claims() if claim.names(["pottery"])]
    assert {claim.library for claim in named} == {"pottery"}
    claim: Claim = named[0]
    assert claim.names([claim.row.title])
    assert not claim.names(["redsync"])
