"""Recompute the goldens and name each difference: ``python -m tests.goldens [NAME ...] [--write]``.

Each file ``NAME.json`` holds the cases of one kind, see `tests.goldens.cases`. The exit status is 1 if one differs.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.goldens.cases import KINDS

FOLDER = Path(__file__).parent
TOLERANCE = 1e-9  # relative
SEARCHED = 1e-7  # of plans: another processor rounds exp and log differently, which a search magnifies
PROVEN = 1e-12  # of the numbers of a certificate
NEGLIGIBLE = 1e-12  # absolute: the optimality gap of a solved table is rounding
GONE = "(nothing)"


def read(kind: str) -> dict[str, Any]:
    cases: dict[str, Any] = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    return cases


def write(kind: str) -> None:
    """Compute the cases of a kind and write them, one a line."""
    cases = list(KINDS[kind]())
    if len({name for name, _ in cases}) < len(cases):
        raise ValueError(f"two cases of {kind} have the same name")
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in cases]
    (FOLDER / f"{kind}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in items:
            yield from leaves(inner, f"{key}/{name}" if key else str(name))
    else:
        yield key, value


def is_same(key: str, was: Any, now: Any, tolerance: float = TOLERANCE) -> bool:
    """Compare two plain values: floats within the tolerance, others exactly."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (was, now))
    if numbers and float in (type(was), type(now)):
        relative = PROVEN if "certificate" in key else tolerance
        return math.isclose(was, now, rel_tol=relative, abs_tol=NEGLIGIBLE if key.endswith("gap") else 0.0)
    return type(was) is type(now) and bool(was == now)


def tolerance_of(kind: str) -> float:
    return SEARCHED if kind == "plans" else TOLERANCE


def differences(before: dict[str, Any], after: dict[str, Any], tolerance: float = TOLERANCE) -> Iterator[str]:
    for case in [*before, *(name for name in after if name not in before)]:
        was, now = (dict(leaves(cases[case])) if case in cases else {} for cases in (before, after))
        for key in [*was, *(key for key in now if key not in was)]:
            old, new = was.get(key, GONE), now.get(key, GONE)
            if not is_same(key, old, new, tolerance):
                yield f"{case}: {key}: was {old!r}, is {new!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=str(__doc__))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--write", action="store_true", help="write new goldens")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(KINDS):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}")
    total = 0
    for kind in options.names or KINDS:
        if options.write:
            write(kind)
            continue
        # a round trip through JSON: a tuple is a list there
        found = list(differences(read(kind), json.loads(json.dumps(dict(KINDS[kind]()))), tolerance_of(kind)))
        total += len(found)
        sys.stdout.write("".join(f"{kind}.json: {line}\n" for line in found))
        sys.stdout.write(f"{kind}.json: {len(read(kind))} cases, {len(found)} differences\n")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
