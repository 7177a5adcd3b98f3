"""Noise functions: what they cost in privacy, which is best, and the proof that one is private."""

from darrm.gamma import baselines, priors

__all__ = ["baselines", "priors"]
