"""Plans and calibrations that several tests ask about, solved once a session.

The same functions with the same arguments: what they return depends on nothing else.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from darrm.account.bounds import Bound
from darrm.advise.advice import Advice, advise
from darrm.errors import PlanError
from darrm.plan import FAMILIES, Family, Option, Parameter, Plan, Proposal, Search, calibrate, plan
from darrm.plan.families import named
from darrm.plan.parameter import fixed
from darrm.plan.share_right import Measure
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload

PLAIN = PrivacyParams("inf")
ONE = Workload(Voters(11, PLAIN, overlap=1), 1, PrivacyParams("0.2676", "0.0003"))
MANY = Workload(Voters(21, PLAIN, overlap=1), 40, PrivacyParams("2", "1e-5"))
MANY_FLAGS = ["--K", "21", "--voters", "plain", "--overlap", "1", "--queries", "40", "--total", "2,1e-5"]
FRESH = Workload(Voters(5, PrivacyParams("0.2", "1e-5"), overlap=2), 10, PrivacyParams("2", "1e-3"))
MODELS = Workload(Voters(5, PrivacyParams("0.0892", "1e-4"), models=True), 5, PrivacyParams("0.05", "1e-4"))
OWN = {family.name for family in FAMILIES if family.optimal}

_plans: dict[tuple[Workload, Any], Plan] = {}
_options: dict[tuple[Family, Workload, Any, float], Option | Exception] = {}


def planned(workload: Workload, prior: Any = None) -> Plan:
    belief = Measure(workload, prior).prior
    if (workload, belief) not in _plans:
        _plans[workload, belief] = plan(workload, prior=belief)
    return _plans[workload, belief]


def calibrated(workload: Workload, family: Family | str, prior: Any = None, *, to_beat: float = math.inf) -> Option:
    """The option of a family, or of the family of a name, as `calibrate` finds it."""
    if isinstance(family, str):
        family = named(family)
    measure = Measure(workload, prior)
    key = family, workload, measure.prior, to_beat
    if key not in _options:
        try:
            _options[key] = calibrate(workload, family, measure=measure, to_beat=to_beat)
        except (PlanError, ValueError) as error:
            _options[key] = error
    known = _options[key]
    if isinstance(known, Exception):
        raise known
    return known


def known(workload: Workload, family: Family, *, measure: Any, to_beat: float, **_: object) -> Option:
    """What `calibrate` says, from memory."""
    return calibrated(workload, family, measure.prior, to_beat=to_beat)


def advised(workload: Workload, prior: Any = None, families: Sequence[Family] | None = None) -> Advice:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darrm.plan.search.calibrate", known)
        return advise(workload, prior=prior, families=families)


def always_right(search: Search) -> list[Parameter]:
    if search.workload.queries > 40:
        raise PlanError("it tires")
    total = Bound("hope", 0.5, "nobody knows")
    proposal = Proposal(
        law=lambda counts: np.eye(2)[np.argmax(counts, axis=1)], total=total, instructions=("ask the oracle",)
    )
    return [fixed(search.workload, proposal)]


ORACLE = Family("oracle", always_right, "knows the answer.", "gold", 3.0, classes=(2, 2))


def rivals(workload: Workload) -> Advice:
    return advised(workload, families=[family for family in FAMILIES if not family.optimal])


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands and experiments calibrate what another test calibrated before."""
    monkeypatch.setattr("darrm.plan.search.calibrate", known)
