"""How good a law is under a prior, and the proof that no private law is much better.

A γ is judged by its expected error, a law on histograms by its accuracy (`Merit`). The solver's multipliers prove a
bound for every private law (`darrm.majority.error_bound`, `darrm.plurality.accuracy_bound`). Any multipliers give a
valid bound; good ones give a tight bound. A table stores them, and loading it computes the bound again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from darrm import priors
from darrm.errors import TableError
from darrm.majority import error_bound
from darrm.majority.noise_function import Estimate
from darrm.plurality import accuracy_bound
from darrm.privacy import at_least, at_most
from darrm.problem import Problem
from darrm.table.law import Law
from darrm.util import checks
from darrm.util.files import Json

SHAPES = ("free", "monotone")
OBJECTIVES = ("linear", "expected-error")
SHARE_RIGHT = "share-right"  # the objective of more than two classes
STATUSES = ("optimal", "time limit", "interrupted", "stalled at the solver's precision", "failed")

Multipliers = Sequence[Any]  # `error_bound.Multiplier` of rows, or `share_bound.PairMultipliers` of pairs of neighbors


class Merit(ABC):
    """A figure of merit of laws: how it is computed, and how one of no private law is bounded."""

    name: str
    sign: float  # 1 where less is better, else −1
    # what rounding may change: a few thousand additions of numbers of at most 1, and another library's logarithms
    tolerance: float
    text: str  # value, bound, and whether both are proved
    fields: tuple[str, ...]  # of a file, besides prior and multipliers

    def better(self, first: float, second: float) -> float:
        """Return the better one of two figures."""
        return min(first, second) if self.sign > 0.0 else max(first, second)

    @abstractmethod
    def value(self, law: Law, prior: priors.Prior) -> float | None:
        """Compute the figure of a law; None if the prior only samples."""

    @abstractmethod
    def bound(self, problem: Problem, prior: priors.Prior, shape: str, multipliers: Multipliers) -> float:
        """Compute the bound on the figure of every private law that the multipliers prove."""

    @abstractmethod
    def to_list(self, multiplier: Any) -> list[Json]:  # noqa: ANN401 (of its kind)
        """Write a multiplier as plain data."""

    @abstractmethod
    def from_json(self, data: Json, problem: Problem) -> Multipliers:
        """Read multipliers."""


class _ExpectedError(Merit):
    name, sign, tolerance = "expected error", 1.0, 1e-12
    text = "expected error {:.10g}, no private γ of this shape below {} ({})"
    fields = ("shape", "objective", "value", "bound", "status")

    def value(self, law: Law, prior: priors.Prior) -> float:
        return law.expected_error(prior)

    def bound(self, problem: Problem, prior: priors.Prior, shape: str, multipliers: Multipliers) -> float:
        return error_bound.lower_bound(problem, priors.weights_of(prior, problem.voters.K), shape, multipliers)

    def to_list(self, multiplier: Any) -> list[Json]:  # noqa: ANN401 (of its kind)
        return error_bound.to_list(multiplier)

    def from_json(self, data: Json, problem: Problem) -> Multipliers:
        return error_bound.multipliers_from_json(data, problem.voters)


class _ShareRight(Merit):
    name, sign, tolerance = "share of right labels", -1.0, 1e-10
    text = "{:.10g} of the labels right, no private mechanism above {} ({})"
    fields = ("value", "bound", "status")

    def value(self, law: Law, prior: priors.Prior) -> float | None:
        return law.share_right(prior)

    def bound(self, problem: Problem, prior: priors.Prior, shape: str, multipliers: Multipliers) -> float:  # noqa: ARG002
        return accuracy_bound.upper_bound(problem, prior, multipliers)

    def to_list(self, multiplier: Any) -> list[Json]:  # noqa: ANN401 (of its kind)
        numbers: list[Json] = multiplier.to_list()
        return numbers

    def from_json(self, data: Json, problem: Problem) -> Multipliers:
        return accuracy_bound.multipliers_from_json(data, problem)


ERROR, SHARE = _ExpectedError(), _ShareRight()


def merit_of(objective: str) -> Merit:
    """Return what an objective makes small or large."""
    return SHARE if objective == SHARE_RIGHT else ERROR


@dataclass(frozen=True)
class Solution:
    """The result of a solver: the prior, the reason why it stopped, and the multipliers that bound all other laws."""

    prior: priors.Prior
    multipliers: Multipliers
    status: str = STATUSES[0]
    shape: str = SHAPES[0]
    objective: str = SHARE_RIGHT

    def proved(self, problem: Problem, law: Law) -> Optimality:
        """Compute the figure of a proven law, and its bound from the multipliers."""
        merit, said = merit_of(self.objective), (self.prior, self.shape, self.objective)
        value = merit.value(law, self.prior)
        if value is None:
            checks.fail("the prior", self.prior.text, f"one with a linear {merit.name}")
        bound = merit.better(value, merit.bound(problem, self.prior, self.shape, self.multipliers))
        return Optimality(*said, value, bound, self.status, multipliers=self.multipliers, claimed=False)


@dataclass(frozen=True)
class Optimality:
    """How good a law is under a prior, and how much better another private law could be.

    It is a claim until `checked` computes it again. If the expected error is sampled, ``value`` and ``bound`` are about
    the fitted draws, which no file stores, and ``held_out`` is the expected error on other draws.
    """

    prior: priors.Prior  # of the optimization; a loaded table has a `StoredPrior` for a prior of a user
    shape: str  # of `SHAPES`
    objective: str  # of `OBJECTIVES`, or `SHARE_RIGHT`
    value: float  # expected error, or share of right labels, of the certified law
    bound: float  # no private γ of that shape has a smaller error; no private mechanism a larger share
    status: str  # of `STATUSES`: why the solver stopped; a comment, not a claim
    held_out: Estimate | None = None
    multipliers: Multipliers | None = field(default=None, repr=False)  # what proves the bound
    claimed: bool = True  # value or bound were not computed again

    @property
    def merit(self) -> Merit:
        """What value and bound are figures of."""
        return merit_of(self.objective)

    @property
    def bound_text(self) -> str:
        """The bound in ten digits, rounded to the valid side."""
        return (at_least if self.merit.sign > 0.0 else at_most)(self.bound, 10)

    @property
    def gap(self) -> float:
        """The optimality gap, at least 0: ``bound`` allows a private law that is better by it."""
        return max(0.0, self.merit.sign * (self.value - self.bound))

    def __str__(self) -> str:
        return self.merit.text.format(self.value, self.bound_text, "claimed by the maker" if self.claimed else "proved")

    def checked(self, problem: Problem, law: Law) -> Optimality:
        """Compute value and bound again, as far as prior and multipliers allow; `TableError` if one is false."""
        merit = self.merit
        try:
            self._check_fields(law)
            known = self.prior.has_closed_form and self.held_out is None
            computed = merit.value(law, self.prior) if known else None
            value = self.value if computed is None else computed
            if not abs(self.value - value) <= merit.tolerance:
                checks.fail(f"the {merit.name}", self.value, f"that of the law, {value!r}")
            if computed is None or self.multipliers is None:
                if not merit.sign * (self.value - self.bound) >= -merit.tolerance:
                    side = "most" if merit.sign > 0.0 else "least"
                    checks.fail("the bound", self.bound, f"at {side} the {merit.name} {self.value!r}")
                return replace(self, value=value, bound=merit.better(self.bound, value), claimed=True)
            # the figure is rounded: it may lie beyond a bound that meets it
            bound = merit.better(value, merit.bound(problem, self.prior, self.shape, self.multipliers))
            if not abs(self.bound - bound) <= merit.tolerance:
                checks.fail("the bound", self.bound, f"what its multipliers prove, {bound!r}")
            return replace(self, value=value, bound=bound, claimed=False)
        except ValueError as error:
            raise TableError("optimality", str(error)) from error

    def _check_fields(self, law: Law) -> None:
        checks.one_of(SHAPES, shape=self.shape)
        checks.one_of((*OBJECTIVES, SHARE_RIGHT), objective=self.objective)
        checks.one_of(STATUSES, status=self.status)
        if self.objective == SHARE_RIGHT:
            checks.probability(value=self.value)
        checks.non_negative(value=self.value)  # an error is one for weights of a law; a prior of one's own has others
        checks.finite(bound=self.bound)
        if self.shape == "monotone" and not law.is_monotone:
            checks.fail("shape", self.shape, "'free'", "this γ falls somewhere")
        if self.held_out is not None:
            checks.integer_at_least(2, draws=self.held_out.draws)
            checks.probability(mean=self.held_out.mean, standard_error=self.held_out.standard_error)
        if priors.is_built_in(self.prior):
            sampled = not self.prior.has_closed_form
            if sampled != (self.held_out is not None) or (sampled and self.objective == "linear"):
                allowed = "there with the objective expected-error" if sampled else "absent"
                checks.fail("held_out", self.held_out, allowed, f"the prior is {self.prior.text}")

    def to_json(self, problem: Problem) -> dict[str, Json]:
        """Write it as plain data; a file does not state which figures are proved."""
        merit, multipliers = self.merit, self.multipliers
        held_out = {} if merit is SHARE else {"held_out": None if self.held_out is None else asdict(self.held_out)}
        return {
            "prior": priors.to_json(self.prior, problem.voters.K, problem.classes),
            **{name: getattr(self, name) for name in merit.fields},
            **held_out,
            "multipliers": None if multipliers is None else [merit.to_list(entry) for entry in multipliers],
        }

    @classmethod
    def from_json(cls, data: dict[str, Json], problem: Problem) -> Optimality:
        """Read a claim that `to_json` wrote; `KeyError`, `TypeError` or `ValueError` if it is malformed."""
        held_out, stored = data.get("held_out"), data.get("multipliers")
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
        return claim if stored is None else replace(claim, multipliers=tuple(claim.merit.from_json(stored, problem)))
