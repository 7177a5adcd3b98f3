"""Named voters and the (ε, Δ) with which a table counts each of them."""

import csv
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from darrm.verify.formats import Voters, exact_number
from darrm.verify.numbers import Point, pair_at_most
from darrm.verify.verdicts import VOTERS, Verdict, judged

_MOST_BYTES = 2**24
_NONE = (Fraction(10**400), Fraction(1))  # no guarantee


def read_members(path: Path) -> dict[str, Point | None]:
    """Read lines of name,epsilon,delta; `ValueError` for any other line."""
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"--voters {str(path)!r} is no small file: give lines of name,epsilon,delta")
    members: dict[str, Point | None] = {}
    rows = csv.reader(path.read_text(encoding="utf-8-sig").splitlines(), strict=True)
    for number, row in enumerate(rows, 1):
        if number == 1 and row == ["name", "epsilon", "delta"]:
            continue
        try:
            name, epsilon, delta = [*(field.strip() for field in row), "0"][:3]
            pair = None if epsilon == "inf" else (exact_number(epsilon), exact_number(delta or "0"))
        except ValueError:
            raise ValueError(f"--voters {str(path)!r}, line {number}: write name,epsilon,delta") from None
        if name in members:
            raise ValueError(f"--voters {str(path)!r}, line {number}: {name!r} is named twice")
        members[name] = pair
    if not members:
        raise ValueError(f"--voters {str(path)!r} names no voter: give lines of name,epsilon,delta")
    return members


def judge_members(members: Mapping[str, Point | None], voters: Voters) -> Iterator[Verdict]:
    """Judge for each named voter whether a table counts them as no more private than they are.

    Match greedily, weakest member first; each gets the most private voter that covers them.
    """
    counted = sorted((each or _NONE for count, each in voters.kinds for _ in range(count)), reverse=True)
    if len(members) != len(counted):
        reason = f"the table is about {len(counted)} voters, and {len(members)} are named"
        yield from (judged(VOTERS, f"{name!r} is counted", reason, holds=False) for name in members)
        return
    matched: dict[str, Point] = {}
    for name, each in sorted(members.items(), key=lambda member: member[1] or _NONE, reverse=True):
        own = each or _NONE
        fitting = [place for place, one in enumerate(counted) if one[0] >= own[0] and one[1] >= own[1]]
        if fitting:
            matched[name] = counted.pop(fitting[-1])
    for name, each in members.items():
        promised = "no guarantee" if each is None else pair_at_most(*each)
        one = matched.get(name)
        shown = "anyone" if one is None else "without a guarantee" if one == _NONE else f"{pair_at_most(*one)}-DP"
        reason = f"the file promises {promised}"
        yield judged(VOTERS, f"{name!r} is counted as {shown}", reason, holds=one is not None)
