"""What γ is: the noise function, the priors that judge it, its error, and the baselines."""

__all__ = [
    "baselines",
    "noise_function",
    "partitions",
    "plurality_law",
    "priors",
    "sampled_error",
]
