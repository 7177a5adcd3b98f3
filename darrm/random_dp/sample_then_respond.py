"""Sample the sensitivity, then respond: any function released with random differential privacy [S, Algorithm 2]."""

from dataclasses import dataclass
from typing import Generic, TypeVar, Unpack

import numpy as np

from darrm import checks
from darrm.random_dp.draws import Records, count, value_of
from darrm.random_dp.guarantee import RandomDP
from darrm.random_dp.mechanisms import Mechanism
from darrm.random_dp.sensitivity_sampler import SampledSensitivity, Sampling, SensitivitySampler

Released = TypeVar("Released")


@dataclass(frozen=True, eq=False)
class Release(Generic[Released]):
    """A released value with what is guaranteed about it.

    The sensitivity is reusable for further releases about the same function; each is a release of its own.
    """

    value: Released  # what the mechanism gave
    guarantee: RandomDP  # how the noise was drawn included
    sensitivity: SampledSensitivity


def sample_then_respond(
    data: Records,
    mechanism: Mechanism[Released],
    sampler: SensitivitySampler,
    *,
    rng: np.random.Generator | None = None,
    **sampling: Unpack[Sampling],
) -> Release[Released]:
    """Release f(data) with a sensitivity sampled for data sets of the same size [S, Algorithm 2].

    Parameters
    ----------
    data
        The n records to be released about, in the form in which the sampler gives them.
    mechanism
        A sensitivity-induced mechanism for the norm that the sampler measures.
    sampler
        Holds the function f and the distribution P.
    rng
        For experiments only: pseudo-random noise, without a guarantee.
    **sampling
        ``gamma``, ``m``, ``rule``, ``seed`` and ``execution`` of `SensitivitySampler.estimate`.

    Raises
    ------
    ValueError
        If the norms differ or an argument is out of range, or the function fails on the data: such a failure tells
        something about the data and is not covered by the guarantee.
    SamplingError
        If the function fails on sampled data.

    Examples
    --------
    >>> from darrm.privacy import PrivacyParams
    >>> from darrm.random_dp.mechanisms import Laplace
    >>> sampler = SensitivitySampler(np.mean, lambda rng, count: rng.random(count), "l1", distribution="U[0, 1]")
    >>> answer = sample_then_respond(np.arange(50) / 50, Laplace(PrivacyParams(1)), sampler, gamma=0.1)
    >>> print(answer.guarantee)
    (1, 0)-private on all but a share 0.1 of the neighboring pairs of 50 records from U[0, 1]
    """
    if not hasattr(mechanism, "describe_noise"):
        advice = "the data come first, then the mechanism, then the sampler"
        given = checks.Found(type(mechanism).__name__)
        checks.fail("mechanism", given, "a mechanism, like Laplace(PrivacyParams(0.5))", advice)
    checks.instance(SensitivitySampler, sampler=sampler, advice="say SensitivitySampler(function, sampler, norm)")
    if mechanism.norm != sampler.norm:
        checks.fail("the sampler's norm", sampler.norm, f"{mechanism.norm!r}, as the mechanism needs")
    records = count(data)
    sensitivity = sampler.estimate(records, **sampling)
    return respond(data, mechanism, sampler, sensitivity, rng=rng)


def respond(
    data: Records,
    mechanism: Mechanism[Released],
    sampler: SensitivitySampler,
    sensitivity: SampledSensitivity,
    *,
    rng: np.random.Generator | None = None,
) -> Release[Released]:
    """Release f(data) with a sensitivity that was sampled before, for the same function and number of records.

    Raises
    ------
    ValueError
        If the sensitivity is about another norm, distribution, number of records or shape of the function's value.
    """
    value = value_of(sampler.function, data)
    checked = (
        ("norm", sensitivity.norm, mechanism.norm),
        ("distribution", sensitivity.distribution, sampler.distribution),
        ("number of records", sensitivity.records, count(data)),
        ("shape of the function's value", sensitivity.shape, value.shape),
    )
    for name, sampled, needed in checked:
        if sampled != needed:
            checks.fail(f"the sensitivity's {name}", sampled, f"{needed!r}", "sample it again for this release")
    noise = mechanism.describe_noise(sensitivity.value, rng)
    guarantee = sensitivity.guarantee(mechanism.privacy, noise)
    return Release(mechanism.release(value, sensitivity.value, rng=rng), guarantee, sensitivity)
