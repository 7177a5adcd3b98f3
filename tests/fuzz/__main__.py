"""Fuzz the doors: ``python -m tests.fuzz --seconds 60``; exit status 1 if a case failed.

Time is shared between the targets. A failure prints the line that runs it again.
"""

import argparse
import os
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.fuzz.harness import MOST_KIB, check, search
from tests.fuzz.targets import TARGETS, prepare


def main() -> int:
    names = {target.name: target for target in TARGETS}
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, all targets together (default 60)")
    parser.add_argument("--target", choices=sorted(names), help="this one only")
    parser.add_argument("--seed", type=int, help="the first case (default: the clock, so that each run tries others)")
    parser.add_argument("--case", type=int, help="run one case of --target here, without limits")
    options = parser.parse_args()
    chosen = list(TARGETS) if options.target is None else [names[options.target]]
    first = time.time_ns() // 10**6 * 10**6 if options.seed is None else options.seed
    failed = 0
    for target in chosen:
        # a folder for each, as a command may replace the files that another one starts from
        with tempfile.TemporaryDirectory() as name:
            prepare(Path(name))
            if options.case is not None:
                os.chdir(name)
                found = check(target, options.case, MOST_KIB)
                print(*(found or ("it passes",)), sep="\n")  # noqa: T201 (a runner prints)
                return int(found is not None)
            started, cases = time.monotonic(), 0
            for failure in search(target, count(first), Path(name), started + options.seconds / len(chosen)):
                cases += 1
                if failure is not None:
                    failed += 1
                    again = f"python -m tests.fuzz --target {target.name} --case {failure.seed}"
                    print(f"\n{again}\n{failure.words[:3000]}\n{failure.reason}", flush=True)  # noqa: T201
            print(f"{target.name}: {cases:,} cases in {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201
    print(f"{failed} failures")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
