"""Cache plans and calibrations that several tests need, for one session.

The results depend on the arguments only, so the cache is safe.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from darrm.account.bounds import Bound
from darrm.errors import PlanError
from darrm.plan import MECHANISMS, CalibratedMechanism, Mechanism, Plan, Proposal, calibrate, find_mechanism, plan
from darrm.plan.accuracy import MOST_LISTED, Accuracy, Law, Measure, make_sample
from darrm.plan.mechanism import FixedMechanism
from darrm.priors import Dirichlet, Prior
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload

PLAIN = PrivacyParams("inf")
ONE = Workload(Voters(11, PLAIN, overlap=1), 1, PrivacyParams("0.2676", "0.0003"))
MANY = Workload(Voters(21, PLAIN, overlap=1), 40, PrivacyParams("2", "1e-5"))
MANY_FLAGS = ["--K", "21", "--non-private", "--overlap", "1", "--queries", "40", "--total", "2,1e-5"]
FRESH = Workload(Voters(5, PrivacyParams("0.2", "1e-5"), overlap=2), 10, PrivacyParams("2", "1e-3"))
MODELS = Workload(Voters(5, PrivacyParams("0.0892", "1e-4"), models=True), 5, PrivacyParams("0.05", "1e-4"))
OPTIMA = {"optimal", "rdp-optimal"}

_plans: dict[tuple[Workload, Any], Plan] = {}
_rows: dict[tuple[type[Mechanism], Workload, Any, bool, float, bool], CalibratedMechanism | Exception] = {}


def find_default_prior(workload: Workload) -> Prior | None:
    """Return the uniform prior on histograms for two classes, None (the reference priors) for more."""
    return Dirichlet() if workload.has_noise_function else None


def planned(workload: Workload, prior: Any = None) -> Plan:
    used_prior = prior or find_default_prior(workload)
    if (workload, used_prior) not in _plans:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("darrm.plan.planner.calibrate", calibrate_once)
            _plans[workload, used_prior] = plan(workload, prior=used_prior)
    return _plans[workload, used_prior]


def calibrated(
    workload: Workload, mechanism: type[Mechanism] | str, prior: Any = None, *, to_beat: float = math.inf
) -> CalibratedMechanism:
    """Return the cached result of `calibrate` for a mechanism or a slug."""
    return _calibrate_once(workload, mechanism, Measure(workload, prior or find_default_prior(workload)), to_beat)


def _calibrate_once(
    workload: Workload, mechanism: Any, measure: Measure, to_beat: float = math.inf, *, is_fine: bool = True
) -> CalibratedMechanism:
    if isinstance(mechanism, str):
        mechanism = find_mechanism(mechanism)
    key = mechanism, workload, measure.prior, measure.is_error, to_beat, is_fine
    if key not in _rows:
        try:
            _rows[key] = calibrate(workload, mechanism, measure=measure, to_beat=to_beat, is_fine=is_fine)
        except (PlanError, ValueError) as error:
            _rows[key] = error
    result = _rows[key]
    if isinstance(result, Exception):
        raise result
    return result


def calibrate_once(
    workload: Workload, mechanism: Any, *, measure: Any, to_beat: float = math.inf, is_fine: bool = True, **_: object
) -> CalibratedMechanism:
    return _calibrate_once(workload, mechanism, measure, to_beat, is_fine=is_fine)


def completed(workload: Workload, prior: Any = None, mechanisms: Sequence[type[Mechanism]] | None = None) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darrm.plan.planner.calibrate", calibrate_once)
        return plan(workload, prior=prior or find_default_prior(workload), mechanisms=mechanisms, complete=True)


class Oracle(FixedMechanism):
    """A mechanism that returns the majority for up to 40 queries."""

    slug, name, about, color, linewidth, classes = "oracle", "oracle", "knows the answer.", "gold", 3.0, (2, 2)

    def propose(self) -> Proposal:
        if self.search.workload.queries > 40:
            raise PlanError("it tires")
        total = Bound("hope", 0.5, "nobody knows")
        todo = ("ask the oracle",)
        return Proposal(lambda counts: np.eye(2)[np.argmax(counts, axis=1)], {}, total=total, instructions=todo)


def rivals(workload: Workload) -> Plan:
    return completed(workload, mechanisms=[mechanism for mechanism in MECHANISMS if mechanism.slug not in OPTIMA])


def made_of(workload: Workload, mechanism: type[Mechanism] | str, prior: Any = None) -> Plan:
    used_prior = prior or find_default_prior(workload)
    return Plan(workload, Measure(workload, used_prior), (calibrated(workload, mechanism, used_prior),))


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands and experiments use the cached calibrations."""
    monkeypatch.setattr("darrm.plan.planner.calibrate", calibrate_once)


def accuracy_of(
    law: Law, K: int, classes: int, prior: Prior, *, draws: int = MOST_LISTED, missing: int = 0
) -> Accuracy:
    """Compute the accuracy of a law on all sorted histograms, or on up to ``draws`` random ones."""
    sample = make_sample(prior, K - missing, classes, draws, missing)
    return sample.mean(sample.compute_accuracy(law))
