"""Cache plans and calibrations that several tests need, for one session.

The results depend on the arguments only, so the cache is safe.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.plan import CalibratedMechanism, Mechanism, Plan, Proposal, calibrate, find_mechanism, plan
from darrm.plan.accuracy import MOST_LISTED, Accuracy, Law, Measure, make_sample
from darrm.plan.mechanism import FixedMechanism
from darrm.priors import Dirichlet, Prior
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload

PLAIN = PrivacyParams("inf")
ONE = Workload(Voters(11, PLAIN, overlap=1), 1, PrivacyParams("0.2676", "0.0003"))
MANY = Workload(Voters(21, PLAIN, overlap=1), 40, PrivacyParams("2", "1e-5"))
FRESH = Workload(Voters(5, PrivacyParams("0.2", "1e-5"), overlap=2), 10, PrivacyParams("2", "1e-3"))
MODELS = Workload(Voters(5, PrivacyParams("0.0892", "1e-4"), models=True), 5, PrivacyParams("0.05", "1e-4"))

_calibrations: dict[Any, CalibratedMechanism | Exception] = {}


def find_mechanisms(*slugs: str) -> list[type[Mechanism]]:
    return [find_mechanism(slug) for slug in slugs]


def find_default_prior(workload: Workload) -> Prior | None:
    """Return the uniform prior on histograms for two classes, None (the reference priors) for more."""
    return Dirichlet() if workload.has_noise_function else None


@cache
def plan_once(workload: Workload, prior: Prior | None = None) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        share(patch)
        return plan(workload, prior=prior or find_default_prior(workload))


def complete_plan(workload: Workload, mechanisms: Sequence[type[Mechanism]] | None = None) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        share(patch)
        return plan(workload, prior=find_default_prior(workload), mechanisms=mechanisms, complete=True)


def calibrated(workload: Workload, mechanism: type[Mechanism] | str, prior: Any = None) -> CalibratedMechanism:
    """Return the cached result of `calibrate` for a mechanism or a slug."""
    return calibrate_once(workload, mechanism, measure=Measure(workload, prior or find_default_prior(workload)))


def calibrate_once(
    workload: Workload, mechanism: Any, *, measure: Any, to_beat: float = math.inf, is_fine: bool = True, **_: object
) -> CalibratedMechanism:
    if isinstance(mechanism, str):
        mechanism = find_mechanism(mechanism)
    key = mechanism, workload, measure.prior, measure.is_error, to_beat, is_fine
    if key not in _calibrations:
        try:
            _calibrations[key] = calibrate(workload, mechanism, measure=measure, to_beat=to_beat, is_fine=is_fine)
        except (PlanError, ValueError) as error:
            _calibrations[key] = error
    result = _calibrations[key]
    if isinstance(result, Exception):
        raise result
    return result


def made_of(workload: Workload, mechanism: type[Mechanism] | str, prior: Any = None) -> Plan:
    used_prior = prior or find_default_prior(workload)
    return Plan(workload, Measure(workload, used_prior), (calibrated(workload, mechanism, used_prior),))


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands and experiments use the cached calibrations."""
    monkeypatch.setattr("darrm.plan.planner.calibrate", calibrate_once)


class Oracle(FixedMechanism):
    """A mechanism that returns the majority."""

    slug, name, about, color, linewidth, classes = "oracle", "oracle", "knows the answer.", "gold", 3.0, (2, 2)

    def propose(self) -> Proposal:
        total = Bound("hope", 0.5, "nobody knows")
        todo = ("ask the oracle",)
        return Proposal(lambda counts: np.eye(2)[np.argmax(counts, axis=1)], {}, total=total, instructions=todo)


def accuracy_of(
    law: Law, K: int, classes: int, prior: Prior, *, draws: int = MOST_LISTED, missing: int = 0
) -> Accuracy:
    """Compute the accuracy of a law on all sorted histograms, or on up to ``draws`` random ones."""
    sample = make_sample(prior, K - missing, classes, draws, missing)
    return sample.mean(sample.compute_accuracy(law))
