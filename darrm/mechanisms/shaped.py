"""A noisy maximum under shaped noise: what GNMax is with Gaussian noise, with fewer errors where classes are many.

A class wins because its noise is large: of C classes the largest of C − 1 noises makes the error. At an equal cost of
the label, which `darrm.losses.label` bounds for every log-concave noise, a short right and a long left tail have a
smaller maximum. Noisy counts would not gain: they show the left tail as well.
"""

from dataclasses import dataclass

from darrm import checks
from darrm.mechanisms.noisy_max import NoisyMax
from darrm.probability.exact_inversion import WIDEST
from darrm.probability.integer_noise import ShapedNoise
from darrm.problem import MOST_VOTERS


@dataclass(frozen=True)
class ShapedMax(NoisyMax):
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
    >>> from darrm.votes import Votes
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
    def law(self) -> ShapedNoise:
        """The noise."""
        return self.noise

    @property
    def words(self) -> str:
        """Its name and the scales and powers of the noise."""
        noise = self.noise
        return f"ShapedMax({noise.right:g}^{noise.right_power:g}, {noise.left:g}^{noise.left_power:g})"
