"""What a run of the sensitivity sampler found, and which guarantee follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from darrm.privacy import PrivacyParams
from darrm.random_dp.guarantee import RandomDP
from darrm.random_dp.norms import Norm
from darrm.random_dp.sample_size import SampleSize


@dataclass(frozen=True)
class SampledSensitivity:
    """A sensitivity Δ̂ that a fresh pair of neighbouring data sets respects with probability at least 1 − γ.

    Attributes
    ----------
    value
        Δ̂, the k-th smallest of the m sampled ‖f(D) − f(D′)‖. It is 0 for a function that is constant on the sample.
    size
        (m, k, ρ, γ) of the run.
    records
        n, the number of records of each data set.
    distribution
        A name of the distribution of one record.
    norm
        The norm that was measured.
    position
        Which record the neighbours differ in: "last" or "random".
    shape
        Shape of the function's value.
    seed
        Seed of the run; with the index of a draw it replays that draw.
    largest
        The largest of the m sampled sensitivities.
    """

    value: float
    size: SampleSize
    records: int
    distribution: str
    norm: Norm
    position: str
    shape: tuple[int, ...]
    seed: int
    largest: float

    def guarantee(self, privacy: PrivacyParams, noise: str) -> RandomDP:
        """Say what a mechanism with this sensitivity keeps: (ε, δ) on all but a share γ of the pairs."""
        return RandomDP(privacy, self.size.gamma, self.records, self.distribution, noise)

    def __str__(self) -> str:
        name = self.norm if isinstance(self.norm, str) else getattr(self.norm, "__name__", "callable")
        return (
            f"sensitivity {self.value:.6g} in the {name} norm, rank {self.size.k} of {self.size.m} sampled pairs of "
            f"{self.records} records from {self.distribution} (gamma = {self.size.gamma:.6g})"
        )


@dataclass(frozen=True)
class EarlyReport:
    """What the sampler has seen so far. It is no guarantee: stopping because the number looks good would spoil γ.

    Attributes
    ----------
    drawn, m
        Pairs measured so far, and in all.
    estimate
        The order statistic of the same relative rank among those measured so far.
    largest
        The largest sensitivity so far.
    """

    drawn: int
    m: int
    estimate: float
    largest: float
