"""The noise functions that γ_opt is compared with [D, Section 3, Section 4, Appendix A]. Proposals, like any γ.

**Theorem (γ_DSub).** Let the votes be independent given the data, each (ε, Δ)-private with any law, and m an integer.
The majority of 2m − 1 voters drawn without replacement is (mε, 1 − (1 − Δ)^m)-private, and so is the majority of all K
voters for m ≥ (K + 1)/2, ties by a fair coin. [D, Theorem 4.1] is the case Δ = 0, K odd, identically distributed votes.

*Proof.* The draw does not depend on the data, so let n = 2m − 1 voters be fixed. Let P(p) be the probability that at
least m of them vote 1, increasing in every p_i. At neighbors p_i ≤ e^ε p'_i + Δ. With q'_i = min(1, p'_i/(1 − Δ)) and
q_i = min(1, e^ε q'_i), p_i ≤ Δ + (1 − Δ) q_i. A vote is decisive at exactly m ones, or m − 1, so

    (1)  Σ_i p_i ∂P/∂p_i = m·Pr[exactly m ones] ≤ m·P,
    (2)  Σ_i (1 − p_i) ∂P/∂p_i = m·Pr[exactly m − 1 ones] ≤ m·(1 − P).

If each p_i grows by a factor of at most c, (1) bounds the growth of P by c^m: P(q) ≤ e^{mε} P(q') ≤ e^{mε} (1 − Δ)^{−m}
P(p'). If each 1 − p_i shrinks by 1 − Δ, (2) bounds the shrinking of 1 − P by (1 − Δ)^m: P(p) ≤ 1 − (1 − Δ)^m·(1 − P(q))
≤ e^{mε} P(p') + 1 − (1 − Δ)^m. The other inequalities are this one for zeros or exchanged data. The majority of all K ≤
2m − 1 voters is the majority of K, for even K of K − 1 drawn ones, and the bound grows with m. ∎ For p' → 0 and Δ = 0,
P/P' → e^{mε}: the factor m is the best one. `tests/majority/test_double_subsampling.py` guards theorem and constant.
"""

import math

import numpy as np

from darrm.loss.composition import compose_general, compose_simple
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.binomial import hypergeometric_pmf
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.problem import Problem
from darrm.util import checks

# slacks δ′ of the general composition: each gives a valid bound
_SLACKS = tuple(float(slack) for slack in np.geomspace(1e-12, 0.5, 200))


def subsampling(problem: Problem) -> NoiseFunction:
    """γ_Sub: the majority of m voters drawn without replacement, ties by a fair coin [D, Lemma 3.1].

    `ValueError` if m is not an integer.

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> subsampling(Problem.from_allowance(Voters(5, PrivacyParams(0.1)), 1)).half
    array([0.2, 0.6, 1. ])
    """
    return _build_sample_majority(problem, integer_allowance(problem, "γ_Sub"))


def double_subsampling(problem: Problem) -> NoiseFunction:
    """γ_DSub: the majority of 2m − 1 voters; no noise at all for m ≥ (K+1)/2 [D, Theorem 4.1].

    Private unscaled if `is_covered_by_theorem`; else `certify` scales it. `ValueError` if m is not an integer.

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> double_subsampling(Problem.from_allowance(Voters(5, PrivacyParams(0.1)), 3)).half
    array([1., 1., 1.])
    """
    m = integer_allowance(problem, "γ_DSub")
    if 2 * m >= problem.voters.K + 1:
        return NoiseFunction(problem.voters.K, np.ones(problem.voters.num_upper_levels))
    return _build_sample_majority(problem, 2 * m - 1)


def is_covered_by_theorem(problem: Problem) -> bool:
    """Return whether the theorem of γ_DSub covers a problem: integer m, and at least the default δ."""
    voters = problem.voters
    if not voters.each.is_private or voters.sampled is not None or problem.exact_m.denominator != 1:
        return False
    return problem.target.exact_delta >= Problem.from_allowance(voters, problem.exact_m).target.exact_delta


def randomized_response(problem: Problem, composed: PrivacyParams | None = None) -> NoiseFunction:
    """γ_const: one probability for every number of ones [D, Lemma A.1].

    With the majority of all K voters (τε, λ)-private by composition,

        p_const = (e^{mε} − 1 + 2δ) / (2(e^{τε} − e^{mε} + (1 + e^{mε})λ)/(e^{τε} + 1) + e^{mε} − 1).

    (τε, λ) is ``composed``, by default simple composition, (Kε, KΔ), as in [D, Figure 2]. Without such a bound, as for
    non-private voters, p_const = 1, for `certify` to scale.

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), 3)
    >>> randomized_response(problem).half.round(4)
    array([0.2975, 0.2975, 0.2975, 0.2975, 0.2975, 0.2975])
    """
    K, guarantee = problem.voters.K, problem.voters.each
    if composed is None and K * guarantee.exact_delta < 1 and _can_compose(guarantee):
        composed = compose_simple(guarantee, K)
    p_const, target = 1.0, problem.target
    if composed is not None and (composed.epsilon > target.epsilon or composed.delta > target.delta):
        # (e^τ − e^m)/(e^τ + 1) and (1 + e^m)/(e^τ + 1), with exponents of at most 0 in all cases that matter
        shrink = math.exp(-composed.epsilon)
        ratio = math.exp(min(target.epsilon - composed.epsilon, 700.0))
        lost_privacy = (1.0 - ratio + (shrink + ratio) * composed.delta) / (1.0 + shrink)
        denominator = 2.0 * lost_privacy + math.expm1(target.epsilon)
        p_const = min(1.0, problem.budget / denominator) if denominator > 0.0 else 1.0
    return NoiseFunction(K, np.full(problem.voters.num_upper_levels, p_const))


def best_randomized_response(problem: Problem) -> NoiseFunction:
    """Compute `randomized_response` by the best of simple and general composition, over a grid of slacks.

    >>> from darrm import Problem, PrivacyParams, Voters
    >>> problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), 3)
    >>> best_randomized_response(problem).half[0].round(4)
    np.float64(0.3809)
    """
    K, guarantee = problem.voters.K, problem.voters.each
    if not _can_compose(guarantee):
        return truth(problem)
    guarantees = [compose_general(guarantee, K, slack) for slack in _SLACKS]
    guarantees += [compose_simple(guarantee, K)] if K * guarantee.exact_delta < 1 else []
    gammas = [randomized_response(problem, composed) for composed in guarantees]
    return gammas[int(np.argmax([gamma.half[0] for gamma in gammas]))]


def _can_compose(guarantee: PrivacyParams) -> bool:
    return guarantee.is_private and guarantee.exact_epsilon <= LARGEST_EXPONENT


def integer_allowance(problem: Problem, name: str) -> int:
    """Return m, the size of a sample; `ValueError` unless it is an integer."""
    if problem.exact_m.denominator != 1:
        checks.fail("m", problem.m, f"an integer for {name}", "it draws that many voters")
    return problem.exact_m.numerator


def _build_sample_majority(problem: Problem, sample_size: int) -> NoiseFunction:
    """γ(l) = Pr[majority of the sample is 1] − Pr[it is 0], given l ones among K."""
    signs = np.sign(2 * np.arange(sample_size + 1) - sample_size)
    K = problem.voters.K
    half = [hypergeometric_pmf(K, ones, sample_size) @ signs for ones in range(problem.voters.first_majority, K + 1)]
    return NoiseFunction(K, np.clip(half, 0.0, 1.0))


def truth(problem: Problem) -> NoiseFunction:
    """Return γ = 1, the majority itself; `certify` scales it down to the largest private constant.

    >>> from darrm import PrivacyParams, Voters, certify
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> certify(problem, truth(problem)).gamma.half.round(6)
    array([0.667222, 0.667222])
    """
    return NoiseFunction(problem.voters.K, np.ones(problem.voters.num_upper_levels))
