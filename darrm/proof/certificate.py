"""What a proof leaves behind: its numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What was proved about one law."""

    worst_cost: float  # at least what every pair of neighbors costs; at most `budget`
    budget: float  # at most B = e^{mε} − 1 + 2δ for a γ; at most δ for a law on histograms
    rows: int  # how many multisets of corners, or pairs of neighboring histograms, are covered
    method: str  # how it was computed
    scale: float = 1.0  # what the proposal was multiplied with; 1 less the share of random answers mixed in
