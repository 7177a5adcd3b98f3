"""One way for all voters to sit at their corners: a row of the program for private voters, and its coefficients.

Rows and corners are those of `darrm.plurality.voter_corners`. A row is attained, so whatever mechanism is private
fulfills it; a prover's upper bound may be a little larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from darrm.majority.corners import corners_of
from darrm.numerics import Array
from darrm.plurality.histograms import histograms_of
from darrm.plurality.partitions import partitions_of
from darrm.plurality.voter_corners import Look
from darrm.problem import Problem
from darrm.util import checks
from darrm.util.files import Json

_STEP = 2.0**-49  # relative, of the coefficients: a dozen roundings for each voter, all of positive numbers


@dataclass(frozen=True)
class Seat:
    """Voters of one kind at one corner: a and b of theorem 1, and u or v, said with probability Δ."""

    count: int
    kind: int
    first: int
    second: int
    more: int
    more_after: int


@dataclass(frozen=True)
class VoterRow:
    """E_p[h_S] − e^ε E_{p'}[h_S] ≤ δ for the first ``answers`` classes and voters at corners."""

    answers: int
    seats: tuple[Seat, ...]

    def coefficients(self, problem: Problem) -> tuple[Array, Array]:
        """Return those of both expectations by group, with a relative error of at most `relative_error`."""
        return _coefficients(self, problem)

    def to_list(self) -> list[Json]:
        """Write the row as plain data."""
        return [self.answers, [[s.count, s.kind, s.first, s.second, s.more, s.more_after] for s in self.seats]]

    @classmethod
    def from_list(cls, data: Json, problem: Problem) -> VoterRow:
        """Read what `to_list` wrote; `TypeError` or `ValueError` if it is no row of the problem."""
        answers, seats = data
        row = cls(answers, tuple(Seat(*seat) for seat in seats))
        classes, voters = problem.classes, problem.voters
        checks.integer_at_least(1, most=classes - 1, answers=answers)
        for seat in row.seats:
            checks.integer_at_least(1, most=voters.K, count=seat.count)
            checks.integer_at_least(0, most=len(voters.kinds) - 1, kind=seat.kind)
            for label in (seat.first, seat.second, seat.more, seat.more_after):
                checks.integer_at_least(0, most=classes - 1, label=label)
        sizes = [sum(seat.count for seat in row.seats if seat.kind == kind) for kind in range(len(voters.kinds))]
        if sizes != [count for count, _ in voters.kinds]:
            checks.fail("voters of a row", sizes, "as many of each kind as there are")
        if sum(seat.count for seat in row.seats if _is_reached(seat, problem)) > voters.reached:
            checks.fail("voters of a row who change", len(row.seats), f"at most {voters.reached}")
        return row


def relative_error(problem: Problem) -> float:
    """Bound how far, relative to its size, a coefficient of an expectation is off: all that is added is positive."""
    number = histograms_of(problem.voters.K, problem.classes).number
    return _STEP * (problem.voters.K + number)


def rows_of(look: Look, costs: Array, limit: float, most: int) -> list[tuple[float, VoterRow]]:
    """Return the rows that exceed a limit by most, at most one of each multiset of movers, with their costs."""
    worst = costs.max(axis=1)
    above = np.flatnonzero(worst > limit)
    if above.size > most:
        above = above[np.argpartition(-worst[above], most)[:most]]
    found = []
    for place in above.tolist():
        others = int(np.argmax(costs[place]))
        found.append((float(worst[place]), _row(look, place, others)))
    return found


def _row(look: Look, place: int, others: int) -> VoterRow:
    """Write a row out: the movers of a multiset, the others at a histogram, and the worst u and v."""
    corners, level = look.corners, look.level
    voters, K = corners.voters, corners.voters.K - level.moving
    movers = level.movers[place]
    left = [int(size - movers[corners.kind_of == kind].sum()) for kind, size in enumerate(corners.sizes)]
    seats = []
    for type_, count in enumerate(movers.tolist()):
        mover = corners.types[type_]
        more = (mover.first, mover.second)
        if count and level.fewer is not None:
            without = movers.copy()
            without[type_] -= 1
            parent = int(np.flatnonzero((level.fewer.movers == without).all(axis=1))[0])
            columns = [histograms_of(K, look.corners.classes).plus(label)[others] for label in range(corners.classes)]
            more = _most_and_least(level.fewer.before[parent, columns], level.fewer.after[parent, columns])
        if count:
            seats.append(Seat(count, mover.kind, mover.first, mover.second, *more))
    counts = histograms_of(K, corners.classes).counts[others]
    reached = voters.reached - level.moving if corners.says_more else 0
    still = []
    for label in np.flatnonzero(counts).tolist():
        fewer = counts.copy()
        fewer[label] -= 1
        g = histograms_of(K - 1, corners.classes)
        columns = [g.plus(other)[g.places_of(fewer[None])[0]] for other in range(corners.classes)]
        before, after = level.before[place, columns], level.after[place, columns]
        more = _most_and_least(before, after)
        gain = before[more[0]] - before[label] + after[label] - after[more[1]]
        still.append((-gain, label, more))
    for _, label, more in sorted(still):
        rest = int(counts[label])
        for kind in range(len(left)):
            told = min(rest, left[kind], reached)
            reached, rest, left[kind] = reached - told, rest - told, left[kind] - told
            quiet = min(rest, left[kind])
            rest, left[kind] = rest - quiet, left[kind] - quiet
            seats += [Seat(told, kind, label, label, *more)] if told else []
            seats += [Seat(quiet, kind, label, label, label, label)] if quiet else []
    return VoterRow(look.answers, tuple(seats))


def _most_and_least(before: Array, after: Array) -> tuple[int, int]:
    return int(np.argmax(before)), int(np.argmin(after))


def _is_reached(seat: Seat, problem: Problem) -> bool:
    says_more = seat.more != seat.more_after and problem.voters.kinds[seat.kind][1].exact_delta > 0
    return says_more or seat.first != seat.second


@lru_cache(maxsize=4096)
def _coefficients(row: VoterRow, problem: Problem) -> tuple[Array, Array]:
    K, C = problem.voters.K, problem.classes
    corners = [corners_of(each) for _, each in problem.voters.kinds]
    sides = []
    for is_after in (False, True):
        law, votes = np.ones(1), 0
        for seat in row.seats:
            high, low, delta = corners[seat.kind].share, corners[seat.kind].share_left, corners[seat.kind].delta
            first, second = (seat.second, seat.first) if is_after else (seat.first, seat.second)
            parts = [((1.0 - delta) * high, first), ((1.0 - delta) * low, second)]
            parts.append((delta, seat.more_after if is_after else seat.more))
            for _ in range(seat.count):
                before, votes = histograms_of(votes, C), votes + 1
                grown = np.zeros(histograms_of(votes, C).number)
                for share, label in parts if first != second or delta else [(1.0, first)]:
                    grown[before.plus(label)] += share * law
                law = grown
        groups = partitions_of(K, C).groups_of(histograms_of(K, C).counts)
        size = partitions_of(K, C).sizes.size
        sides.append(sum(np.bincount(groups[:, answer], law, minlength=size) for answer in range(row.answers)))
    return np.asarray(sides[0]), np.asarray(sides[1])
