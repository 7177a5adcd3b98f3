"""The numbers of a proof."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """The numbers of the proof of one law."""

    worst_cost: float  # an upper bound over all pairs of neighbors; at most `budget`
    budget: float  # at most B = e^{mε} − 1 + 2δ for a γ; at most δ for a law on histograms
    rows: int  # the number of multisets of corners, or of pairs of neighboring histograms
    method: str  # how it was computed
    scale: float = 1.0  # the factor on the proposal: 1 minus the share of random answers mixed in

    def __str__(self) -> str:
        lines = [
            f"rows covered   {self.rows:,}",
            f"worst cost     {self.worst_cost!r}",
            f"budget         {self.budget!r}",
            f"proved by      {self.method}",
        ]
        return "\n".join(lines)
