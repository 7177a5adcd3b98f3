"""Each figure that a reader of the PATE report sees, beside the analysis that it is a figure of."""

import math
import re
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from darrm.loss.renyi import CONVERSIONS
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.mislabel_bound import GaussianMislabelBound
from darrm.pate.analysis import WARNING, Analysis
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.gnss import GnssParameters, exact_cost, printed_cost
from darrm.pate.publication import on_vote_scale, table_2
from darrm.pate.smooth_sensitivity import smooth_cost
from darrm.pate.vote_scale import PublicationParameters, VoteScale
from darrm.privacy import at_most
from tests.pate.pate_oracles import quiet

RNG = np.random.default_rng(9)
COUNTS = np.array([RNG.multinomial(250, [s, *[(1 - s) / 3] * 3]) for s in RNG.beta(6.0, 1.2, size=60)])
ANSWERED = np.arange(60) % 3 == 0
CONFIDENT = ConfidentGNMax(200, 150.0, 40.0)
ORDER, BETA, SIGMA_SS, SAFETY = 14.5, 0.03, 7.0, 1.0
PARAMETERS = GnssParameters(ORDER, BETA, SIGMA_SS, SAFETY)
DEVIATION = 6.0
ON_VOTES = PublicationParameters(ORDER, DEVIATION)
DECIMALS = {"answered": 1, "share of the check": 1, "beta": 5, "smooth sensitivity": 5, "sigma_SS": 3}  # others 4
DECIMALS |= {"one vote more": 5, "noise, in votes": 3, "as printed in [P]": 4}
REFUSED = {
    "laplace": "LNMax has no scale of votes",
    "checked by the data": "the scale of votes covers answers only",
}

ANALYSES = {
    "expected": quiet(COUNTS, CONFIDENT, 1e-5),
    "classic": quiet(COUNTS, CONFIDENT, 1e-5, conversion="classic", orders=np.arange(1.75, 64.0)),
    "released": quiet(COUNTS, CONFIDENT, 1e-6, answered=ANSWERED),
    "checked by the data": quiet(COUNTS, ConfidentGNMax(150, 20.0, 40.0), 1e-5, check="data-dependent"),
    "without a check": quiet(COUNTS, GNMax(40.0), 1e-5, conversion="classic"),
    "laplace": quiet(COUNTS[:40], LNMax(0.05), 1e-5),
    "at the edge": quiet(COUNTS, CONFIDENT, 1e-5, orders=[2.0, 3.0]),
}


def at_public_order(analysis: Analysis) -> float:
    """What as many answers cost at the order that is best if every query is answered."""
    best = analysis.worst_curve.best(analysis.delta, conversion=analysis.conversion).order
    value = analysis.independent_curve.bound_at(best)
    return float(CONVERSIONS[analysis.conversion](np.array([best]), np.array([value]), analysis.delta)[0])


def table_1_figures(analysis: Analysis) -> dict[str, tuple[object, ...]]:
    """What each line of the Table 1 row must say, from the curves of the analysis."""
    assert analysis.exact is not None
    assert analysis.forward is not None
    evidence = analysis.exact, analysis.forward, analysis.theorem_6
    exact, forward, theorem_6 = (one.curve.best(analysis.delta, conversion=analysis.conversion) for one in evidence)
    printed = analysis.theorem_6.curve.best(analysis.delta, conversion="classic")
    at_best = analysis.curve.orders == exact.order  # the exact cost is the smaller one
    share = analysis.cost.checks.values[at_best] / analysis.curve.values[at_best]
    words = "all queries are answered"
    if analysis.answered is None:
        words = "expectation over the noise of the check; pass the released answers to account for a run"
    elif analysis.expected_answered < analysis.queries:
        words = "as released"
    return {
        "answered": (float(analysis.probabilities.sum()), f"({words})"),
        "epsilon, exact": (exact.epsilon, f"at order {exact.order:g} (both directions)"),
        "one direction": (forward.epsilon, ""),
        "epsilon, Theorem 6": (theorem_6.epsilon, f"at order {theorem_6.order:g} (one direction)"),
        "as printed in [P]": (printed.epsilon, f"at order {printed.order:g} (Theorems 6 and 5)"),
        "share of the check": (100.0 * float(share[0]), "%"),
        "data-independent": (at_public_order(analysis), f"for as many answers ({analysis.conversion})"),
        "worst case": (analysis.epsilon_of(analysis.worst_curve), "if every query is answered; public"),
    }


def table_2_figures(analysis: Analysis) -> dict[str, tuple[object, ...]]:
    """What each line of the Table 2 row must say for the parameters, from the smooth cost and the formulas of [P]."""
    smooth = smooth_cost(analysis, ORDER, BETA)
    patterns = [analysis.probabilities > draw for draw in np.random.default_rng(0).random((20, analysis.queries))]
    if analysis.answered is not None:
        patterns = [analysis.answered]
    sensitivity = float(np.mean([smooth.sensitivity(pattern.astype(float), BETA) for pattern in patterns]))
    renyi = smooth.value(analysis.probabilities)
    if isinstance(analysis.aggregator, ConfidentGNMax) and analysis.check == "data-independent":
        renyi += analysis.queries * ORDER / (2.0 * analysis.aggregator.sigma_threshold**2)
    converted = -math.log(analysis.delta) / (ORDER - 1.0)
    if analysis.conversion == "tight":
        converted += math.log1p(-1.0 / ORDER) - math.log(ORDER) / (ORDER - 1.0)
    cost, deviation = exact_cost(ORDER, BETA, SIGMA_SS, SAFETY), SIGMA_SS * sensitivity
    printed = f"{printed_cost(ORDER, BETA, SIGMA_SS):.4f}, too small where order * beta > 1/4"
    return {
        "epsilon": (renyi + converted, f"at order 14.5 ({analysis.conversion} conversion)"),
        "beta": (BETA, ""),
        "smooth sensitivity": (sensitivity, ""),
        "sigma_SS": (SIGMA_SS, ""),
        "cost of publishing": (cost, f"(Theorem 23 as printed: {printed})"),
        "sanitized epsilon": (renyi + converted + cost + SAFETY * deviation, f"+- {deviation:.4f}"),
        "too small with": (
            "probability",
            (
                f"{at_most(NormalDist().cdf(-PARAMETERS.safety), 3)} (--safety), one direction of these votes; "
                "of both, unknown"
            ),
        ),
        "parameters chosen": ("beforehand",),
    }


def vote_scale_figures(analysis: Analysis) -> dict[str, tuple[object, ...]]:
    """What each line about the scale of votes must say for the parameters, from the marks."""
    bound = GaussianMislabelBound(40.0, ORDER)
    scale = VoteScale(bound, round(float(analysis.probabilities.sum())))
    assert analysis.label is not None
    total = float(analysis.probabilities @ bound.cost(analysis.label.missed[analysis.label.which]))
    mark = int(np.searchsorted(scale.marks, total))
    public = 0.0
    if isinstance(analysis.aggregator, ConfidentGNMax):
        public = analysis.queries * analysis.aggregator.check.guarantee.bound_at(ORDER)
    converted = -math.log(analysis.delta) / (ORDER - 1.0)
    if analysis.conversion == "tight":
        converted += math.log1p(-1.0 / ORDER) - math.log(ORDER) / (ORDER - 1.0)
    last, cost = scale.marks.size - 1, ORDER / (2.0 * DEVIATION**2)
    noisy = float(scale.marks[min(mark + math.ceil(16 * DEVIATION), last)] - scale.marks[mark])
    return {
        "epsilon": (float(scale.marks[mark]) + public + converted, f"at order 14.5 ({analysis.conversion} conversion)"),
        "one vote more": (float(scale.marks[min(mark + 16, last)] - scale.marks[mark]), ""),
        "noise, in votes": (DEVIATION, ""),
        "cost of publishing": (cost, ""),
        "sanitized epsilon": (float(scale.marks[mark]) + public + converted + cost, f"+- {noisy:.4f}"),
        "too small with": ("probability", "0.5 (--safety), about these votes only"),
        "parameters chosen": ("beforehand",),
    }


def printed_lines(block: str) -> dict[str, tuple[str, str]]:
    """The lines of a row of the report by their label: the first word or number, and the rest."""
    lines = [line for line in block.splitlines()[1:] if line.startswith("  ") and line[23:24] == " "]
    return {line[:24].strip(): re.fullmatch(r"([0-9.]+|\w+)\s*(.*)", line[24:]).groups() for line in lines}  # type: ignore[union-attr,misc]


def check_lines(found: dict[str, tuple[str, str]], expected: dict[str, tuple[object, ...]]) -> None:
    assert list(found) == list(expected)
    for label, (value, *rest) in expected.items():
        shown, about = found[label]
        if isinstance(value, float) and label not in DECIMALS:  # a bound
            assert 0.0 <= float(shown) - value <= 1e-4 * value, label
        elif isinstance(value, float):
            assert shown == f"{value:.{DECIMALS[label]}f}", label
        else:
            assert shown == value, label
        assert about == "".join(map(str, rest)), label


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ANALYSES)
def test_each_printed_figure_is_that_of_the_analysis(name: str) -> None:
    analysis = ANALYSES[name]
    head, first = str(analysis).rstrip("\n").split("\n\n")
    second, third = (
        str(part).strip("\n") for part in (table_2(analysis, PARAMETERS), on_vote_scale(analysis, ON_VOTES))
    )
    queries, voters = COUNTS[: analysis.queries].shape[0], int(COUNTS[0].sum())
    assert head.splitlines() == [
        repr(analysis.aggregator),
        f"{queries} queries to {voters} voters, 4 classes, delta = {analysis.delta:g}",
        f"PRIVATE: {WARNING}.",
    ]
    assert first.startswith("Table 1 row\n")
    check_lines(printed_lines(first), table_1_figures(analysis))
    assert ("at the edge of the grid" in first) == (name == "at the edge")
    assert second.startswith("Table 2 row: Theorem 6, published by smooth sensitivity\n")
    assert third.startswith("The exact cost, published on the scale of votes\n")
    if name == "laplace":
        assert second.endswith("[P] has no smooth sensitivity for LNMax")
    else:
        check_lines(printed_lines(second), table_2_figures(analysis))
    if name in REFUSED:
        assert REFUSED[name] in third
    else:
        check_lines(printed_lines(third), vote_scale_figures(analysis))


def test_parameters_chosen_on_the_votes_are_private_and_theorem_23_may_not_apply() -> None:
    analysis = ANALYSES["expected"]
    searched: dict[str, Any] = table_2(analysis).to_json()
    assert searched["parameters_chosen"] == "on these votes: private"
    least = analysis.epsilon_of(analysis.theorem_6.curve)
    assert least <= searched["epsilon"] < 1.2 * least  # C6 fails at the best order
    again = table_2(analysis, GnssParameters(searched["order"], searched["beta"], searched["sigma_ss"])).to_json()
    assert again == searched | {"parameters_chosen": "beforehand"}
    outside = table_2(analysis, GnssParameters(14.0, 0.0365, 7.0))
    assert outside.to_json()["gnss_cost_as_printed_in_theorem_23"] is None
    assert "(Theorem 23 as printed: outside its range)" in str(outside)
    assert "condition C6 fails" in str(table_2(analysis, GnssParameters(45.0, 0.002, 7.0)))


def test_a_table_2_row_that_needs_too_many_distances_says_so_and_leaves_the_rest() -> None:
    found = quiet([[999_000, 1_000, 0], [500_000, 500_000, 0]], ConfidentGNMax(600_000, 100.0, 40.0), 1e-5)
    assert "number of distances" in str(table_2(found).to_json()["refused"])
    assert "sanitized_epsilon" in on_vote_scale(found, PublicationParameters(20.0, 5.0)).to_json()
