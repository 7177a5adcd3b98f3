"""How good a law is under a prior, and the proof that no private one is much better.

A γ is judged by its expected error, a law on histograms by its share of right labels: a `Merit`, with the bound on that
of every private law that the solver's multipliers prove (`darrm.proof.error_bound`, `darrm.proof.share_bound`). Good
multipliers give a good bound; bad ones give a weak bound, never a false one. So a table keeps them, and whoever loads
it computes the bound again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from darrm.errors import TableError, checks
from darrm.laws import priors
from darrm.laws.law import Law
from darrm.laws.sampled_error import Estimate
from darrm.problem import Problem
from darrm.proof import error_bound, share_bound
from darrm.system.files import Json

SHAPES = ("free", "monotone")
OBJECTIVES = ("linear", "expected-error")
SHARE_RIGHT = "share-right"  # the objective of more than two classes
STATUSES = ("optimal", "time limit", "interrupted", "stalled at the solver's precision", "failed")

Multipliers = Sequence[Any]  # `error_bound.Multiplier` of rows, or `share_bound.PairMultipliers` of pairs of neighbors


@dataclass(frozen=True)
class Merit:
    """A figure of merit of laws: how it is computed, and how one of no private law is bounded."""

    name: str
    sign: float  # 1 where less is better, else −1
    # what rounding may change: a few thousand additions of numbers of at most 1, and another library's logarithms
    tolerance: float
    text: str  # with the value, the bound and who says so
    value: Callable[[Law, priors.Prior], float | None]
    bound: Callable[[Problem, priors.Prior, str, Multipliers], float]
    to_list: Callable[[Any], list[Json]]
    from_json: Callable[[Json, Problem], Multipliers]
    fields: tuple[str, ...]  # that a file holds of it beside prior and multipliers

    def better(self, first: float, second: float) -> float:
        """Return the one of two figures that promises more."""
        return min(first, second) if self.sign > 0.0 else max(first, second)


ERROR = Merit(
    "expected error",
    1.0,
    1e-12,
    "expected error {:.10g}, no private γ of this shape below {:.10g} ({})",
    lambda law, prior: law.expected_error(prior),
    lambda problem, prior, shape, multipliers: error_bound.lower_bound(
        problem, priors.weights_of(prior, problem.voters.K), shape, multipliers
    ),
    error_bound.to_list,
    lambda data, problem: error_bound.multipliers_from_json(data, problem.voters),
    ("shape", "objective", "value", "bound", "status"),
)
SHARE = Merit(
    "share of right labels",
    -1.0,
    1e-10,
    "{:.10g} of the labels right, no private mechanism above {:.10g} ({})",
    lambda law, prior: law.share_right(prior),
    lambda problem, prior, _, multipliers: share_bound.upper_bound(problem, prior, multipliers),
    lambda multiplier: multiplier.to_list(),
    share_bound.multipliers_from_json,
    ("value", "bound", "status"),
)


def merit_of(objective: str) -> Merit:
    """Return what an objective makes small or large."""
    return SHARE if objective == SHARE_RIGHT else ERROR


@dataclass(frozen=True)
class Solution:
    """What a solver says of its optimum: for which prior, why it stopped, and the multipliers that bound all others."""

    prior: priors.Prior
    multipliers: Multipliers
    status: str = STATUSES[0]
    shape: str = SHAPES[0]
    objective: str = SHARE_RIGHT

    def proved(self, problem: Problem, law: Law) -> Optimality:
        """Compute how good a proven law is, and from the multipliers how much better one could be."""
        merit, said = merit_of(self.objective), (self.prior, self.shape, self.objective)
        value = merit.value(law, self.prior)
        if value is None:
            checks.fail("the prior", self.prior.text, f"one with a linear {merit.name}")
        bound = merit.better(value, merit.bound(problem, self.prior, self.shape, self.multipliers))
        return Optimality(*said, value, bound, self.status, multipliers=self.multipliers, claimed=False)


@dataclass(frozen=True)
class Optimality:
    """How good a law is under a prior, and how much better one could be.

    A claim until `checked` has computed it again. If the expected error was sampled, ``value`` and ``bound`` are about
    the draws that were fitted, which no file keeps, and ``held_out`` is the expected error on draws that were not.
    """

    prior: priors.Prior  # what the law was optimized for; after loading, a `StoredPrior` stands for one of a user's own
    shape: str  # of `SHAPES`
    objective: str  # of `OBJECTIVES`, or `SHARE_RIGHT`
    value: float  # expected error, or share of right labels, of the certified law
    bound: float  # no private γ of that shape has a smaller error; no private mechanism a larger share
    status: str  # of `STATUSES`: why the solver stopped; a comment, not a claim
    held_out: Estimate | None = None
    multipliers: Multipliers | None = field(default=None, repr=False)  # what proves the bound
    claimed: bool = True  # value or bound are the maker's word

    @property
    def merit(self) -> Merit:
        """What value and bound are figures of."""
        return merit_of(self.objective)

    @property
    def gap(self) -> float:
        """How much better than ``value`` a private law might be by ``bound``, at least 0."""
        return max(0.0, self.merit.sign * (self.value - self.bound))

    def __str__(self) -> str:
        return self.merit.text.format(self.value, self.bound, "claimed by the maker" if self.claimed else "proved")

    def checked(self, problem: Problem, law: Law) -> Optimality:
        """Return the same with value and bound computed again, as far as the prior and the multipliers allow.

        `TableError` if something does not hold.
        """
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
        """Write what is known about a law as plain data; a file does not say what is proved."""
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
        """Read what `to_json` wrote: a claim; `KeyError`, `TypeError` or `ValueError` if it is malformed."""
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
