"""Mechanisms for pluralities, votes on more than two classes, each calibrated to one budget.

Every mechanism that this library releases is calibrated to the budget: with the parameter that tells most, of those
whose Q charges the accountant admits, to less than a hundredth of ε. `darrm.plan.search` takes the one with the largest
share of right labels under the prior (`darrm.plan.share_right`). To add a mechanism, add it to `FAMILIES`.

Voters are plain here. Private *models* are planned for as plain voters, within what both ends leave for the release
(`darrm.plan.budget`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from darrm import checks
from darrm.errors import PlanError
from darrm.laws import priors
from darrm.laws.priors import Dirichlet, Prior
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.mechanisms.noisy_law import winning_probabilities
from darrm.mechanisms.noisy_max import GNMax, LNMax
from darrm.mechanisms.noisy_maximum import Mechanism, NoisyMaximum
from darrm.mechanisms.release import Release
from darrm.mechanisms.selection import ExponentialMechanism, PermuteAndFlip
from darrm.mechanisms.shaped import ShapedMax
from darrm.optimize.shape import best_shape
from darrm.plan.budget import account_of, counted
from darrm.plan.candidate import Accounted, rounded
from darrm.plan.option import ReleaseOption
from darrm.plan.share_right import Law, ShareRight, coin, share_right
from darrm.privacy import PrivacyParams
from darrm.probability import Array
from darrm.probability.exact_inversion import WIDEST
from darrm.probability.integer_noise import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    DiscreteGaussian,
    DiscreteLaplace,
    IntegerNoise,
    ShapedNoise,
)
from darrm.problem import Workload
from darrm.system.flags import python_of
from darrm.system.report_text import spread

UNUSED = 0.008  # of ε may be left
SHAPED = "shaped noise"
TRIALS = 60
HOPE = 1.1  # times the rate of an estimate: more than its privacy profile may admit
ROUNDED_DOWN = 1.0 - 1e-4  # of the widest shaped noise: its scales are rounded
NARROW = 2e-3  # of the rate: where a cost jumps, no more is looked for
# of the Rényi divergence of a label, λ times the squared rate: about what is certified, where a search starts
GAUSSIAN_SHARE, GAUSSIAN_BEND, GAUSSIAN_POWER, LAPLACE_SHARE = 0.646, 0.0226, 2.1, 0.671
MOST_LEVELS = 128
LEAST_RATE = 1e-100  # with less every answer is a coin
MOST_PLANNED = 1000  # classes: laws are computed class by class
PRIVATE_FOR_ITSELF = (
    "voters' own privacy is used for two classes only: plan for more with --voters plain (a vote counts as a vote), or "
    "say --models where they are models that were trained once"
)


@dataclass(frozen=True)
class Family:
    """Mechanisms that differ in one parameter: the more they cost, the more often they are right.

    Attributes
    ----------
    name
        As reports show it.
    parameter
        What the parameter is called.
    make
        (parameter, how many votes one person moves) → the mechanism.
    law
        The same → its law.
    falls
        Whether the cost falls as the parameter grows, as with σ.
    estimate
        The same as ``make`` → about what an answer costs, where the charge itself takes long; no bound.
    limits
        The least and the largest parameter that ``make`` takes: with the one or the other the votes are told as they
        are, or almost.
    start
        The rate that a search starts with, where one is known.
    """

    name: str
    parameter: str
    make: Callable[[float, int], Mechanism]
    law: Callable[[float, int], Law]
    falls: bool = False
    estimate: Callable[[float, int], Charge] | None = None
    limits: tuple[float, float] = (0.0, math.inf)
    start: float | None = None

    def rounded(self, rate: float) -> float:
        """Compute the parameter of a rate, which costs grow with: six digits, rounded to the cheaper side."""
        value = float(rounded(1.0 / rate, ROUND_CEILING) if self.falls else rounded(rate, ROUND_FLOOR))
        return min(max(value, self.limits[0]), self.limits[1])


def noisy_family(
    name: str,
    parameter: str,
    make: Callable[[float, int], Mechanism],
    noise: Callable[[float], IntegerNoise],
    about: Callable[[Array, float], Array],
    *,
    falls: bool,
    limits: tuple[float, float],
) -> Family:
    """Describe the mechanisms that give every count a noise of its own; ``about`` estimates (orders, rate) → curve."""

    def law(value: float, _reached: int) -> Law:
        return lambda counts: winning_probabilities(noise(value), counts)

    def estimate(value: float, reached: int) -> Charge:
        rate = (1.0 / value if falls else value) * reached
        pure = None if falls else PrivacyParams(2.0 * rate)
        return Charge(name, pure, RenyiCurve.of(lambda orders: about(orders, rate)))

    return Family(name, parameter, make, law, falls, estimate, limits)


def _exponential_law(epsilon: float, reached: int) -> Law:
    return lambda counts: softmax(counts * (epsilon / (2.0 * reached)), axis=1)


def _permute_and_flip_law(epsilon: float, reached: int) -> Law:
    """Integrate Pr[c] = e_c ∫_0^1 Π_{j ≠ c}(1 − e_j·s) ds: with C/2 nodes exactly, with some √C to twelve digits.

    A class that is looked at in the s-th part of a random order is answered if its coin shows heads and those of all
    that were looked at before showed tails.
    """

    def law(counts: NDArray[np.int64]) -> Array:
        nodes, weights = np.polynomial.legendre.leggauss(
            min(counts.shape[1] // 2 + 1, math.isqrt(16 * counts.shape[1]) + 20)
        )
        heads = np.exp((counts - counts.max(axis=1, keepdims=True)) * (epsilon / (2.0 * reached)))
        found = np.zeros(counts.shape)
        for s, weight in zip((nodes + 1.0) / 2.0, weights / 2.0, strict=True):
            tails = 1.0 - heads * s
            found += weight * heads * np.exp(np.log(tails).sum(axis=1, keepdims=True)) / tails
        return found

    return law


def _about_gaussian(orders: Array, rate: float) -> Array:
    return orders * rate**2 * np.minimum(1.0, GAUSSIAN_SHARE + GAUSSIAN_BEND * (orders * rate) ** GAUSSIAN_POWER)


def _about_laplace(orders: Array, rate: float) -> Array:
    return np.minimum(LAPLACE_SHARE * orders * rate**2, 2.0 * rate)


GAUSSIAN = noisy_family(
    "GNMax by label",
    "sigma",
    lambda sigma, reached: GNMax(sigma, reached=reached),
    DiscreteGaussian,
    _about_gaussian,
    falls=True,
    limits=(0.5, math.inf),
)
FAMILIES: tuple[Family, ...] = (
    Family("exponential mechanism", "epsilon", ExponentialMechanism, _exponential_law, limits=(1e-12, 700.0)),
    Family("permute-and-flip", "epsilon", PermuteAndFlip, _permute_and_flip_law, limits=(1e-12, 700.0)),
    GAUSSIAN,
    noisy_family(
        "LNMax by label",
        "gamma",
        lambda gamma, reached: LNMax(gamma, reached=reached),
        DiscreteLaplace,
        _about_laplace,
        falls=False,
        limits=(1e-9, 50.0),
    ),
)


@dataclass(frozen=True, eq=False)
class PluralityCandidate(Accounted):
    """A mechanism that was calibrated to a workload, under which prior, and its law."""

    method: str
    workload: Workload
    aggregator: NoisyMaximum | Release
    prior: Prior
    settings: Mapping[str, float]
    law: Law
    family: Family | None  # None for the optimum, whose law is a table

    @cached_property
    def charge(self) -> Charge:
        """What one query costs."""
        return self.aggregator.charge()

    @cached_property
    def share_right(self) -> ShareRight:
        """The share of right labels under the prior."""
        return share_right(self.law, self.workload.voters.K, self.workload.classes, self.prior)

    @cached_property
    def coin(self) -> ShareRight:
        """The share of right labels of a label that looks at nothing: at least 1/C, more where classes tie."""
        return share_right(coin, self.workload.voters.K, self.workload.classes, self.prior)

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """Numbers of votes for the plurality."""
        return leading(self.workload)[:, 0]

    @cached_property
    def truth(self) -> Array:
        """Pr[the answer is the plurality | so many votes for it, the other classes sharing the rest]."""
        return np.asarray(np.clip(self.law(leading(self.workload))[:, 0], 0.0, 1.0))

    def option(self, *, instructions: tuple[str, ...] = ()) -> ReleaseOption:
        """Return it as one option among others, with what to type: by default the lines of Python that make it."""
        return ReleaseOption(
            name=self.method,
            workload=self.workload,
            truth=self.truth,
            cost=self.spent.bounds[0],
            settings=self.settings,
            aggregator=self.aggregator,
            instructions=instructions or self._lines(),
            share_right=self.share_right,
        )

    def _lines(self) -> tuple[str, ...]:
        """Write the lines that make the aggregator again."""
        voters = self.workload.voters
        if not isinstance(self.aggregator, NoisyMaximum):
            return ("next(each for each in plan(workload).candidates if not each.family).aggregator  # in Python",)
        mechanism = self.aggregator.mechanism
        return (
            "from darrm import PrivacyParams, Voters",
            f"from darrm.pate import {type(mechanism).__name__}, NoisyMaximum",
            f"aggregator = NoisyMaximum({mechanism!r}, {python_of(voters)}, {self.workload.classes})",
        )


def shaped_family(workload: Workload, prior: Prior) -> Family:
    """Describe shaped noise of the shape that is right most often at the cost of the Gaussian that the budget admits.

    `PlanError` where the shape gains nothing over the Gaussian.
    """
    release, reached, gaussian = counted(workload), workload.voters.reached, GAUSSIAN
    estimate = gaussian.estimate
    if estimate is None or release.total.exact_delta == 0:
        raise PlanError("its Rényi curve gives no (epsilon, 0)")
    rate = largest_rate(release, lambda rate: estimate(gaussian.rounded(rate), reached), _first_rate(release))
    curve = estimate(gaussian.rounded(rate), 1).renyi
    found = account_of(release, estimate(gaussian.rounded(rate), reached)).charges[0].renyi
    if curve is None or found is None:
        raise PlanError("nothing is known of its divergence")
    order = found.repeated(release.queries).best(release.total.delta).order
    shape = best_shape(
        workload.voters.K,
        workload.classes,
        prior,
        order=order,
        budget=float(curve.values[curve.orders == order][0]),
    )
    if shape.gain <= 2.0 * shape.gain_error:
        raise PlanError("of the shapes that were tried none is right more often than a Gaussian")
    noise = shape.noise

    def scaled(scale: float) -> ShapedNoise:
        left = float(rounded(scale * noise.left / noise.right, ROUND_CEILING))
        return ShapedNoise(scale, left, noise.right_power, noise.left_power)

    shorter = min(1.0, noise.left / noise.right)
    widest = noise.right * min(LARGEST_SCALE / max(noise.left, noise.right), WIDEST / noise.deviation)
    return Family(
        SHAPED,
        "right",
        lambda scale, reached: ShapedMax(scaled(scale), reached),
        lambda scale, _reached: lambda counts: winning_probabilities(scaled(scale), counts),
        falls=True,
        limits=(SMALLEST_SCALE / shorter, ROUNDED_DOWN * widest),
        start=1.0 / noise.right,
    )


def check_plurality(workload: Workload, prior: object) -> None:
    """Raise `ValueError` unless the voters and the prior are such as more than two classes are planned for."""
    voters = workload.voters
    advice = "release one of darrm.pate, which take more"
    checks.integer_at_least(2, most=MOST_PLANNED, classes=workload.classes, advice=advice)
    if not (voters.are_plain or voters.models):
        checks.fail(
            "voters", str(voters), "plain voters or private models for more than two classes", PRIVATE_FOR_ITSELF
        )
    priors.check(prior, workload.classes)


def default_prior() -> Prior:
    """Return the belief under which every histogram is equally likely."""
    return Dirichlet()


def calibrated(workload: Workload, prior: Prior, family: Family, *, to_beat: float = 0.0) -> PluralityCandidate:
    """Find the mechanism of a family that uses up the budget.

    `PlanError` if none stays within it, or if even with `HOPE` times the rate that its estimate admits it would be
    right less often than ``to_beat``: its charge takes seconds to compute.
    """
    release, voters = counted(workload), workload.voters
    reached = voters.reached

    def charge(rate: float) -> Charge:
        return family.make(family.rounded(rate), reached).charge()

    start = _first_rate(release) if family.start is None else family.start
    estimate = family.estimate
    if estimate is not None:
        known = estimate
        start = largest_rate(release, lambda rate: known(family.rounded(rate), reached), start)
        hoped = share_right(family.law(family.rounded(HOPE * start), reached), voters.K, workload.classes, prior).value
        if hoped < to_beat:
            raise PlanError(f"by an estimate at most {hoped:.4f} of its labels would be right")
    parameter = family.rounded(largest_rate(release, charge, start))
    mechanism = family.make(parameter, reached)
    return PluralityCandidate(
        method=family.name,
        workload=workload,
        aggregator=NoisyMaximum(mechanism, voters, workload.classes),
        prior=prior,
        settings=asdict(mechanism.noise) if isinstance(mechanism, ShapedMax) else {family.parameter: parameter},
        law=family.law(parameter, reached),
        family=family,
    )


def _first_rate(workload: Workload) -> float:
    return workload.total.epsilon / (2.0 * math.sqrt(workload.queries) * workload.voters.reached)


def largest_rate(workload: Workload, charge: Callable[[float], Charge], start: float) -> float:
    """Find nearly the largest rate whose Q charges the accountant admits: at most `UNUSED` of ε is left.

    A secant search in logarithms with every third step a bisection, for charges that take long to compute. What is
    returned was admitted.
    """
    total = workload.total
    goal = math.log(total.epsilon * (1.0 - UNUSED / 2.0))
    inside, outside = 0.0, math.inf
    points: list[tuple[float, float]] = []
    rate = start
    for trial in range(TRIALS):
        account = account_of(workload, charge(rate))
        spent = account.smallest_epsilon(total.delta)
        admitted = account.admits(total)
        inside, outside = (rate, outside) if admitted else (inside, rate)
        if admitted and spent >= (1.0 - UNUSED) * total.epsilon:
            break
        guess = rate * (2.0 if admitted else 0.5)
        if 0.0 < spent < math.inf:
            points = [*points[-1:], (math.log(rate), math.log(spent))]
            guess = rate * math.exp((goal - points[-1][1]) / _slope(points))
        if math.isinf(outside) and guess <= inside:
            guess = 2.0 * inside
        elif inside == 0.0 and guess >= outside:
            guess = outside / 16.0
        elif inside > 0.0 and math.isfinite(outside) and (trial % 3 == 2 or not inside < guess < outside):
            guess = math.sqrt(inside * outside)
        if (math.isfinite(outside) and outside - inside <= NARROW * outside) or guess < LEAST_RATE:
            break
        rate = guess
    if inside == 0.0:
        raise PlanError(f"no parameter composes within {total}")
    return inside


def _slope(points: list[tuple[float, float]]) -> float:
    """Compute d log ε/d log rate from the last two trials, between that of pure and twice that of Gaussian noise."""
    if len(points) < 2 or points[0][0] == points[1][0]:
        return 1.25
    (x, y), (a, b) = points
    return min(4.0, max(0.5, (b - y) / (a - x)))


def leading(workload: Workload) -> NDArray[np.int64]:
    """List histograms in which one class leads and the others share the rest as evenly as they can."""
    K, others = workload.voters.K, workload.classes - 1
    levels = np.arange(K // workload.classes + 1, K + 1)
    levels = levels[levels > -(-(K - levels) // others)]
    levels = levels[spread(levels.size, MOST_LEVELS)]
    rest = K - levels
    shared = (rest // others)[:, None] + (np.arange(others) < (rest % others)[:, None])
    return np.column_stack([levels, shared])
