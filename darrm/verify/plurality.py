"""The claims of a plurality's table, decided in whole numbers by code that shares nothing with the prover.

The file holds, for each partition of K votes into C counts (the largest first) and each different count in it, the
probability that the answer is one of the classes with so many votes, in units of 2^-53; these classes share it alike.
So it names a law h on every histogram. It is (ε, δ)-private exactly if Σ_c max(0, h_c(n) − e^ε·h_c(n')) ≤ δ for all
histograms n and n' with Σ_c |n_c − n'_c| ≤ 2t. As h treats classes alike, n may be taken among the partitions; n' runs
over all histograms, class by class. With the least common multiple of 1 … C all numbers are whole; only e^ε is rounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import factorial, lcm, prod
from typing import Any

from darrm.laws.histogram_priors import Dirichlet
from darrm.losses.charges import Charge
from darrm.mechanisms.plurality import charge_of_plurality
from darrm.problem import Voters
from darrm.proof.charge import charge_of
from darrm.proof.plurality_table import PluralityTable
from darrm.verify.any_table import ABOUT, Table, judge_figure
from darrm.verify.exact import Enclosure, exponential
from darrm.verify.verdicts import CLAIMED, FALSE, PROVED, Verdict, judged

MOST_WORK = 20_000_000  # classes of pairs of histograms: about twenty seconds
_FAMILY = "all pairs of histograms"
_SHARE = Fraction(1, 10**10)  # of a stated share of right labels: a prior is computed in floats
_UNIT = 2**53

Histogram = tuple[int, ...]


def judge_plurality(written: Mapping[str, Any], table: PluralityTable) -> Iterator[Verdict]:
    """Judge privacy, the certificate's figures, and how good the law is said to be."""
    target, certificate = table.problem.target, table.certificate
    found = worst_differences(table, [target.exact_epsilon])
    claim, proved = f"one label is {target}-differentially private", f"proved again by {certificate.method}"
    if found is None:
        reason = f"too large for the checker that shares nothing with the prover; {proved}"
        yield Verdict(ABOUT, claim, PROVED, reason)
    else:
        exact = f"exact arithmetic over {_FAMILY} finds a difference of {float(found[0].upper)!r}"
        yield judged(ABOUT, claim, f"{exact}; {proved}", holds=found[0].lower <= target.exact_delta, how=PROVED)
    true, allowed = None if found is None else found[0], Enclosure(target.exact_delta, target.exact_delta)
    stored = dict.fromkeys(vars(certificate)) | dict(written)
    yield judge_figure("no pair of neighbors differs by more than", stored["worst_cost"], certificate.worst_cost, true)
    yield judge_figure("the budget is no less than", stored["budget"], certificate.budget, allowed)
    rows = f"this release counts {certificate.rows:,}, by {certificate.method}"
    same = (stored["rows"], stored["method"]) == (certificate.rows, certificate.method)
    claim = f"the proof covers {stored['rows']!r} pairs, by {stored['method']!r}"
    yield judged(ABOUT, claim, rows, holds=same, how=PROVED)
    claim = f"a random answer was mixed in with probability {1 - certificate.scale:.3g}"
    yield Verdict(ABOUT, claim, CLAIMED, "what was proposed is not in the file")
    optimality = table.optimality
    if optimality is None:
        return
    claim = f"the share of right labels is {optimality.value!r}, where {optimality.prior} is believed"
    exact_share = share_right(table)
    if exact_share is None:
        yield Verdict(ABOUT, claim, CLAIMED, "the file holds the name of the prior only")
    else:
        near = abs(Fraction(optimality.value) - exact_share) <= _SHARE
        yield judged(ABOUT, claim, f"exact arithmetic gives {float(exact_share)!r}", holds=near, how=PROVED)
    claim = f"no private mechanism has a share of right labels above {optimality.bound!r}"
    if optimality.claimed:
        yield Verdict(ABOUT, claim, CLAIMED, "the file does not hold what it takes to compute it")
    elif exact_share is not None and Fraction(optimality.bound) < exact_share - _SHARE:
        yield Verdict(ABOUT, claim, FALSE, "the law in the file is private and better")
    else:
        yield Verdict(ABOUT, claim, PROVED, "recomputed from the multipliers in the file")
    yield Verdict(ABOUT, f"the solver stopped with {optimality.status!r}", CLAIMED, "a note of whoever made the table")


def worst_differences(table: PluralityTable, epsilons: Sequence[Fraction]) -> list[Enclosure] | None:
    """Enclose the largest Σ_c max(0, h_c(n) − e^ε·h_c(n')) for each ε; None if there are too many pairs."""
    problem = table.problem
    K, C, reached = problem.voters.K, problem.classes, min(problem.voters.reached, problem.voters.K)
    weights = table.probabilities.to_lists()
    if len(weights) * (C * (C - 1)) ** reached * C * len(epsilons) > MOST_WORK:
        return None
    common = lcm(*range(1, C + 1))
    law = {}
    for part, given in zip(sorted(_partitions(K, C), reverse=True), weights, strict=True):
        values = sorted(set(part), reverse=True)
        law[part] = {votes: w * common // part.count(votes) for votes, w in zip(values, given, strict=True)}
    ratios = [exponential(epsilon) for epsilon in epsilons]
    bits = 1 << 128
    below, above = (
        [int(end * bits) + extra for end in ends]
        for ends, extra in (([ratio.lower for ratio in ratios], 0), ([ratio.upper for ratio in ratios], 1))
    )
    worst = [[0, 0] for _ in epsilons]
    for part, own in law.items():
        for other in _within(part, reached):
            theirs = law[tuple(sorted(other, reverse=True))]
            pairs = [(own[x], theirs[y]) for x, y in zip(part, other, strict=True)]
            for at, ends in enumerate(zip(above, below, strict=True)):
                for end, ratio in enumerate(ends):
                    total = sum(max(0, p * bits - ratio * q) for p, q in pairs)
                    worst[at][end] = max(worst[at][end], total)
    unit = common * _UNIT * bits
    return [Enclosure(Fraction(low, unit), Fraction(high, unit), _FAMILY) for low, high in worst]


def share_right(table: PluralityTable) -> Fraction | None:
    """Compute the share of right labels exactly; None if the file does not hold the prior.

    A Dirichlet law of concentration a gives n the probability K!/Π n_c! · Π (a)_{n_c}/(Ca)_K, (a)_n = a·…·(a + n − 1).
    """
    optimality, problem = table.optimality, table.problem
    if optimality is None or not isinstance(optimality.prior, Dirichlet):
        return None
    K, C, a = problem.voters.K, problem.classes, Fraction(repr(optimality.prior.concentration))
    rising = [prod((a + i for i in range(n)), start=Fraction(1)) / factorial(n) for n in range(K + 1)]
    total = Fraction(0)
    for part, given in zip(sorted(_partitions(K, C), reverse=True), table.probabilities.to_lists(), strict=True):
        arrangements = factorial(C) // prod(factorial(part.count(votes)) for votes in set(part))
        total += arrangements * prod((rising[votes] for votes in part), start=Fraction(1)) * given[0]
    return total * factorial(K) / prod((C * a + i for i in range(K)), start=Fraction(1)) / _UNIT


def _partitions(K: int, C: int) -> set[Histogram]:
    """List the partitions of K votes into C counts, one vote after the other."""
    found = {(0,) * C}
    for _ in range(K):
        found = {
            (*part[:c], part[c] + 1, *part[c + 1 :])
            for part in found
            for c in range(C)
            if c == 0 or part[c - 1] > part[c]
        }
    return found


def _within(part: Histogram, reached: int) -> set[Histogram]:
    """List all histograms that so many voters can make of a partition."""
    found = {part}
    for _ in range(reached):
        found |= {
            tuple(votes - (c == source) + (c == target) for c, votes in enumerate(counts))
            for counts in found
            for source in range(len(part))
            for target in range(len(part))
            if counts[source]
        }
    return found - {part}


@lru_cache(maxsize=8)  # tables do not change, and their exact descriptions take seconds
def _charge_of_one(table: PluralityTable) -> Charge:
    return charge_of_plurality(table)


def cost_of(table: Table, queries: int = 1, *, voters: Voters | None = None, exact: bool | None = None) -> Charge:
    """Describe what queries with a table of either kind cost."""
    if isinstance(table, PluralityTable):
        return _charge_of_one(table).repeated(queries)
    return charge_of(table, queries, voters=voters, exact=exact)
