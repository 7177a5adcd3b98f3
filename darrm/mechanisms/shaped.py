"""A noisy maximum under shaped noise: what GNMax is with Gaussian noise, with fewer errors where classes are many.

A class wins because its noise is large: of C classes the largest of C − 1 noises makes the error. At an equal cost of
the label, which `darrm.losses.label` bounds for every log-concave noise, a short right and a long left tail have a
smaller maximum. Noisy counts would not gain: they show the left tail as well.
"""

from dataclasses import dataclass

import numpy as np

from darrm import checks
from darrm.losses.charges import Charge
from darrm.losses.label import label_curve, label_profile
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.noisy_max import inverted, noisy_argmax
from darrm.probability.exact_inversion import WIDEST
from darrm.probability.integer_noise import ShapedNoise
from darrm.problem import MOST_VOTERS
from darrm.votes import Labels, Votes, require_votes


@dataclass(frozen=True)
class ShapedMax:
    """Release the class with the largest count plus shaped noise.

    Parameters
    ----------
    noise
        Its law, of a deviation of at most 1,024 votes; `darrm.optimize.shape.best_shape` finds one.
    reached
        t, how many votes one person may move.

    Raises
    ------
    ValueError
        If the noise is too wide to be drawn, or ``reached`` is no positive integer.

    Examples
    --------
    >>> aggregator = ShapedMax(ShapedNoise(right=40.0, left=80.0, right_power=3.0, left_power=3.0))
    >>> aggregator.release(Votes.of_counts([[250, 0, 0], [0, 250, 0]])).tolist()
    [0, 1]
    """

    noise: ShapedNoise
    reached: int = 1

    def __post_init__(self) -> None:
        checks.instance(ShapedNoise, noise=self.noise)
        checks.integer_at_least(1, most=MOST_VOTERS, reached=self.reached, advice="how many votes one person may move")
        if self.noise.deviation > WIDEST:
            checks.fail("noise", self.noise, f"of a deviation of at most {WIDEST:g} votes")

    @property
    def guarantee(self) -> RenyiCurve:
        """The Rényi curve of one label, whatever the votes and the number of classes."""
        return label_curve(self.noise, moved=self.reached)

    def charge(self, queries: int = 1) -> Charge:
        """Describe what ``queries`` answers cost, whatever the votes."""
        noise = self.noise
        what = f"ShapedMax({noise.right:g}^{noise.right_power:g}, {noise.left:g}^{noise.left_power:g})"
        profile = label_profile(noise, moved=self.reached)
        return Charge(what, renyi=self.guarantee, profile=profile, count=queries, reached=self.reached)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Labels:
        """Release one class for each query, as `Aggregator.release`; arrays are refused with `ValueError`."""
        given = require_votes(votes)
        return given.labeled(noisy_argmax(given.counts, inverted(self.noise, rng), rng))
