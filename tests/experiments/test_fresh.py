"""Prompts of fresh samples: who is drawn, what they vote, and what is claimed of them."""

import math

import numpy as np
import pytest

from darrm.plan.families import named
from darrm.votes import Votes
from experiments.fresh import __main__ as fresh
from experiments.fresh import rivals
from experiments.fresh.__main__ import PRIOR, Setting, claims_of, results_of, rows_of
from experiments.fresh.prompts import Examples, load, told, votes_of
from experiments.fresh.rivals import least_noise, private_model
from tests.experiments.test_tested import DOCS


def corners(people: int, questions: int) -> Examples:
    """Two classes whose examples lie at the two axes: a prompt with one of each votes by the question alone."""
    x = np.eye(2, dtype=np.float32)
    y = np.arange(people) % 2
    answers = np.arange(questions) % 2
    return Examples("corners", x[y], y, x[answers], answers)


def test_prompts_that_see_everybody_vote_rightly_and_empty_ones_guess() -> None:
    examples, rng = corners(400, 200), np.random.default_rng(1)
    full = votes_of(examples, 3, 0.9, 200, rng=rng)
    assert told(full, examples.answers).accuracy == 1.0
    assert full.counts.max(axis=1).min() == 3
    nobody = votes_of(examples, 1, 1e-9, 4_000, rng=rng).ones
    assert abs(nobody.mean() - 0.5) <= 4.9 * 0.5 / math.sqrt(4_000)  # false alarms: 1e-6


def test_everybody_is_drawn_as_often_as_said() -> None:
    # only person 0 is of class 1, and all questions are his: a vote for 1 is he, or a guess of a prompt with nobody
    people, K, rate, questions = 60, 4, 0.2, 3_000
    x = np.tile(np.array([[1.0, 0.0]], dtype=np.float32), (people, 1))
    x[0] = [0.0, 1.0]
    y = np.zeros(people, dtype=np.int64)
    y[0] = 1
    asked = np.tile(np.array([[0.0, 1.0]], dtype=np.float32), (questions, 1))
    examples = Examples("one", x, y, asked, np.ones(questions, dtype=np.int64))
    ones = votes_of(examples, K, rate, questions, rng=np.random.default_rng(2)).ones
    empty = (1.0 - rate / K) ** people  # of a prompt without anybody: half of them guess 1
    expected = rate + 0.5 * K * empty
    assert abs(ones.mean() - expected) <= 4.9 * math.sqrt(expected / questions) + 0.02 * expected


def test_what_is_kept_is_added_up_exactly() -> None:
    votes = Votes.of_counts([[2, 2, 0], [0, 1, 3]])
    answers = np.array([1, 1])
    assert told(votes, answers).kept == 1.0
    assert told(votes, answers).accuracy == 0.25  # half of the tie is right
    law = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])
    found = told(votes, answers, law)
    assert found.kept == pytest.approx((0.9 + 0.5) / 2.0)
    assert found.accuracy == pytest.approx((0.3 + 0.4) / 2.0)


def test_a_row_keeps_more_than_its_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr(fresh, "EPSILONS", (3,))
    monkeypatch.setattr("darrm.plan.search.FAMILIES", [named("GNMax by label"), named("exponential mechanism")])
    (row,) = rows_of(load("digits"), Setting(10, 4, 20))
    assert row["spent"] <= row["epsilon"] == 3
    assert row["still"]["kept"] < row["gaussian"]["kept"] < row["ours"]["kept"] <= 1.0


def test_noise_of_rivals_is_the_least() -> None:
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import pld_privacy_accountant

    noise = least_noise(0.05, 50, 2.0, 1e-5)
    spent = []
    for tried in (noise, noise / 1.02):
        account = pld_privacy_accountant.PLDAccountant(accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        account.compose(accounting.PoissonSampledDpEvent(0.05, accounting.GaussianDpEvent(tried)), 50)
        spent.append(account.get_epsilon(1e-5))
    assert spent[0] <= 2.0 < spent[1]


def test_a_private_model_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr(rivals, "STEPS", 100)
    assert private_model(corners(4_000, 100), 8.0, 1e-5, rng=np.random.default_rng(3)) == 1.0


def test_claims_say_what_the_numbers_say() -> None:
    results = results_of(DOCS / "reproduction" / "fresh")
    assert [claim.holds for claim in claims_of(results)[:2]] == [
        all(
            row["ours"]["kept"] >= 0.99
            for result in results
            for row in result["rows"]
            if row["epsilon"] == 3 and row["rate"] <= 0.005 and row["queries"] <= 1_000
        ),
        all(row["ours"]["kept"] > row["gaussian"]["kept"] for result in results for row in result["rows"]),
    ]
    worse = [dict(result, rows=[row | {"ours": row["still"]} for row in result["rows"]]) for result in results]
    assert not any(claim.holds for claim in claims_of(worse)[:2])
    assert PRIOR.text in fresh.page(DOCS / "reproduction" / "fresh")
