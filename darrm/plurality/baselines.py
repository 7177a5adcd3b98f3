"""Pluralities of a sample of the voters, for any number of classes: the baselines of the optimum."""

from darrm.majority.baselines import integer_allowance
from darrm.plurality.plurality_law import PluralityLaw, true_plurality
from darrm.problem import Problem


def subsampled_plurality(problem: Problem) -> PluralityLaw:
    """Return the plurality of m voters drawn without replacement, ties at random; `ValueError` if m is no integer.

    It is (mε, 1 − (1 − Δ)^m)-private, as it looks at m voters [D, Lemma 3.1].
    """
    return true_plurality(problem.voters.K, problem.classes, integer_allowance(problem, "γ_Sub"))


def double_subsampled_plurality(problem: Problem) -> PluralityLaw:
    """Return the plurality of 2m − 1 voters, of all for m ≥ (K+1)/2: a proposal, for more classes without a theorem."""
    seen = 2 * integer_allowance(problem, "γ_DSub") - 1
    return true_plurality(problem.voters.K, problem.classes, min(seen, problem.voters.K))
