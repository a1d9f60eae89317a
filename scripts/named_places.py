"""Fails if DESIGN.md or CONTRIBUTING.md names a file or a function that is not there.

    python3 scripts/named_places.py

A path is any word in backticks with a slash in it, and what a link leads to. In tables whose last
cell names files, the functions that the first cell names must be defined in one of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["DESIGN.md", "CONTRIBUTING.md"]
#: How a function begins in Rust, Python and TypeScript.
DEFINED = r"(?:\b(?:fn|def|function)\s+|^\s+(?:(?:public|static|override|async)\s+)*){}\s*[<(]"


def main() -> None:
    """Prints what is not there; exits with 1 then."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE,
    ).stdout.splitlines()  # fmt: skip
    problems = [
        f"{page}: {problem}"
        for page in PAGES
        for problem in problems_of((ROOT / page).read_text(), tracked)
    ]
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


def problems_of(text: str, tracked: list[str]) -> Iterator[str]:
    """What a page names that is not among the files `tracked`, or in them."""
    for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines():
        paths = [word for word in quoted(line) if re.fullmatch(r"[\w.-]+/[\w./-]*", word)]
        links = [link for link in re.findall(r"\]\(([^)#]+)\)", line) if ":" not in link]
        for path in [*paths, *links]:
            if path.split("/")[0] == "target":
                continue  # made by the build
            if not any(is_named(path, file) for file in tracked):
                yield f"there is no {path}"
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        files = [path for path in quoted(cells[-1]) if path in tracked]
        if line.startswith("|") and len(cells) > 1 and files:
            code = "\n".join((ROOT / file).read_text() for file in files)
            for name in functions(cells[0]):
                if not re.search(DEFINED.format(name), code, re.MULTILINE):
                    yield f"{', '.join(files)} has no {name}"


def quoted(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def is_named(path: str, file: str) -> bool:
    """Whether `path` is the file or a folder around it, from the root or from a folder below."""
    return f"/{path.strip('/')}/" in f"/{file}/"


def functions(cell: str) -> Iterator[str]:
    """The names of functions in a cell, without their types."""
    for word in quoted(cell):
        if re.fullmatch(r"[\w.:]+", word) and not word[0].isdigit():
            yield re.split(r"::|\.", word)[-1]


if __name__ == "__main__":
    main()
