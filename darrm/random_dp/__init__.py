"""Random differential privacy: sampled sensitivity for any function, without a known sensitivity bound [S]."""

from darrm.random_dp.bernstein import Bernstein, BernsteinFunction
from darrm.random_dp.guarantee import RandomDP, compose
from darrm.random_dp.mechanisms import Exponential, Gaussian, Laplace, Mechanism, Posterior
from darrm.random_dp.private_classifier import ParametersOf, PrivateClassifier
from darrm.random_dp.sample_size import SampleSize, exchangeable_sample_size, sample_size
from darrm.random_dp.sensitivity_sampler import (
    Execution,
    Release,
    SampledSensitivity,
    SensitivitySampler,
    respond,
    sample_then_respond,
)

__all__ = [
    "Bernstein",
    "BernsteinFunction",
    "Execution",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "ParametersOf",
    "Posterior",
    "PrivateClassifier",
    "RandomDP",
    "Release",
    "SampleSize",
    "SampledSensitivity",
    "SensitivitySampler",
    "compose",
    "exchangeable_sample_size",
    "respond",
    "sample_size",
    "sample_then_respond",
]
