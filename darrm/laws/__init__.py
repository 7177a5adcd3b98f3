"""What a law is: noise functions, laws on histograms, the priors that judge them, their error, and the baselines."""

__all__ = [
    "baselines",
    "histograms",
    "law",
    "noise_function",
    "open_law",
    "partitions",
    "plurality_law",
    "priors",
    "sampled_error",
]
