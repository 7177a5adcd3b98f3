"""Choose neighboring votes for an attack: costly pairs and random pairs.

A γ gets the pair of its largest cost, which the prover knows, and the costliest pair of a majority without noise, which
reveals a release with too little noise. Any other release gets the costliest of many near ties and clear leads. A
private voter is at a corner of `darrm.plurality.voter_corners`, a randomized response between two classes. A
non-private voter of the overlap votes for one class, and for another on the neighboring data.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from darrm.aggregator import Released
from darrm.majority.corners import corners_of
from darrm.majority.full_set import FullSet
from darrm.majority.groups import KindSet
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.verify.label_law import Histogram, Pair

_MOST_STEPS = 60  # of Dinkelbach's iteration, which ends after a few
_FEW_CLASSES, _FEW_CORNERS = 3, 6  # of the overlap in a random pair, so that the sum over its votes is short
_PLAIN = PrivacyParams("inf")
_Seat = tuple[int, PrivacyParams, tuple[int, int, int, int]]  # number, guarantee, corner (a, b, u, v)


def voters_of(aggregator: Released) -> Voters:
    """Return the voters for whom a release is private; a mechanism is private for any votes."""
    voters = aggregator.voters
    if isinstance(aggregator, Release):
        return voters
    return Voters(voters.K, _PLAIN, min(aggregator.mechanism.reached, voters.K))


def worst_pairs(table: Table) -> dict[str, Pair]:
    """Find the costliest neighbors of a γ, and those of a majority without noise, by name."""
    voters = table.problem.voters
    bare = NoiseFunction(voters.K, np.ones(voters.num_upper_levels))
    without_noise = _costliest(voters, bare, table.problem.target.exact_epsilon)
    pairs = {}
    for name, sides in {"worst pair": worst_pair(table)[1], "worst pair without noise": without_noise}.items():
        ones, sizes = np.unique(np.stack(sides), axis=1, return_counts=True)
        pairs[name] = Pair(sizes, np.stack([1.0 - ones, ones], axis=-1))
    return pairs


def near_ties(voters: Voters, classes: int) -> Iterator[tuple[str, Pair]]:
    """Yield neighbors with their names: classes tied up to a lead of the first, and voters who leave it."""
    t = voters.reached
    for moving in sorted({t} if voters.are_non_private else {1, -(-t // 2), t}):
        still = voters.K - moving
        leads = dict.fromkeys(min(lead, still) for lead in (moving, 0, 1, 2, still // 8, still // 4, still // 2, still))
        for leaders in sorted({2, min(3, classes), classes}):
            for lead in leads:
                votes = np.zeros(classes, dtype=np.int64)
                votes[:leaders], rest = divmod(still - lead, leaders)
                votes[0] += lead
                votes[leaders % classes] += rest
                for to in sorted({(1,), (classes - 1,), tuple(range(1, min(3, classes)))}):
                    name = f"{leaders} classes at a lead of {lead}, {moving} moving to {' and '.join(map(str, to))}"
                    yield name, _pair([*_moving(voters, moving, to), *_still(votes)], classes)


def random_pair(voters: Voters, classes: int, rng: np.random.Generator) -> Pair:
    """Choose a corner for every voter of the overlap, and a class for the others, with random shares of each."""
    among, seats = rng.permutation(classes)[:_FEW_CLASSES], list[_Seat]()
    reached = rng.multivariate_hypergeometric([n for n, _ in voters.kinds], voters.reached)
    for (n, each), within in zip(voters.kinds, reached, strict=True):
        many = rng.multinomial(within, rng.dirichlet(np.ones(_FEW_CORNERS)))
        corners = rng.choice(among, size=(_FEW_CORNERS, 4)).tolist()
        seats += [(count, each, tuple(corner)) for count, corner in zip(many.tolist(), corners, strict=True)]
        seats += _still(rng.multinomial(n - within, rng.dirichlet(np.ones(classes))))
    return _pair(seats, classes)


def _moving(voters: Voters, moving: int, to: tuple[int, ...]) -> Iterator[_Seat]:
    """Place the voters with the weakest guarantees at corners from class 0 to other classes, with all of their Δ."""
    for n, each in voters.kinds:
        for place, label in enumerate(to):
            yield (min(n, moving) + place) // len(to), each, (0, label, 0, label)
        moving -= min(n, moving)


def _still(votes: Histogram) -> Iterator[_Seat]:
    return ((n, _PLAIN, (label, label, label, label)) for label, n in enumerate(votes.tolist()))


def _pair(seats: Sequence[_Seat], classes: int) -> Pair:
    taken, one = [seat for seat in seats if seat[0]], np.eye(classes)
    sides = np.empty((2, len(taken), classes))
    for place, (_, each, (a, b, u, v)) in enumerate(taken):
        share, delta = corners_of(each).share, each.delta
        sides[0, place] = (1.0 - delta) * (share * one[a] + (1.0 - share) * one[b]) + delta * one[u]
        sides[1, place] = (1.0 - delta) * (share * one[b] + (1.0 - share) * one[a]) + delta * one[v]
    return Pair(np.array([n for n, *_ in taken], dtype=np.int64), sides)


def worst_pair(table: Table) -> tuple[float, tuple[Array, Array]]:
    """Find the smallest true ε at the target's δ and probabilities (p, p') of neighbors that attain it, both (K,).

    Dinkelbach's iteration: the row that costs most at e^ε has the loss ε₁ = log((P − δ)/P'), the row that costs most at
    e^{ε₁} a larger one, until nothing changes: then no row costs more than δ at that ε.

    >>> from darrm import Problem, certify
    >>> problem = Problem.from_allowance(Voters(1, PrivacyParams("0.1", "1e-5")), 1)
    >>> epsilon, (p, p_prime) = worst_pair(certify(problem, NoiseFunction(1, [0.5])))
    >>> round(epsilon, 6), p.round(6), p_prime.round(6)
    (0.049959, array([0.524984]), array([0.475016]))
    """
    voters, gamma, target = table.problem.voters, table.gamma, table.problem.target
    best, at, worst = -1.0, target.exact_epsilon, None
    for _ in range(_MOST_STEPS):
        pair = _costliest(voters, gamma, at)
        first, second = (0.5 * (1.0 + float(poisson_binomial_pmf(p) @ gamma.signed)) for p in pair)
        gained = first - target.delta
        loss = 0.0 if gained <= second else math.log(gained / second) if second else math.inf
        loss = min(loss, target.epsilon)  # the proved bound: any excess is rounding
        if worst is not None and loss <= best:
            break
        best, at, worst = loss, Fraction(loss), pair
    return best, worst if worst is not None else pair


def _costliest(voters: Voters, gamma: NoiseFunction, epsilon: Fraction) -> tuple[Array, Array]:
    if voters.own is not None:
        return KindSet(voters, epsilon).maxima(gamma.half, -math.inf).broken[0][1].probabilities(voters)
    separation = FullSet(voters, epsilon)
    maxima = separation.family.maxima(gamma.half, separation.ratio)
    level = int(np.argmax(maxima.costs))
    row = separation.family.row(maxima, level)
    if not gamma.is_monotone:
        worse = separation.maxima(gamma.half, float(maxima.costs[level])).broken
        row = max(worse, key=lambda item: item[0], default=(0.0, row))[1]
    return row.probabilities(voters)
