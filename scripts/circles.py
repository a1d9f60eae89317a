"""Fails if modules depend on each other in a circle: the code must have a bottom and a top.

    python3 scripts/circles.py

Reads the paths in Rust code, and `import` lines. A module is a file or a folder; what stands inside
a folder is compared with its neighbours there, however a path to them is written. Tests do not
count, nor what is imported for its types alone: Python and JavaScript never see it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUST = [
    "core/protocol/src",
    "core/client/src",
    "core/cli/src",
    "bindings-python/src",
    "bindings-node/src",
]
PYTHON = "bindings-python/python/quorlock"
TYPESCRIPT = "bindings-node/ts"

Graph = dict[str, set[str]]
#: The way from the top of a package to a module, or to what is in one.
Place = tuple[str, ...]

_RUST_TESTS = r"#\[cfg\(.*\btest\b.*\)\]\s*mod tests \{"
_RUST_PATH = r"(?<![\w:])(?:crate|super|self)(?:\s*::\s*\w+)*(?:\s*::\s*\{)?"


def graphs(imports: Iterable[tuple[Place, Place]]) -> dict[Place, Graph]:
    """For each folder, which of its modules uses which other one."""
    found: dict[Place, Graph] = {}
    for user, used in imports:
        same = 0
        while user[same : same + 1] == used[same : same + 1] != ():
            same += 1
        if same < min(len(user), len(used)):
            graph = found.setdefault(user[:same], {})
            graph.setdefault(user[same], set()).add(used[same])
    return found


def rust_imports(source: Path) -> Iterator[tuple[Place, Place]]:
    """Each module of a crate with each place that it names."""
    paths = {_place(path, source): path for path in source.rglob("*.rs")}
    modules = {place: path for place, path in paths.items() if "tests" not in place}
    for module, path in modules.items():
        code = re.sub(r"//.*", "", re.split(_RUST_TESTS, path.read_text())[0])
        for match in re.finditer(_RUST_PATH, code):
            words = re.findall(r"\w+", match[0])
            rests = _branches(code[match.end() :]) if match[0].endswith("{") else [[]]
            for rest in rests:
                yield module, _module_of(_absolute([*words, *rest], module), modules)


def _branches(code: str) -> list[list[str]]:
    """The paths in a brace that was opened just before, with those of braces inside of it."""
    return _brace(iter(re.findall(r"\w+|[{},]", code)))


def _brace(words: Iterator[str]) -> list[list[str]]:
    found: list[list[str]] = []
    path: list[str] = []
    rests: list[list[str]] = [[]]
    for word in words:
        if word == "{":
            rests = _brace(words)
        elif word in ",}":
            found.extend([*path, *rest] for rest in rests)
            path, rests = [], [[]]
            if word == "}":
                break
        else:
            path.append(word)
    return found


def _absolute(words: list[str], module: Place) -> Place:
    """The place from the top of the crate."""
    base = () if words[0] == "crate" else module
    while words and words[0] in ("crate", "super", "self"):
        if words[0] == "super":
            base = base[:-1]
        words = words[1:]
    return (*base, *words)


def _module_of(place: Place, modules: dict[Place, Path]) -> Place:
    """The module in which the named thing is, or which it is."""
    while place and place not in modules:
        place = place[:-1]
    return place


def python_imports(package: Path) -> Iterator[tuple[Place, Place]]:
    """Each module of the package with what it imports. Imports inside of functions count."""
    modules = {_place(path, package): path for path in package.rglob("*.py")}
    tops = {("_native",), *(module[:1] for module in modules)}
    for module, path in modules.items():
        folder = path.parent.relative_to(package.parent).parts
        for node in _run_nodes(ast.parse(path.read_text())):
            for name in _imported(node, folder):
                if name[0] == package.name:
                    # What is no module of the package is one of the names that its top exports.
                    yield module, name[1:] if name[1:2] in tops else ("__init__",)


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The tree without what is run by type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _run_nodes(node)


def _imported(node: ast.AST, folder: Place) -> list[Place]:
    """The full names that an import in this folder takes in."""
    if isinstance(node, ast.Import):
        return [tuple(alias.name.split(".")) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = folder[: len(folder) - node.level + 1] if node.level else ()
        base = (*base, *node.module.split(".")) if node.module else base
        return [(*base, alias.name) for alias in node.names]
    return []


def typescript_imports(folder: Path) -> Iterator[tuple[Place, Place]]:
    """Each module of the package with what it imports, without `import type`."""
    imports = r"^(?:import|export)(?! type)\b[^;'\"]*'\./(\w+)'"
    for path in folder.glob("*.ts"):
        for used in re.findall(imports, path.read_text(), flags=re.MULTILINE):
            yield (path.stem,), (used,)


def _place(path: Path, top: Path) -> Place:
    """`a/b.rs` is the module `(a, b)`, `lib.rs` the crate."""
    place = path.relative_to(top).with_suffix("").parts
    return () if place == ("lib",) else place


def circles(graph: Graph) -> list[list[str]]:
    """Each circle once, as the modules on it in order."""
    found: dict[frozenset[str], list[str]] = {}
    for start in sorted(graph):
        paths = [[start]]
        seen: set[str] = set()
        while paths:
            path = paths.pop(0)
            for module in sorted(graph.get(path[-1], ())):
                if module == start:
                    found.setdefault(frozenset(path), path)
                elif module not in seen:
                    seen.add(module)
                    paths.append([*path, module])
    return list(found.values())


def main() -> int:
    """Prints each circle; tells whether there is none."""
    imports = {each: rust_imports(ROOT / each) for each in RUST}
    imports[PYTHON] = python_imports(ROOT / PYTHON)
    imports[TYPESCRIPT] = typescript_imports(ROOT / TYPESCRIPT)
    found = 0
    for package, uses in imports.items():
        by_folder = graphs(uses)
        if not by_folder:
            print(f"{package}: no module was found")
            found += 1
        for folder, graph in by_folder.items():
            for circle in circles(graph):
                print(f"{'/'.join([package, *folder])}: {' -> '.join([*circle, circle[0]])}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
