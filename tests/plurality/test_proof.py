"""The proof of laws and their repair: excesses over all histograms in exact fractions, and the least random share."""

import math
from fractions import Fraction
from itertools import product

import pytest

from darrm import PrivacyParams, Problem, Voters
from darrm.errors import CertificationError
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import ONE, PluralityLaw, true_plurality
from darrm.plurality.proof import bound_excess, mix_and_prove, prove, share_needed
from tests.oracle import exponential
from tests.plurality.support import any_law

NON_PRIVATE = PrivacyParams("inf")
PROBLEMS = [
    Problem(Voters(5, NON_PRIVATE, overlap=1), PrivacyParams("0.5", "1e-3"), 3),
    Problem(Voters(4, NON_PRIVATE, overlap=2), PrivacyParams("3", "0"), 4),
    Problem(Voters(4, NON_PRIVATE, overlap=1), PrivacyParams("1e-4", "0"), 3),
    Problem(Voters(3, NON_PRIVATE, overlap=1), PrivacyParams("0.01", "0.25"), 3),
    Problem(Voters(4, PrivacyParams("0.5")), PrivacyParams("0.7"), 3),
    Problem(Voters(4, PrivacyParams("0.5"), overlap=2), PrivacyParams("0.6", "1e-12"), 3),
    Problem(Voters(3, PrivacyParams("0.4", "0.01")), PrivacyParams("0.5", "0.02"), 3),
    Problem(Voters(3, PrivacyParams("1e-10")), PrivacyParams("1.5e-10"), 3),
    Problem(Voters(3, PrivacyParams("1e-10", "1e-11")), PrivacyParams("1.2e-10", "1.1e-11"), 3),
]


def exact_excess(problem: Problem, law: PluralityLaw) -> Fraction:
    """Compute the largest Σ_c (h_c(n) − e^ε h_c(n'))_+ over all histograms at most t votes apart."""
    ratio = exponential(problem.target.exact_epsilon)
    rows = dict[tuple[int, ...], list[Fraction]]()
    for counts in product(range(law.K + 1), repeat=law.classes):
        if sum(counts) == law.K:
            ordered = tuple(sorted(counts, reverse=True))
            weights = [law.weights[law.partitions.groups[law.partitions.places[ordered], n]] for n in counts]
            rows[counts] = [Fraction(int(w), ONE * counts.count(n)) for w, n in zip(weights, counts, strict=True)]
    return max(
        sum((max(x - ratio * y, Fraction(0)) for x, y in zip(h, h_prime, strict=True)), Fraction(0))
        for n, h in rows.items()
        for m, h_prime in rows.items()
        if sum(abs(a - b) for a, b in zip(n, m, strict=True)) <= 2 * problem.voters.reached
    )


@pytest.mark.parametrize("problem", PROBLEMS[:4], ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_excess_of_non_private_voters_is_that_of_all_histograms(problem: Problem, seed: int) -> None:
    voters, classes = problem.voters, problem.classes
    for law in (true_plurality(voters.K, classes), any_law(voters, classes, seed, falls=True)):
        bound, rows, _ = bound_excess(problem, law)
        exact = exact_excess(problem, law)
        assert exact <= bound <= exact + Fraction(1, 10**30)
        assert rows == len(list_partitions(law.K, law.classes).pairs(voters.reached).first)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_share_of_random_answers_is_enough_at_once_and_not_much_too_large(problem: Problem) -> None:
    law = true_plurality(problem.voters.K, problem.classes)
    share = share_needed(problem, law)
    assert 0.0 < share < 1.0
    certificate = prove(problem, law.mix(share), 1.0 - share)
    assert mix_and_prove(problem, law)[1] == certificate
    # the largest float within δ
    assert (
        Fraction(certificate.budget) <= problem.target.exact_delta < Fraction(math.nextafter(certificate.budget, 1.0))
    )
    slack = max(problem.target.delta, min(1.0, problem.target.epsilon))
    with pytest.raises(CertificationError):
        prove(problem, law.mix(share * (1.0 - 2.0**-18) - 1e-13 / slack))
