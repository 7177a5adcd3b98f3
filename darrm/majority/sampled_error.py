"""The expected error under priors without a closed form: draws of the voters' probabilities.

For one draw p the error of γ is |½ Σ_{l>K/2} (α_l − α_{K−l})(1 − γ(l))| with α the Poisson binomial distribution of p
[D, Definition 2.4]: nothing of p matters but the differences d_l = α_l − α_{K−l}. A draw has K probabilities.
"""

from dataclasses import dataclass

import numpy as np

from darrm.numerics import Array
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.util import checks

# an estimate's draws come from this seed, a fit's from another: no optimum is judged by the draws it was fitted to
ESTIMATE_SEED = 20_240_901
_MOST_DRAWS, _LEAST_DRAWS = 20_000, 5_000
_DRAWN_NUMBERS = 400_000  # K times the default number of draws, within the two limits above
_CHUNK = 250  # draws whose distributions are computed at a time: they fit the processor's cache


@dataclass(frozen=True)
class Estimate:
    """A mean error over independent draws; ``standard_error`` is the sample standard deviation over √draws."""

    draws: int
    mean: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.mean:.6g} ± {self.standard_error:.2g} ({self.draws:,} draws)"


def number_of_draws(K: int, asked: int | None = None) -> int:
    """Check a number of draws, or choose one: 20,000 for few voters, falling to 5,000 for many.

    >>> number_of_draws(11), number_of_draws(41), number_of_draws(101)
    (20000, 9756, 5000)
    """
    if asked is not None:
        checks.integer_at_least(2, draws=asked)
    draws = max(_LEAST_DRAWS, min(_MOST_DRAWS, _DRAWN_NUMBERS // K)) if asked is None else int(asked)
    checks.affordable(f"{draws:,} draws of the prior for {K:,} voters", draws * K, "take fewer draws")
    return draws


def differences(probabilities: Array) -> Array:
    """Compute d_l = α_l − α_{K−l} for l > K/2, for every row of probabilities: shape (T, K) → (T, K − ⌊K/2⌋).

    `ValueError` if the array is not two-dimensional or a value is no probability.

    >>> differences(np.array([[1.0, 1.0, 1.0], [0.5, 0.5, 0.5]]))
    array([[0., 1.],
           [0., 0.]])
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        checks.fail("probabilities", values.shape, "of shape (draws, K), neither 0")
    if not np.all((values >= 0.0) & (values <= 1.0)):
        checks.fail("probabilities", checks.Found("a value outside"), "in [0, 1]")
    count, K = values.shape
    found = np.empty((count, K - K // 2))
    for start in range(0, count, _CHUNK):
        pmf = poisson_binomial_pmf(values[start : start + _CHUNK])
        found[start : start + _CHUNK] = pmf[:, K // 2 + 1 :] - pmf[:, : K - K // 2][:, ::-1]
    return found


def errors_of(half: Array, drawn: Array) -> Array:
    """Compute |½ Σ_l d_l (1 − γ(l))| for every draw: γ's half of shape (h,), differences (T, h) → (T,)."""
    return np.asarray(0.5 * np.abs(drawn @ (1.0 - half)), dtype=np.float64)


def summarize(errors: Array) -> Estimate:
    """Return the mean of at least two errors, with its standard error.

    >>> str(summarize(np.array([0.1, 0.2, 0.3])))
    '0.2 ± 0.058 (3 draws)'
    """
    if errors.size < 2:
        checks.fail("draws", int(errors.size), "at least 2", "one draw has no standard error")
    spread = float(np.std(errors, ddof=1)) / float(np.sqrt(errors.size))
    return Estimate(int(errors.size), float(np.mean(errors)), spread)
