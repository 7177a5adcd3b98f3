"""The set-ups of the paper's simulations [D, Section 6.1 and D.1]: every constant of them, and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass

from darrm.loss.composition import compose_general, compose_simple
from darrm.priors import Independent, Prior, TwoSided
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters

PURE = PrivacyParams("0.1")
APPROXIMATE = PrivacyParams("0.1", "1e-5")
SEED = 20_250_606  # of the draws on which errors are estimated
DRAWS = {11: 100_000, 35: 20_000, 101: 10_000}

SURROGATE = Independent(0.5, 1.0)  # what [D, Eq. 202] integrates over instead of T_U
UNIFORM = Independent(0.0, 1.0)  # T_U
DECIDED_SURROGATE = Independent(0.7, 1.0)  # what [D, Eq. 204] integrates over instead of T_P
DECIDED = TwoSided(0.7, 1.0)  # T_P

# Table 3 and Figure 6
COMPOSED_VOTERS = 35
COMPOSED_DRAWS = (10, 13, 15, 20)  # M
DELTA_PRIME = 0.1
# the digits that [D, Table 3] prints
PRINTED_TABLE_3 = {
    10: ("6.4521", "14.0328", "0.1003", "0.6452", "0.1001"),
    13: ("7.5742", "14.0328", "0.1003", "0.7574", "0.1001"),
    15: ("8.2708", "14.0328", "0.1003", "0.8271", "0.1001"),
    20: ("9.8823", "14.0328", "0.1003", "0.9882", "0.1002"),
}


@dataclass(frozen=True)
class Panel:
    """One column of a figure."""

    problem: Problem
    title: str
    sampled: int  # how many voters γ_Sub takes the majority of
    composed: PrivacyParams  # (τε, λ) of the majority of all voters, for the paper's γ_const


def allowances(K: int, values: tuple[int, ...], each: PrivacyParams) -> tuple[Panel, ...]:
    """Make one panel for every m, with δ = 1 − (1 − Δ)^m and γ_const by simple composition."""
    everyone = compose_simple(each, K)
    return tuple(Panel(Problem.from_allowance(Voters(K, each), m), f"K = {K}, m = {m}", m, everyone) for m in values)


def composed_panels() -> tuple[Panel, ...]:
    """Make the panels of Figure 6: the target is what general composition says of M voters [D, D.1.1]."""
    everyone = compose_general(APPROXIMATE, COMPOSED_VOTERS, DELTA_PRIME)
    panels = []
    for draws in COMPOSED_DRAWS:
        problem = Problem(Voters(COMPOSED_VOTERS, APPROXIMATE), compose_general(APPROXIMATE, draws, DELTA_PRIME))
        panels.append(Panel(problem, f"K = {COMPOSED_VOTERS}, M = {draws}, m = {problem.m:.4f}", draws, everyone))
    return tuple(panels)


PANELS: dict[str, Callable[[], tuple[Panel, ...]]] = {
    "2": lambda: allowances(11, (1, 3, 5, 7), APPROXIMATE),
    "6": composed_panels,
    "7": lambda: allowances(11, (1, 3, 5, 7, 9, 11), PURE),
    "8": lambda: allowances(101, (10, 20, 30, 40, 60, 80), PURE),
    "9": lambda: allowances(11, (3, 5), PURE),
}
# what the p_i of the plots of errors really are; the constant law draws too, and so do those after it in the page
UNIFORM_VOTERS: dict[str, Prior] = {"p_i ~ U[0, 1]": UNIFORM}
ACTUALS = dict.fromkeys(("2", "6", "7", "8"), UNIFORM_VOTERS) | {
    "9": UNIFORM_VOTERS
    | {"p_i = 0.5": Independent(0.5, 0.5), "p_i ~ U[0, 0.1]": Independent(0.0, 0.1), "p_i ~ T_P": DECIDED}
}
WITH_DOUBLE_SUBSAMPLING = frozenset({"7", "8"})  # its theorem is about Δ = δ = 0
WITH_TWO_PRIORS = frozenset({"9"})
