"""PATE labels that leave after a private test of the teachers' votes."""

import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from darrm.estimators import PATEClassifier
from darrm.plan import tested


@pytest.mark.slow
def test_labels_leave_after_a_test_where_teachers_are_said_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, less in (("_ORDERS", (1.0,)), ("_HISTOGRAMS", 128), ("_MORE_STEPS", 2)):
        monkeypatch.setattr(tested, name, less)
    X, y = make_classification(3000, 6, n_informative=4, n_redundant=0, class_sep=3.0, flip_y=0.0, random_state=1)
    pate = PATEClassifier(
        LogisticRegression(),
        n_teachers=60,
        epsilon=2.0,
        aggregator="best",
        accounting="tested",
        votes_look_like="dirichlet:0.001",
        random_state=0,
    )
    pate.fit(X[:2500], y[:2500], X[2500:2530])
    assert pate.privacy_spent_.epsilon == 2.0
    assert pate.report_.answered == 30  # by one noise or by the other
    assert "a tested run of GNMax" in pate.report_.mechanism
    for settings, words in (
        ({"votes_look_like": None}, "votes_look_like"),
        ({"accounting": "exact"}, "accounting"),
        ({"aggregator": "worst"}, "aggregator"),
    ):
        with pytest.raises(ValueError, match=words):
            clone(pate).set_params(**settings).fit(X[:2500], y[:2500], X[2500:2530])
