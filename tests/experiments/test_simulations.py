"""The paper's simulations: printed digits, the winner of each law, and claims that can fail."""

import json
from math import comb
from typing import Any

import pytest

from darrm import priors
from experiments.pages import read_claims
from experiments.simulations import curves
from experiments.simulations import main as page


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "DRAWS", {11: 4_000, 35: 1_000, 101: 1_000})
        return {name: curves.compute_figure(name) for name in ("2", "7", "9")}


def test_table_3_to_every_printed_digit() -> None:
    rows = curves.compute_table_3()
    assert [row["M"] for row in rows] == [10, 13, 15, 20]
    for row in rows:
        assert row["agrees"], row
        assert row["printed"][0] == f"{row['m']:.4f}"


@pytest.mark.slow
def test_four_claims_fail(figures: dict[str, dict[str, Any]]) -> None:
    claims = read_claims(page.format_page(figures, curves.compute_table_3()))
    refuted = [statement for statement, holds, _ in claims if not holds]
    reasons = (
        "γ_flat, the best constant (not in the paper)",  # under U[0, 1] a constant is better than the surrogate's γ
        "γ_Sub at m = 1",  # the optimum for the error itself is better than subsampling
        "p_i = 0.5",  # every γ has error 0
        "T_P: the matching prior helps (not in the paper)",  # under T_P itself the paper's surrogate gains nothing
    )
    assert len(refuted) == len(reasons)
    assert all(reason in statement for reason, statement in zip(reasons, refuted, strict=True))


@pytest.mark.slow
def test_false_numbers_refute_more_claims(figures: dict[str, dict[str, Any]]) -> None:
    changed = json.loads(json.dumps(figures))
    first_curve = changed["2"]["panels"][0]["curves"][1]
    first_curve["gamma"][3] += 0.01
    first_curve["surrogate"] -= 0.01
    for error in changed["7"]["panels"][1]["curves"][1]["errors"]:
        error["excess"] = -0.1
    for curve in changed["7"]["panels"][4]["curves"]:
        curve["errors"][0]["mean"] = 0.1
    page.find_curve(changed["9"]["panels"][1], "γ_opt-P")["errors"][0]["mean"] = 0.2
    assert sum(not holds for _, holds, _ in read_claims(page.format_page(changed, None))) == 4 + 5


def test_the_true_objective_wins_under_its_own_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "DRAWS", {11: 4_000})
    for panel in curves.compute_figure("2")["panels"][:3]:
        errors = {curve["name"]: curve["errors"][0]["mean"] for curve in panel["curves"]}
        best = errors.pop(curves.TRUE)
        assert all(best < error for error in errors.values())


def test_accuracies_of_the_page_are_expected_over_the_law() -> None:
    exact = 0.5 * sum(comb(3, n) * 0.25**n * 0.75 ** (3 - n) * (1.0 + (0.31, 0.8127)[n in {0, 3}]) for n in range(4))
    assert page._format_accuracy([0.8127, 0.31, 0.31, 0.8127], priors.Independent(0.0, 0.5)) == f"{exact:.4f}"
    assert page._format_accuracy([0.0] * 4, priors.TwoSided(0.7, 1.0)) == "0.5000"
