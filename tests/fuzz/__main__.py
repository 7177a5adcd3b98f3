"""Fuzz commands, files and the server: ``python -m tests.fuzz --seconds 60``; exit status 1 if a case failed.

The targets share the time. A failure prints the command that repeats it.
"""

import argparse
import os
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.fuzz.harness import MAX_KIB, check, search
from tests.fuzz.targets import TARGETS, prepare


def main() -> int:
    names = {target.name: target for target in TARGETS}
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, all targets together (default 60)")
    parser.add_argument("--target", choices=sorted(names), help="this one only")
    parser.add_argument("--seed", type=int, help="the first case (default: the clock, so that each run tries others)")
    parser.add_argument("--case", type=int, help="run one case of --target here, without limits")
    options = parser.parse_args()
    targets = list(TARGETS) if options.target is None else [names[options.target]]
    first_seed = time.time_ns() // 10**6 * 10**6 if options.seed is None else options.seed
    num_failures = 0
    for target in targets:
        # a folder for each target, because a case may replace files
        with tempfile.TemporaryDirectory() as name:
            prepare(Path(name))
            if options.case is not None:
                os.chdir(name)
                failure_text = check(target, options.case, MAX_KIB)
                print(*(failure_text or ("it passes",)), sep="\n")  # noqa: T201 (a runner prints)
                return int(failure_text is not None)
            start, cases = time.monotonic(), 0
            for failure in search(target, count(first_seed), Path(name), start + options.seconds / len(targets)):
                cases += 1
                if failure is not None:
                    num_failures += 1
                    command = f"python -m tests.fuzz --target {target.name} --case {failure.seed}"
                    print(f"\n{command}\n{failure.words[:3000]}\n{failure.reason}", flush=True)  # noqa: T201
            print(f"{target.name}: {cases:,} cases in {time.monotonic() - start:.0f} s", flush=True)  # noqa: T201
    print(f"{num_failures} failures")  # noqa: T201
    return int(num_failures > 0)


if __name__ == "__main__":
    sys.exit(main())
