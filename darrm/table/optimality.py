"""How good a law is under a prior, and the proof that no private law is much better.

A γ is judged by its expected error, a law on histograms by its accuracy. Any multipliers give a valid bound for every
private law (`darrm.majority.certify`, `darrm.plurality.accuracy_bound`). A table stores those of the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from darrm import priors
from darrm.errors import TableError
from darrm.majority import certify
from darrm.majority.noise_function import Estimate
from darrm.plurality import accuracy_bound
from darrm.privacy import at_least, at_most
from darrm.problem import Problem
from darrm.table.evidence import Law
from darrm.util import checks
from darrm.util.files import Json

SHAPES = ("free", "monotone")
OBJECTIVES = ("linear", "expected-error")
ACCURACY = "accuracy"  # the objective of more than two classes
STATUSES = ("optimal", "time limit", "interrupted", "stalled at the solver's precision", "failed")

# rounding errors of error and accuracy: a few thousand additions of numbers of at most 1, and the logarithms of other
# library versions
_TOLERANCES = 1e-12, 1e-10

Multipliers = Sequence[Any]  # `certify.Multiplier` of rows, or `accuracy_bound.Multiplier` of pairs of neighbors


def _name_objective(objective: str) -> str:
    return "accuracy" if objective == ACCURACY else "expected error"


def _compute_value(objective: str, law: Law, prior: priors.Prior) -> float | None:
    return law.accuracy(prior) if objective == ACCURACY else law.expected_error(prior)


def _compute_bound(claim: Solution | Optimality, problem: Problem, value: float) -> float:
    if claim.objective == ACCURACY:
        return max(value, accuracy_bound.upper_bound(problem, claim.prior, claim.multipliers or ()))
    weights = priors.compute_weights(claim.prior, problem.voters.K)
    return min(value, certify.lower_bound(problem, weights, claim.shape, claim.multipliers or ()))


@dataclass(frozen=True)
class Solution:
    prior: priors.Prior
    multipliers: Multipliers
    status: str = STATUSES[0]
    shape: str = SHAPES[0]
    objective: str = ACCURACY

    def prove(self, problem: Problem, law: Law) -> Optimality:
        value = _compute_value(self.objective, law, self.prior)
        if value is None:
            checks.fail("the prior", self.prior.text, f"one with a linear {_name_objective(self.objective)}")
        bound, claim = _compute_bound(self, problem, value), (self.prior, self.shape, self.objective)
        return Optimality(*claim, value, bound, self.status, multipliers=self.multipliers, claimed=False)


@dataclass(frozen=True)
class Optimality:
    """How good a law is under a prior, and how much better another private law could be.

    It is a claim until `recheck` computes it again. A sampled ``value`` and ``bound`` are about the fitted draws, which
    no file stores.
    """

    prior: priors.Prior  # of the optimization; a loaded table has a `StoredPrior` for a prior of a user
    shape: str  # of `SHAPES`
    objective: str  # of `OBJECTIVES`, or `ACCURACY`
    value: float  # expected error, or accuracy, of the certified law
    bound: float  # no private γ of that shape has a smaller error; no private mechanism a larger share
    status: str  # of `STATUSES`: why the solver stopped; a comment, not a claim
    held_out: Estimate | None = None
    multipliers: Multipliers | None = field(default=None, repr=False)  # they prove the bound
    claimed: bool = True  # value or bound were not computed again

    @property
    def is_accuracy(self) -> bool:
        """Whether value and bound are accuracies; otherwise they are expected errors."""
        return self.objective == ACCURACY

    @property
    def bound_text(self) -> str:
        """The bound in ten digits, rounded to the valid side."""
        return (at_most if self.is_accuracy else at_least)(self.bound, 10)

    @property
    def gap(self) -> float:
        """How much better another private law may be by ``bound``, at least 0."""
        return max(0.0, self._signed_gap)

    @property
    def _signed_gap(self) -> float:
        return self.bound - self.value if self.is_accuracy else self.value - self.bound

    def __str__(self) -> str:
        origin = "claimed by the maker" if self.claimed else "proved"
        if self.is_accuracy:
            return f"accuracy {self.value:.10g}, no private mechanism above {self.bound_text} ({origin})"
        return f"expected error {self.value:.10g}, no private γ of this shape below {self.bound_text} ({origin})"

    def recheck(self, problem: Problem, law: Law) -> Optimality:
        """Compute value and bound again, as far as prior and multipliers allow; `TableError` if one is false."""
        name, tolerance = _name_objective(self.objective), _TOLERANCES[self.is_accuracy]
        try:
            self._check_fields(law)
            is_linear = self.prior.has_closed_form and self.held_out is None
            computed_value = _compute_value(self.objective, law, self.prior) if is_linear else None
            value = self.value if computed_value is None else computed_value
            if not abs(self.value - value) <= tolerance:
                checks.fail(f"the {name}", self.value, f"that of the law, {value!r}")
            if computed_value is None or self.multipliers is None:
                if not self._signed_gap >= -tolerance:
                    side = "least" if self.is_accuracy else "most"
                    checks.fail("the bound", self.bound, f"at {side} the {name} {self.value!r}")
                choose = max if self.is_accuracy else min
                return replace(self, value=value, bound=choose(self.bound, value), claimed=True)
            # the value is rounded: it may exceed a tight bound
            bound = _compute_bound(self, problem, value)
            if not abs(self.bound - bound) <= tolerance:
                checks.fail("the bound", self.bound, f"what its multipliers prove, {bound!r}")
            return replace(self, value=value, bound=bound, claimed=False)
        except ValueError as error:
            raise TableError("optimality", str(error)) from error

    def _check_fields(self, law: Law) -> None:
        checks.one_of(SHAPES, shape=self.shape)
        checks.one_of((*OBJECTIVES, ACCURACY), objective=self.objective)
        checks.one_of(STATUSES, status=self.status)
        if self.objective == ACCURACY:
            checks.probability(value=self.value)
        checks.non_negative(value=self.value)  # an error is one for weights of a law; a prior of one's own has others
        checks.finite(bound=self.bound)
        if self.shape == "monotone" and not law.is_monotone:
            checks.fail("shape", self.shape, "'free'", "this γ falls somewhere")
        if self.held_out is not None:
            checks.integer_at_least(2, draws=self.held_out.draws)
            checks.probability(mean=self.held_out.mean, standard_error=self.held_out.standard_error)
        if priors.is_built_in(self.prior):
            is_sampled = not self.prior.has_closed_form
            if is_sampled != (self.held_out is not None) or (is_sampled and self.objective == "linear"):
                allowed = "there with the objective expected-error" if is_sampled else "absent"
                checks.fail("held_out", self.held_out, allowed, f"the prior is {self.prior.text}")

    def to_json(self, problem: Problem) -> dict[str, Json]:
        fields, multipliers, held_out = ["value", "bound", "status"], self.multipliers, dict[str, Json]()
        if not self.is_accuracy:
            fields = ["shape", "objective", *fields]
            held_out = {"held_out": None if self.held_out is None else asdict(self.held_out)}
        if multipliers is not None:
            multipliers = [
                entry.to_list() if self.is_accuracy else [entry[0], *entry[1].to_list()] for entry in multipliers
            ]
        return {
            "prior": priors.to_json(self.prior, problem.voters.K, problem.classes),
            **{name: getattr(self, name) for name in fields},
            **held_out,
            "multipliers": multipliers,
        }

    @classmethod
    def from_json(cls, data: dict[str, Json], problem: Problem, *, about_gamma: bool) -> Optimality:
        """`KeyError`, `TypeError` or `ValueError` if the claim is malformed."""
        if not about_gamma:
            data = {**data, "shape": SHAPES[0], "objective": ACCURACY, "held_out": None}
        held_out, stored_multipliers = data.get("held_out"), data.get("multipliers")
        checks.finite(value=data["value"], bound=data["bound"])
        claim = cls(
            prior=priors.from_json(data["prior"]),
            shape=data["shape"],
            objective=data["objective"],
            value=float(data["value"]),
            bound=float(data["bound"]),
            status=data["status"],
            held_out=None if held_out is None else Estimate(**held_out),
        )
        if stored_multipliers is None:
            return claim
        if claim.is_accuracy:
            return replace(claim, multipliers=tuple(accuracy_bound.multipliers_from_json(stored_multipliers, problem)))
        return replace(claim, multipliers=tuple(certify.multipliers_from_json(stored_multipliers, problem.voters)))
