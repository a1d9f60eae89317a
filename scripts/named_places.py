"""Fails if DESIGN.md or CONTRIBUTING.md names a file or a function that is not there.

    python3 scripts/named_places.py

A path is any word in backticks with a slash in it, and what a link leads to. In tables whose last
cell names files, the functions that the first cell names must be defined in one of them, and the
type before a function's name must be defined, or have an `impl`, in the same file.
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

#: How the definition of a type, or what Rust calls its `impl`, begins.
TYPE = r"\b(?:class|struct|enum|trait|interface|impl(?:<[^{{\n]*>)?(?: [^{{\n]* for)?) +{}\b"


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
            codes = [(ROOT / file).read_text() for file in files]
            for path in functions(cells[0]):
                if not any(defines(code, path) for code in codes):
                    yield f"{', '.join(files)} has no {path}"


def quoted(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def is_named(path: str, file: str) -> bool:
    """Whether `path` is the file or a folder around it, from the root or from a folder below."""
    return f"/{path.strip('/')}/" in f"/{file}/"


def functions(cell: str) -> Iterator[str]:
    """The functions that a cell names, with their types."""
    for word in quoted(cell):
        if re.fullmatch(r"[\w.:]+", word) and not word[0].isdigit():
            yield word.replace("::", ".")


def defines(code: str, path: str) -> bool:
    """Whether a file defines the function, and the type before its name if there is one."""
    *above, name = path.split(".")
    types = [it for it in above[-1:] if it[:1].isupper()]
    wanted = [DEFINED.format(name), *(TYPE.format(it) for it in types)]
    return all(re.search(pattern, code, re.MULTILINE) for pattern in wanted)


if __name__ == "__main__":
    main()
