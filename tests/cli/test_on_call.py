"""Tests that the page for people on call names every finding, warning, error and exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quorlock import _native
from quorlock.fencing import StaleToken
from tests.cli.command import ROOT

PAGE = (ROOT / "docs" / "on-call.md").read_text()


def _source(path: str | Path) -> str:
    return (ROOT / path).read_text()


def _findings() -> list[str]:
    files = ("core/cli/src/survey/findings.rs", "core/cli/src/survey/findings/fault.rs")
    text = "".join(map(_source, files))
    code = r'"([a-z]+(?:-[a-z]+)*)"'
    found = re.findall(rf"(?:code: |\({{0,1}}){code},(?:\s|$)", text)
    return sorted({*found} - {"ahead", "behind", "unfit", "warning"})


def _notices() -> list[str]:
    text = _source("core/protocol/src/explain/notices.rs")
    return re.findall(r'Self::\w+\(.*\) => "([a-z-]+)"', text)


def _notices_of_bindings() -> list[str]:
    python = "".join(map(_source, sorted((ROOT / "bindings-python/python/quorlock").glob("*.py"))))
    node = "".join(map(_source, sorted((ROOT / "bindings-node/ts").glob("*.ts"))))
    name = r"['\"]([a-z]+(?:-[a-z]+)+)['\"]"
    found = re.findall(rf"(?:\bwarn\(|\._warn\(|\"notice\": )\s*{name}", python)
    found += re.findall(rf"(?:\._warn\(|#warn\()\s*(?:\{{ name: )?{name}", node)
    return sorted({*found} - {*_notices()})


def _texts_of_notices() -> list[str]:
    """Of each notice the first words in a row that name no value."""
    text = _source("core/protocol/src/explain/notices.rs").partition("impl Notice")[2]
    formats = re.findall(r'format!\(\s*"([^"]*)"', text.partition("pub const fn")[0])
    parts = (re.split(r"\{[^}]*\}|[,:;]", re.sub(r"\\\s+", "", it)) for it in formats)
    return [next(part.strip() for part in it if part.strip().count(" ") > 1) for it in parts]


def _statuses() -> list[str]:
    constants = re.findall(r"const (\w+): u8 = (\d+)", _source("core/cli/src/failure.rs"))
    return [number for name, number in constants if name != "SIGNAL"]


def test_the_lists_are_found() -> None:
    assert {"no-quorum", "evicts", "own-clock-off", "unreachable", "same-cluster"} <= {*_findings()}
    assert {"quarantined", "may-evict", "node-up"} <= {*_notices()}
    assert {"events-dropped", "long-ttl", "tracer-failed", "unknown-database"} <= {
        *_notices_of_bindings()
    }
    assert "its clock was set back by" in _texts_of_notices()
    assert {"64", "69", "70", "75", "76", "127"} <= {*_statuses()}


@pytest.mark.parametrize(
    "code",
    [*_findings(), *_notices(), *_notices_of_bindings(), *_native.ERROR_CODES.values(),
     StaleToken.code],
)  # fmt: skip
def test_every_code_is_explained(code: str) -> None:
    assert re.search(rf"^\| [^|]*`{code}`", PAGE, re.MULTILINE), code


@pytest.mark.parametrize("text", _texts_of_notices())
def test_a_warning_is_found_by_its_words(text: str) -> None:
    assert text in PAGE


def test_errors_in_the_log_of_python_are_explained() -> None:
    texts = [
        text
        for path in (ROOT / "bindings-python/python/quorlock").glob("*.py")
        for text in re.findall(r'(?:log_failure|log\.error)\("([^",]*)', path.read_text())
    ]
    assert len({*texts}) > 2
    for text in texts:
        assert text in " ".join(PAGE.split()), text


@pytest.mark.parametrize("status", _statuses())
def test_every_exit_code_is_explained(status: str) -> None:
    table = PAGE.partition("## Exit codes")[2].partition("##")[0]
    assert re.search(rf"^\| (?:\d+, )?{status}\b", table, re.MULTILINE), status


def test_a_loss_that_is_seen_at_the_release_is_explained() -> None:
    outcomes = _source("core/client/src/error.rs").partition("fn of_outcome")[2]
    texts = re.findall(r'"(\w[^"{}]*)"', outcomes.partition("format!")[0])
    assert len(texts) == 2
    losses = PAGE.partition("### Why leases are lost")[2].partition("\n#")[0]
    for text in texts:
        assert text in losses, text
