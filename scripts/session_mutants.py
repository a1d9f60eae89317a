"""Breaks the session with a server in one way after another, and sees that its search notices each.

    python3 scripts/session_mutants.py [PART OF A NAME]
    python3 scripts/session_mutants.py --texts    only sees that each can still be applied

Owns a copy of the core in target/mutants. The mutants are the files in core/client/mutants: what is
wrong, the file, the text to be replaced and its replacement. Fails if the tests of redis_node pass
with one of them.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "target" / "mutants"
TESTS = ["cargo", "test", "--quiet", "-p", "quorlock", "--lib", "redis_node::tests"]
MUTANT = re.compile(r"# (.*)\nfile (.*)\n<<<<\n(.*)====\n(.*)>>>>\n", re.DOTALL)


def copy_core() -> None:
    """Copies the core as it is now; what has not changed is not built again."""
    for part in ("core/client", "core/protocol"):
        shutil.rmtree(TREE / part, ignore_errors=True)
        shutil.copytree(ROOT / part, TREE / part)
    # The copies have the times of the originals, which may lie before the build of a mutant.
    (TREE / "core/client/src/lib.rs").touch()
    manifest = (ROOT / "Cargo.toml").read_text()
    members = 'members = ["core/client", "core/protocol"]'
    manifest = re.sub(r"^members = .*$", members, manifest, flags=re.MULTILINE)
    manifest = re.sub(r"^exclude = .*\n", "", manifest, flags=re.MULTILINE)
    (TREE / "Cargo.toml").write_text(manifest)
    if not (TREE / "Cargo.lock").exists():
        shutil.copy(ROOT / "Cargo.lock", TREE / "Cargo.lock")


def broken_promise() -> str:
    """What the search says of the tree; empty if it finds nothing wrong."""
    target = ["--target-dir", str(TREE / "target")]
    done = subprocess.run(
        [*TESTS[:2], *target, *TESTS[2:]], cwd=TREE, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    if "could not compile" in done.stderr:
        sys.exit(done.stderr)
    found = re.search(
        r"panicked at [^\n]*redis_node/tests/[^\n]*:\n([^\n]*)", done.stdout + done.stderr
    )
    return found.group(1) if found else "another failure"


def changed(path: Path) -> tuple[str, str]:
    """The file that a mutant changes, and its new text."""
    match = MUTANT.fullmatch(path.read_text())
    if match is None:
        sys.exit(f"{path} is not a mutant")
    _, file, old, new = (part.strip("\n") for part in match.groups())
    whole = (ROOT / file).read_text()
    if whole.count(old) != 1:
        sys.exit(f"{path}: the text to be replaced is not there once")
    return file, whole.replace(old, new)


def main() -> None:
    """Tries all mutants whose names contain the argument."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    mutants = sorted((ROOT / "core" / "client" / "mutants").glob("*.txt"))
    if wanted == "--texts":
        for path in mutants:
            changed(path)
        return
    copy_core()
    unnoticed = []
    for path in mutants:
        if wanted not in path.stem:
            continue
        file, text = changed(path)
        (TREE / file).write_text(text)
        promise = broken_promise()
        shutil.copy(ROOT / file, TREE / file)
        print(f"{path.stem}: {promise or 'NOT NOTICED'}", flush=True)
        if not promise:
            unnoticed.append(path.stem)
    if unnoticed:
        sys.exit(f"not noticed: {', '.join(unnoticed)}")


if __name__ == "__main__":
    main()
