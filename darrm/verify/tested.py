"""The claims of a tested run's file: that coin and labels together are within the budget, whatever the votes.

The condition of the theorem (`darrm.pate.budget_test`) is computed anew, in balls, for every two levels that one vote
leads between. What a run on a level costs at most is taken from what releases it: that is not computed anew here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flint import arb

from darrm.errors import DarrmError
from darrm.pate.tested import TestedRun
from darrm.system.files import Json
from darrm.verify.answering import OfMechanism
from darrm.verify.exact import Enclosure
from darrm.verify.mechanism import ball, upper
from darrm.verify.members import judge_reach
from darrm.verify.noisy_labels import Between
from darrm.verify.verdicts import ABOUT_MECHANISM, CONSISTENT, FALSE, Verdict, judged

_ORDERS, _LEAST_PART = 48, arb("0.02")  # the least bound of so many orders counts, from so little of α − 1 on


@dataclass(frozen=True, eq=False)
class ExactRun(OfMechanism[TestedRun]):
    """A tested run, whose charge is its budget."""

    def renyi(self, order: float, enough: float = 0.0) -> Between | None:  # noqa: ARG002 (as of tables)
        """Return None: it claims a pair, and no curve."""
        return None

    def deltas(self, *_: object, **__: object) -> list[Enclosure] | None:
        """Return None: it claims a pair, and no profile."""
        return None

    def in_words(self, labels: str) -> str:
        """Say what one of the labels tells."""
        return f"{labels} is one of {self.classes} classes, or none: {self.mechanism.charge().what}."


def judge_run(data: Json) -> tuple[TestedRun | None, list[Verdict]]:
    """Judge every claim of a tested run's file but those of a plan; the run is None if it cannot be used."""
    claim = "it is a tested run, with what is needed to release from it and nothing else"
    try:
        run = TestedRun.from_json(data)
        broken = next(_broken(run), None)
    except (DarrmError, ValueError, TypeError, KeyError, ArithmeticError, AttributeError, RecursionError) as error:
        return None, [Verdict(ABOUT_MECHANISM, claim, FALSE, str(error) or repr(error))]
    reason = f"written again, it is equal; the SHA-256 of what it holds is {run.digest}"
    verdicts = [Verdict(ABOUT_MECHANISM, claim, CONSISTENT, reason)]
    claim = f"coin and labels together are {run.budget}-differentially private"
    told = (
        f"for all {run.costs.size:,} levels the theorem's condition holds, in balls; what a level costs is as released"
    )
    if broken is not None:
        told = f"on level {broken} the theorem's condition does not hold"
    verdicts.append(judged(ABOUT_MECHANISM, claim, told, holds=broken is None))
    verdicts.append(judge_reach(run.voters, ABOUT_MECHANISM))
    return run, verdicts


def _broken(run: TestedRun) -> Iterator[int]:
    epsilon, delta = ball(run.budget.epsilon), ball(run.budget.delta)
    other = None if run.otherwise is None else run.otherwise.charge(run.queries).renyi
    curve = (
        ()
        if other is None
        else [(arb(o), arb(v) * run.queries) for o, v in zip(other.orders, other.values, strict=True)]
    )
    orders = [1 + (arb(run.order) - 1) * _LEAST_PART ** (arb(part) / (_ORDERS - 1)) for part in range(_ORDERS)]
    chances = [arb(float(chance)) for chance in run.chances]
    for level, (p, cost) in enumerate(zip(chances, run.costs, strict=True)):
        passing = [(order, arb(float(cost))) for order in orders]
        q = chances[min(level + 1, len(chances) - 1)]
        for here, there in {(p, q), (q, p), (p, p)} if p != q else {(p, p)}:
            total = _part(here, there, passing, epsilon) + _part(1 - here, 1 - there, curve, epsilon)
            if not total <= delta:
                yield level


def _part(here: arb, there: arb, curve: Sequence[tuple[arb, arb]], epsilon: arb) -> arb:
    """Bound p·H at e^ε·q/p of what is released with the chances p and q; of nothing max(0, p − e^ε·q)."""
    if not curve:
        return max(arb(0), here - epsilon.exp() * there)
    if not here > 0 or not there > 0:
        return here
    x = epsilon + (there / here).log()
    bounds = [here] + [
        here * ((order - 1) * (value - x + (1 - 1 / order).log()) - order.log()).exp() for order, value in curve
    ]
    return min(bounds, key=upper)
