"""Golden schedules as a command.

python -m tests.conformance python            # also asyncio, node
python -m tests.conformance node a-hung       # cases whose names begin so
python -m tests.conformance node --json       # one line of JSON a case
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict

from tests.conformance.clients import LIBRARIES
from tests.conformance.runner import run_library
from tests.conformance.schedule import read_all


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("names", nargs="*", help="beginnings of the names of cases (default: all)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    wanted = tuple(arguments.names) or ("",)
    cases = [case for case in read_all() if case.name.startswith(wanted)]
    results = run_library(arguments.library, cases)
    for result in results:
        if arguments.json:
            print(json.dumps(asdict(result)), flush=True)
        elif result.status != "held" or result.tries > 1:
            print(f"{result.status}, try {result.tries}: {result.name}: {result.reason}")
    counts = Counter(result.status for result in results)
    if not arguments.json:
        print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
