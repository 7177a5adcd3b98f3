"""Parameters searched on public votes, and what generalized propose-test-release would publish."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

from darrm.pate.confident import ConfidentGNMax
from darrm.pate.publication import epsilon_at, search_publication
from darrm.pate.report import quiet_analysis
from darrm.pate.smooth_sensitivity import smooth_cost
from darrm.util.progress import status_line
from darrm.votes import Votes
from experiments.pate import rows, search
from experiments.pate.accounting import published_by_logarithm
from experiments.pate.recorded import Recorded
from experiments.pate.rows import Run, searched_row
from experiments.pate.settings import Study, VoteSize, Way, pate_like_votes

SIZE = VoteSize(60, 50, 3, (6.0, 1.0))
BASE = ConfidentGNMax(40.0, 30.0, 8.0)
DELTA = 1e-5


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "THRESHOLDS", (0.7, 0.8))
    monkeypatch.setattr(search, "CHECK_NOISES", (0.6, 1.3))
    monkeypatch.setattr(search, "ANSWER_NOISES", (0.12, 0.16))
    monkeypatch.setattr(search, "ORDERS", (4.0, 6.0))


@pytest.mark.slow
def test_the_search_finds_the_best_of_those_that_answer_as_much_and_as_well() -> None:
    votes = Votes.of_counts(pate_like_votes(SIZE))

    def facts(aggregator: ConfidentGNMax) -> tuple[float, float, float]:
        analysis = quiet_analysis(votes, aggregator, DELTA, conversion="tight")
        assert analysis.label is not None
        passes = analysis.probabilities
        wrong = float(analysis.label.missed[analysis.label.which] @ passes / passes.sum())
        expected = search_publication(analysis, (4.0, 6.0))
        return analysis.expected_answered, wrong, expected.epsilon + 2.0 * expected.deviation

    least, most, base_value = facts(BASE)
    grid = product(search.THRESHOLDS, search.CHECK_NOISES, search.ANSWER_NOISES)
    tried = [facts(ConfidentGNMax(50.0 * t, 50.0 * check, 50.0 * noise)) for t, check, noise in grid]
    good = [value for answered, wrong, value in tried if answered >= least and wrong <= most]
    assert 0 < len(good) < len(tried)
    found = search.search(BASE, SIZE, DELTA)
    assert facts(found.aggregator)[2] == pytest.approx(min(good))
    assert facts(found.aggregator)[0] == pytest.approx(found.answered)
    assert found.epsilon <= found.base_epsilon < base_value


@pytest.mark.slow
def test_a_searched_way_is_published_with_its_own_parameters(tmp_path: Path) -> None:
    votes = Votes.of_counts(pate_like_votes(VoteSize(80, 50, 3, (8.0, 1.0), seed=1)))
    truth = votes.counts.argmax(axis=1)
    nothing = np.zeros((80, 1, 8, 8), dtype=np.float32)
    recorded = Recorded("digits", votes, nothing, truth, nothing[:1], truth[:1], 0.8, 1.0)
    with status_line(quiet=True) as line:
        run = Run(Study("digits", 3, 50, 80, DELTA), recorded, tmp_path, line)
        row, labels = searched_row(run, Way("Confident-GNMax", BASE, 80), SIZE)
        assert len(labels) == 80
        order, deviation = row["search"]["publication"]
        for name in ("beforehand", "base_beforehand"):
            assert row[name]["order"] == order
            assert row[name]["rounds"][0]["votes"] == deviation
        assert row["base_by_logarithm"]["epsilon"] > row["base_beforehand"]["epsilon"]
        with pytest.raises(ValueError, match="a way with a check"):
            rows.searched_row(run, Way("GNMax", BASE.answer, 80), SIZE)


def test_a_private_bound_on_the_sensitivity_is_paid_for_and_added() -> None:
    analysis = quiet_analysis(Votes.of_counts(pate_like_votes(SIZE)), BASE, DELTA, conversion="tight")
    found = published_by_logarithm(analysis)
    order, smoothness = found["order"], found["smoothness"]
    smooth = smooth_cost(analysis, order, smoothness)
    sensitivity = smooth.sensitivity(analysis.probabilities, smoothness)
    before = smooth.value(analysis.probabilities) + 60 * order / (2.0 * 30.0**2)
    # both noises are in [3, 30] and the second multiplies a bound above the sensitivity
    assert found["epsilon"] > epsilon_at(analysis, order, before + order / 30.0**2)
    assert found["deviation"] > 3.0 * sensitivity * math.exp(-ndtri(DELTA / 10.0) * smoothness * 3.0) * 0.99
