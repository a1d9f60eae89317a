"""Tests that `scripts/circles.py` sees a circle, however the path to a module is written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "circles.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("circles", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load()


def circles(imports: object) -> list[list[str]]:
    return [circle for graph in script.graphs(imports).values() for circle in script.circles(graph)]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "up",
    [
        "use crate::node::session::Session;",
        "use super::super::session::Session;",
        "use crate::{clock::{Clock, now}, node::session::Session};",
        "fn f() { crate::node::session::begin() }",
    ],
)
def test_a_circle_within_a_folder_of_rust_is_seen(tmp_path: Path, up: str) -> None:
    down = "use crate::node::transport::Call;"
    files = {"node/transport/pipe.rs": up, "node/session/machine.rs": down, "node/transport.rs": ""}
    write(tmp_path, {**files, "lib.rs": "", "node.rs": "", "node/session.rs": "", "clock.rs": ""})
    assert circles(script.rust_imports(tmp_path)) == [["session", "transport"]]


def test_tests_and_paths_down_are_no_circle_of_rust(tmp_path: Path) -> None:
    tests = "#[cfg(test)]\nmod tests {\n    use crate::top::Top;\n}\n"
    files = {"lib.rs": "", "top.rs": "use crate::low::{self, Low};", "low.rs": tests}
    assert circles(script.rust_imports(write(tmp_path, files))) == []


@pytest.mark.parametrize(
    "up",
    [
        "from ._top import Top",
        "from package._top import Top",
        "from . import (\n    _top,\n)",
        "import package._top",
        "def f():\n    from ._top import Top",
    ],
)
def test_a_circle_of_python_is_seen(tmp_path: Path, up: str) -> None:
    files = {"_top.py": "from ._low import Low", "_low.py": up, "__init__.py": ""}
    assert circles(script.python_imports(write(tmp_path / "package", files))) == [["_low", "_top"]]


def test_a_circle_within_a_folder_of_python_is_seen(tmp_path: Path) -> None:
    files = {
        "fencing/_sql.py": "from ._tokens import T",
        "fencing/_tokens.py": "from ._sql import S",
    }
    found = circles(script.python_imports(write(tmp_path / "package", files)))
    assert found == [["_sql", "_tokens"]]


def test_what_is_imported_for_types_alone_is_no_circle(tmp_path: Path) -> None:
    for_types = "if TYPE_CHECKING:\n    from ._top import Top\n"
    files = {"_top.py": "from ._low import Low", "_low.py": for_types}
    assert circles(script.python_imports(write(tmp_path / "package", files))) == []
    files = {"top.ts": "import { low } from './low'", "low.ts": "import type { Top } from './top'"}
    assert circles(script.typescript_imports(write(tmp_path / "ts", files))) == []


@pytest.mark.parametrize("up", ["import { top } from './top'", "import './top'"])
def test_a_circle_of_typescript_is_seen(tmp_path: Path, up: str) -> None:
    files = {"top.ts": "import {\n  low,\n} from './low'", "low.ts": up}
    assert circles(script.typescript_imports(write(tmp_path, files))) == [["low", "top"]]
