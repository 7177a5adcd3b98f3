"""Laws: the probability of every answer for every histogram of votes. A law is a proposal, not yet proved."""

from typing import Protocol

from numpy.typing import ArrayLike

from darrm.numerics import Array
from darrm.priors import Prior
from darrm.util.files import Json


class Law(Protocol):
    """The probabilities of all answers for all histograms of K votes for C classes.

    γ is the law of two classes (`darrm.majority.noise_function.NoiseFunction`);
    `darrm.plurality.plurality_law.PluralityLaw` is one of any number.
    """

    @property
    def K(self) -> int:
        """How many votes."""
        ...

    @property
    def classes(self) -> int:
        """C, how many answers there are."""
        ...

    @property
    def is_monotone(self) -> bool:
        """Whether more votes never make a right answer less likely, as far as that is known."""
        ...

    def probabilities(self, counts: ArrayLike) -> Array:
        """Compute the probability of every answer for (n, C) histograms → (n, C)."""
        ...

    def share_right(self, prior: Prior | str) -> float | None:
        """Compute the probability that the answer is one of the classes with the most votes; None where unknown."""
        ...

    def share_answered(self, prior: Prior | str) -> float:
        """Compute the probability that there is an answer: 1 but for open answers."""
        ...

    def expected_error(self, prior: Prior | str) -> float:
        """Compute the expected error [D, Definition 2.4] of two classes; `ValueError` for more."""
        ...

    def to_json(self) -> list[Json]:
        """Write its numbers as plain data."""
        ...
