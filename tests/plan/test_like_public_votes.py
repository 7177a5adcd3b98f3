"""A prior that is fitted to half of some public votes predicts how many labels of the other half are right."""

from pathlib import Path

import numpy as np
import pytest

from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.priors import Led
from darrm.votes import Votes
from experiments.pate.recorded import load_counts
from tests.planned import accuracy_of

KEPT = Path(__file__).parents[2] / "docs" / "reproduction"
DRAWS = 1024
POINTS = 0.03


def public_votes(name: str, kind: str) -> Votes:
    if name == "digits":
        return load_counts(KEPT / "pate" / "digits-counts.npz")[0].votes
    with np.load(KEPT / "tested" / f"{name}-votes.npz") as kept:
        return Votes.of_labels(kept[kind][0], classes=10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "kind"),
    [("digits", ""), *((name, kind) for name in ("mnist", "fashion-mnist") for kind in ("plain", "private"))],
)
def test_the_share_is_predicted_within_three_points(name: str, kind: str) -> None:
    votes = public_votes(name, kind)
    drawn = np.random.default_rng(0).permutation(votes.queries)
    fitted, other = (votes[np.sort(drawn[half::2])] for half in (0, 1))
    prior = Led.fitted(fitted)
    counts, times = np.unique(-np.sort(-other.counts, axis=1), axis=0, return_counts=True)
    for share in (0.1, 0.2, 0.3, 0.5, 1.0):  # of the voters: the standard deviation of the noise
        noise = DiscreteGaussian(share * votes.voters)
        right = np.where(counts == counts[:, :1], winning_probabilities(noise, counts), 0.0).sum(axis=1)
        realized = float(right @ times) / other.queries
        law = lambda rows, noise=noise: winning_probabilities(noise, rows)  # noqa: E731
        predicted = accuracy_of(law, votes.voters, 10, prior, draws=DRAWS)
        assert predicted.value == pytest.approx(realized, abs=POINTS), share
