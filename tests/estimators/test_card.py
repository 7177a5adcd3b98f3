"""Model cards describe the fit, and whether its cost is a guarantee."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from darrm.account.accountant import Spent
from darrm.estimators import card
from tests.estimators.support import X, make_vote, y


@pytest.mark.parametrize("failure_probability", [None, 0.5])
def test_describe_spent_rounds_up_and_marks_estimates(failure_probability: float | None) -> None:
    line = card.describe_spent(Spent(1.04357031, 1e-5, "simple", "sums", (), 3, failure_probability))
    assert line.startswith("Spent so far: (1.04358, ")
    assert ("It does not depend on the data." in line) is (failure_probability is None)
    assert ("No guarantee: it holds published estimates" in line) is (failure_probability is not None)


def test_a_card_describes_the_fit_and_not_later_settings() -> None:
    vote = make_vote(classes=[2, 0, 1, 9]).fit(X, y)
    text = vote.to_model_card()
    assert "0, 1, 2, 9); it was given" in text
    assert "is in one of them only" not in text  # the key is published
    assert f"Paid by the ledger whose digest was then `{vote.ledger_.digest()}`." in text
    vote.set_params(estimator=None, n_teachers=9, epsilon=1, delta=0, max_queries=1, classes=["a"], random_state=None)
    assert vote.to_model_card() == text


def test_a_card_gives_neighbors_by_groups_and_by_the_key() -> None:
    grouped = make_vote().fit(X, y, groups=np.arange(len(X)) // 2).to_model_card()
    assert "one person is one group" in grouped
    assert "Every row belongs to another person" not in grouped
    unseeded = make_vote(random_state=None).fit(X, y).to_model_card()
    assert "one row is one person" in unseeded
    for text in (grouped, unseeded):
        assert "or one person, with all of the rows, is in one of them only" in text
