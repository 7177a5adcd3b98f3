"""What answers, exactly drawn: proven tables, noisy maxima, and selection; each knows its cost."""

__all__ = [
    "noise_tails",
    "noisy_law",
    "noisy_max",
    "noisy_maximum",
    "open_lines",
    "release",
    "renyi_bounds",
    "selection",
]
