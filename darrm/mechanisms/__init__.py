"""What answers, exactly drawn: proven tables, noisy maxima, and selection; each knows its cost."""

__all__ = [
    "files",
    "majority",
    "noise_tails",
    "noisy_law",
    "noisy_max",
    "noisy_maximum",
    "plurality",
    "renyi_bounds",
    "selection",
    "shaped",
]
