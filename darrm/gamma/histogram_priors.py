"""Public beliefs about how the votes on a question with several classes fall.

A prior is a law on histograms (n_1, …, n_C), how many of K voters choose each class. It must be public: fitted to
private votes it would be private itself.

The *share of right labels* of a release is the probability that its answer is one of the classes with the most votes,
a tie being right whichever of them it names. A label that looks at nothing has at least 1/C.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from darrm import checks
from darrm.probability import Array


class HistogramPrior(Protocol):
    """A belief about histograms that does not change when classes change their names."""

    @property
    def text(self) -> str:
        """Its name; for the priors of this module what ``--prior`` reads."""
        ...

    def log_probabilities(self, counts: NDArray[np.int64]) -> Array:
        """Compute log Pr[histogram] for (n, C) counts of one sum → (n,); `ValueError` if it only samples."""
        ...

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw histograms of K votes: (count, C)."""
        ...


@dataclass(frozen=True)
class Dirichlet:
    """Voters choose independently with probabilities drawn from a symmetric Dirichlet law, the same for all voters.

    With concentration 1, the default, every histogram is equally likely; for two classes this is
    `darrm.gamma.priors.CommonP`. A smaller concentration believes in clear majorities, a larger one in close ones.

    >>> np.exp(Dirichlet().log_probabilities(np.array([[2, 0, 0], [0, 1, 1]]))).round(6)  # one of six each
    array([0.166667, 0.166667])
    >>> Dirichlet(0.5).sample(10, 3, 2, rng=np.random.default_rng(0)).sum(axis=1)
    array([10, 10])
    """

    concentration: float = 1.0

    def __post_init__(self) -> None:
        checks.positive(concentration=self.concentration)
        object.__setattr__(self, "concentration", float(self.concentration))

    @property
    def text(self) -> str:
        """The prior as ``--prior`` reads it."""
        return f"dirichlet:{repr(self.concentration).removesuffix('.0')}"

    def __str__(self) -> str:
        if self.concentration == 1.0:
            return "every histogram of votes equally likely"
        return f"voters choose with probabilities from a Dirichlet law of concentration {self.concentration:g}"

    def log_probabilities(self, counts: NDArray[np.int64]) -> Array:
        """Compute the Dirichlet-multinomial law, (n, C) → (n,)."""
        K, total = counts.sum(axis=1), self.concentration * counts.shape[1]
        each = gammaln(counts + self.concentration) - gammaln(self.concentration) - gammaln(counts + 1.0)
        return np.asarray(each.sum(axis=1) + gammaln(K + 1.0) + gammaln(total) - gammaln(K + total))

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw probabilities, then votes."""
        checks.integer_at_least(1, K=K, count=count)
        checks.integer_at_least(2, classes=classes)
        return np.asarray(rng.multinomial(K, rng.dirichlet(np.full(classes, self.concentration), count)))
