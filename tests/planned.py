"""Plans and calibrations that several tests ask about, solved once a session.

The same functions with the same arguments: what they return depends on nothing else.
"""

from dataclasses import replace

import numpy as np
import pytest

from darrm.account.bounds import Bound
from darrm.advise import contenders
from darrm.advise.advice import Advice, advise
from darrm.advise.contenders import CONTENDERS, OURS, Contender
from darrm.advise.tables import darrm_of_the_paper
from darrm.errors import PlanError
from darrm.laws.priors import Dirichlet, Prior
from darrm.plan import Plan, ReleaseOption, plan
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload

PLAIN = PrivacyParams("inf")
ONE = Workload(Voters(11, PLAIN, overlap=1), 1, PrivacyParams("0.2676", "0.0003"))
MANY = Workload(Voters(21, PLAIN, overlap=1), 40, PrivacyParams("2", "1e-5"))
MANY_FLAGS = ["--K", "21", "--voters", "plain", "--overlap", "1", "--queries", "40", "--total", "2,1e-5"]
FRESH = Workload(Voters(5, PrivacyParams("0.2", "1e-5"), overlap=2), 10, PrivacyParams("2", "1e-3"))
MODELS = Workload(Voters(5, PrivacyParams("0.0892", "1e-4"), models=True), 5, PrivacyParams("0.05", "1e-4"))

_plans: dict[tuple[Workload, Prior], Plan] = {}
_options: dict[tuple[str, Workload, Prior], ReleaseOption | PlanError | None] = {}


def planned(workload: Workload, prior: Prior = Dirichlet()) -> Plan:  # noqa: B008 (frozen)
    if (workload, prior) not in _plans:
        _plans[workload, prior] = plan(workload, prior=prior)
    return _plans[workload, prior]


def _shared(each: Contender) -> Contender:
    def calibrate(workload: Workload, prior: Prior) -> ReleaseOption | None:
        if each is OURS:
            return planned(workload, prior).option
        # of the others one asks the prior
        key = each.name, workload, prior if each.calibrate is darrm_of_the_paper else Dirichlet()
        if key not in _options:
            try:
                _options[key] = each.calibrate(workload, prior)
            except PlanError as error:
                _options[key] = error
        known = _options[key]
        if isinstance(known, PlanError):
            raise known
        return known

    return replace(each, calibrate=calibrate)


SHARED = tuple(_shared(each) for each in CONTENDERS)


def advised(workload: Workload, prior: Prior | None = None) -> Advice:
    return advise(workload, prior=prior, contenders=SHARED)


def always_right(workload: Workload, _prior: Prior) -> ReleaseOption:
    if workload.queries > 40:
        raise PlanError("it tires")
    truth, cost = np.ones(workload.voters.half_size), Bound("hope", 0.5, "nobody knows")
    return ReleaseOption(name="", workload=workload, truth=truth, cost=cost, instructions=("ask the oracle",))


ORACLE = Contender("oracle", always_right, "knows the answer.", "gold", 3.0)


def rivals(workload: Workload) -> Advice:
    return advise(workload, contenders=[each for each in SHARED if each.name != OURS.name])


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands and experiments calibrate what another test calibrated before."""
    monkeypatch.setattr(contenders, "CONTENDERS", SHARED)
    monkeypatch.setattr(contenders, "OURS", next(each for each in SHARED if each.name == OURS.name))
    monkeypatch.setattr("darrm.plan.__main__.plan", lambda workload, prior, **_: planned(workload, prior))
