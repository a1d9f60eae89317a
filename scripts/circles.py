"""Fails if modules depend on each other in a circle: the code must have a bottom and a top.

    python3 scripts/circles.py

Reads `use` and `import` lines. A Rust module is a file, or a folder, next to `lib.rs`; what stands
inside a folder is compared with its neighbours there. Tests do not count, nor what is imported for
its types alone: Python and JavaScript never see it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
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

_RUST_TESTS = r"#\[cfg\(.*\btest\b.*\)\]\s*mod tests \{"
_FOR_TYPES = r"^if TYPE_CHECKING:\n(?:    .*\n|\n)*"


def rust_graphs(source: Path) -> Iterator[tuple[str, Graph]]:
    """The modules of a crate, and those of each of its folders."""
    yield str(source.relative_to(ROOT)), _rust_graph(source, r"\bcrate::")
    folders = (path for path in source.rglob("*") if path.is_dir() and path.name != "tests")
    for folder in sorted(folders):
        yield str(folder.relative_to(ROOT)), _rust_graph(folder, r"\bsuper::")


def _rust_graph(folder: Path, prefix: str) -> Graph:
    modules = {path.stem for path in folder.iterdir()} - {"lib", "tests"}
    graph: Graph = {}
    for path in folder.rglob("*.rs"):
        module = path.relative_to(folder).parts[0].removesuffix(".rs")
        # What lies deeper says `super` of its own folder.
        is_deep = "super" in prefix and path.parent != folder
        if module not in modules or path.stem == "tests" or is_deep:
            continue
        code = re.sub(r"//.*", "", re.split(_RUST_TESTS, path.read_text())[0])
        for tree in re.findall(prefix + r"(\{[^;]*?\}|\w+)", code):
            named = re.findall(r"(?:^\{|,)\s*(\w+)", tree) if tree[0] == "{" else [tree]
            graph.setdefault(module, set()).update({*named} & modules - {module})
    return graph


def python_graph(package: Path) -> Graph:
    """The modules of the package. Imports inside of functions count, those for types do not."""
    graph: Graph = {}
    for path in package.glob("*.py"):
        code = re.sub(_FOR_TYPES, "", path.read_text(), flags=re.MULTILINE)
        of_module = re.findall(r"^\s*from \.(\w+) import", code, flags=re.MULTILINE)
        by_name = re.findall(r"^\s*from \. import (.+)", code, flags=re.MULTILINE)
        graph[path.stem] = {*of_module, *re.findall(r"\w+", " ".join(by_name))}
    return graph


def typescript_graph(folder: Path) -> Graph:
    """The modules of the package, without `import type`."""
    imports = r"^(?:import|export)(?! type)\b[^;'\"]*?from '\./(\w+)'"
    return {
        path.stem: set(re.findall(imports, path.read_text(), flags=re.MULTILINE))
        for path in folder.glob("*.ts")
    }


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
    graphs = [each for source in RUST for each in rust_graphs(ROOT / source)]
    graphs.append((PYTHON, python_graph(ROOT / PYTHON)))
    graphs.append((TYPESCRIPT, typescript_graph(ROOT / TYPESCRIPT)))
    found = [(place, circle) for place, graph in graphs for circle in circles(graph)]
    for place, circle in found:
        print(f"{place}: {' -> '.join([*circle, circle[0]])}")
    if not any(graph for _, graph in graphs):
        print("no module was found")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
