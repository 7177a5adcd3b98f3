"""The bounds that an accountant compares: each gives the ε of a whole account at a given δ, or None.

Every bound holds if the kinds of queries and their numbers were fixed before the first answer; the queries themselves
may depend on earlier answers.

Privacy loss distributions are composed on a grid by fast Fourier transform. A privacy profile becomes a pair of
distributions that dominates the query [ZDW22, Proposition 8]. An (ε, δ) pair becomes randomized response that fails
with probability δ. A grid reads a convex profile at fewer points: the chords between them are above it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from darrm.loss.composition import (
    Group,
    TooManyKindsError,
    general_epsilon,
    log_remaining_delta,
    optimal_epsilon,
    round_up,
)
from darrm.loss.grid_composition import GridComposition, GridQueries
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.problem import Voters

Account = tuple[PrivacyCost, ...]

MOST_PROFILE_QUERIES = 20_000  # beyond, trying every point takes longer than a minute, and the PLD bound is better
_MAX_CELLS = 2**21  # steps that all losses together span
_PARTS, _PARTS_TO_CORNER = 256, 16  # steps of an uneven profile up to its last point, and up to its first corner
_MIN_STEP = 1e-15  # e^0 and e^step must be different floats
# for sampled queries: how much chords may add to a variance, and how often the step may grow fourfold
_MAX_CHORD_VARIANCE, _MAX_COARSENINGS = 3e-3, 6
_CELLS_PER_STEP = 16  # with several kinds no common grid hits every loss, so the grid is this much finer than the steps
Profiles = tuple[tuple[PrivacyProfile, int], ...]


@dataclass(frozen=True)
class Bound:
    name: str  # simple, general, optimal, profile, renyi, pld, filter, or one of `MODELS_BOUNDS`
    epsilon: float
    explanation: str  # the reason in words


def exact_sum(account: Account) -> tuple[Fraction, Fraction] | None:
    """Add every ε and every δ exactly; None if a pair does not describe all that some cost covers."""
    groups = list_guarantees(account)
    if groups is None:
        return None
    return (
        sum((count * params.exact_epsilon for params, count in groups), Fraction(0)),
        sum((count * params.exact_delta for params, count in groups), Fraction(0)),
    )


def simple_bound(account: Account, delta: float) -> Bound | None:
    """Add every ε and every δ [D, Theorem 2.2]."""
    total = exact_sum(account)
    if total is None or total[1] > PrivacyParams(0, delta).exact_delta:
        return None
    return Bound("simple", round_up(total[0]), "the epsilons and the deltas of all queries add up")


def general_bound(account: Account, delta: float) -> Bound | None:
    """Apply the closed form, with all of δ that the queries leave as its slack [KOV15, Theorem 3.5]."""
    groups = list_guarantees(account)
    if groups is None:
        return None
    epsilon, slack = _apply_closed_form(groups, delta)
    return _make_finite("general", epsilon, f"closed form with delta' = {slack:.3g}")


def _apply_closed_form(groups: list[Group], delta: float) -> tuple[float, float]:
    log_slack = log_remaining_delta(groups, delta)
    # a subnormal slack has lost its digits
    if not log_slack > math.log(1e-300):
        return math.inf, 0.0
    slack = math.exp(log_slack) * (1.0 - 1e-12)  # exp of a logarithm of size below 700 loses fewer digits than that
    return general_epsilon(groups, slack), slack


def optimal_bound(account: Account, delta: float) -> Bound | None:
    """Compose the guarantees exactly [KOV15, Theorem 3.3], [MV16, Theorem 1.5]."""
    groups = list_guarantees(account)
    if groups is None:
        return None
    try:
        epsilon = optimal_epsilon(groups, delta)
    except TooManyKindsError:
        return None
    return _make_finite("optimal", epsilon, "the best that the (epsilon, delta) of each query allow")


def profile_bound(account: Account, delta: float) -> Bound | None:
    """Compose optimally the best point of the privacy profile, for queries of one kind."""
    if len(account) != 1 or account[0].profile is None or account[0].count > MOST_PROFILE_QUERIES:
        return None
    cost, profile = account[0], account[0].profile
    if cost.count == 1:
        epsilon, point = profile.epsilon_at(delta), delta
    else:
        pairs = zip(profile.epsilons, profile.deltas, strict=True)
        points = [[(PrivacyParams(e, d), cost.count)] for e, d in pairs if d < 1.0]
        epsilon, point = math.inf, 0.0

        def compute_closed_form(groups: list[Group]) -> float:
            return _apply_closed_form(groups, delta)[0]

        # the most promising points first, so that `to_beat` rejects most others early
        for groups in sorted(points, key=compute_closed_form):
            composed_epsilon = optimal_epsilon(groups, delta, to_beat=epsilon)
            epsilon, point = min((epsilon, point), (composed_epsilon, groups[0][0].delta))
    return _make_finite("profile", epsilon, f"exact divergence of one query, taken at delta = {point:.3g} a query")


def renyi_bound(account: Account, delta: float) -> Bound | None:
    """Add Rényi curves; an (ε, δ) query counts as a pure one whose δ is set aside [M17, Proposition 6]."""
    orders = next((cost.renyi.orders for cost in account if cost.renyi is not None), None)
    if orders is None or delta == 0.0:
        return None
    curves: list[RenyiCurve] = []
    impure_groups: list[Group] = []
    for cost in account:
        if cost.renyi is not None:
            curve = cost.renyi
        elif cost.guarantee is not None:
            curve = RenyiCurve.from_pure(cost.guarantee.epsilon, orders)
            impure_groups.append((cost.guarantee, cost.count))
        else:
            return None
        if not (curve.orders.shape == orders.shape and bool((curve.orders == orders).all())):
            return None
        curves.append(curve.repeat(cost.count))
    log_delta = log_remaining_delta(impure_groups, delta)
    if log_delta == -math.inf:
        return None
    best = reduce(add, curves).best(math.exp(log_delta) * (1.0 - 1e-12))
    edge = ", at the edge of the grid: a wider grid may give less" if best.at_edge else ""
    return _make_finite("renyi", best.epsilon * (1.0 + 1e-12), f"Rényi curves added, best order {best.order:g}{edge}")


MODELS_BOUNDS = ("private models", "subsampling", "non-private voters", "joint bound")


def models_bound(voters: Voters | None, delta: float) -> Bound | None:
    """Bound any number of answers by the private models that a person reaches."""
    if voters is None or not (voters.models and voters.each.is_private):
        return None
    groups = voters.largest(voters.reached)
    total_epsilon = sum((n * params.exact_epsilon for params, n in groups), Fraction(0))
    total_delta = sum((n * params.exact_delta for params, n in groups), Fraction(0))
    epsilon = round_up(total_epsilon) if total_delta <= Fraction(delta) else math.inf
    try:
        epsilon = min(epsilon, optimal_epsilon(groups, delta))
    except TooManyKindsError:
        epsilon = min(epsilon, optimal_epsilon([(voters.each, voters.reached)], delta))
    models_text = "the one model" if voters.reached == 1 else f"the {voters.reached} models"
    explanation = (
        f"answers are post-processing of models that are already private: any number of them costs no more than "
        f"{models_text} that a person's data reach, so the aggregator's noise buys nothing beyond this"
    )
    return _make_finite("private models", epsilon, explanation)


def subsampling_bound(voters: Voters, account: Account, delta: float) -> Bound | None:
    """Bound labels that look at fewer models than a person reaches, see `darrm.table.release`."""
    samples = [(cost.sample, cost.count) for cost in account if cost.sample is not None]
    models_used = sum(sample.voters * count for sample, count in samples)
    if len(samples) < len(account) or models_used >= voters.reached or not voters.each.is_private:
        return None
    groups = voters.largest(models_used)
    max_epsilon = math.fsum(n * params.epsilon for params, n in groups) * (1.0 + 1e-9)
    distance = math.fsum(sample.distance * count for sample, count in samples) * (1.0 + 1e-9)
    remaining_delta = delta - (1.0 + math.exp(min(max_epsilon, LARGEST_EXPONENT))) * distance
    epsilon = optimal_epsilon(groups, remaining_delta) if remaining_delta >= 0.0 else math.inf
    if epsilon > max_epsilon:
        return None
    explanation = f"all labels together use at most {models_used} models, and one person influences {voters.reached}"
    return Bound("subsampling", epsilon, explanation)


def plain_bound(voters: Voters, epsilon: float, name: str) -> Bound | None:
    """Bound the answers of models by the ε of the release for non-private voters."""
    explanation = (
        f"as for non-private voters, of which a person's data influence {voters.reached}: the costs of their queries "
        f"add up, by {name}"
    )
    return _make_finite("non-private voters", epsilon, explanation)


def joint_bound(voters: Voters, epsilons: tuple[float, float]) -> Bound | None:
    """Bound the answers by models and release, see `darrm.loss.joint_bound`.

    The two ε are for a person's models exchanged all at once, and one after another.
    """
    is_at_once = epsilons[0] <= epsilons[1]
    order = "all at once" if is_at_once else "one after another"
    count = "the one model" if voters.reached == 1 else f"the {voters.reached} models, exchanged {order},"
    explanation = f"the release is private as for non-private voters, and {count} that a person reaches: together"
    return _make_finite("joint bound", min(epsilons), explanation)


def list_guarantees(account: Account) -> list[Group] | None:
    """List the (ε, δ) pairs and counts; None if a cost is more than its pair, or has none."""
    pairs = [(cost.guarantee, cost.count, cost.vanishing) for cost in account]
    groups = [(params, count) for params, count, vanishing in pairs if params is not None and not vanishing]
    return groups if len(groups) == len(account) else None


def _make_finite(name: str, epsilon: float, explanation: str) -> Bound | None:
    return Bound(name, epsilon, explanation) if math.isfinite(epsilon) else None


def discretized_bound(account: Account, delta: float) -> Bound | None:
    """Compose the loss distributions on a grid; None if δ is too small, or queries are too many."""
    for cost in account:
        guarantee = cost.guarantee
        if cost.profile is None and (guarantee is None or guarantee.epsilon > LARGEST_EXPONENT):
            return None
    profiles = tuple((get_profile(cost), cost.count) for cost in account)
    span = sum(profile.epsilons[-1] * count for profile, count in profiles)
    if span == 0.0:
        return None
    if any(cost.sampling is not None for cost in account):
        step, epsilon = _compose_sampled(profiles, delta)
    else:
        smallest_step = min(_choose_step(profile) for profile, _ in profiles)
        fineness = 1.0 if len(profiles) == 1 else 1.0 / _CELLS_PER_STEP
        step = max(smallest_step * fineness, 2.0 * span / _MAX_CELLS)
        # with too many queries one cell would hold all losses of a query
        if not _MIN_STEP <= step <= max(profile.epsilons[-1] for profile, _ in profiles):
            return None
        epsilon = _smallest_epsilon(profiles, step, 0, delta)
    if not math.isfinite(epsilon):
        return None
    source = "profiles" if any(cost.profile is not None for cost in account) else "guarantees"
    return Bound("pld", epsilon * (1.0 + 1e-12), f"privacy loss distribution of the {source}, grid step {step:.3g}")


def _compose_sampled(profiles: Profiles, delta: float) -> tuple[float, float]:
    # chords between multiples of the step add step²/24, or less, to ∫ δ dε, and as much to the variance of the losses
    areas = (float(np.trapezoid(profile.deltas, profile.epsilons)) for profile, _ in profiles)
    longest = max(profile.epsilons[-1] for profile, _ in profiles)
    step = max(math.sqrt(24.0 * _MAX_CHORD_VARIANCE * min(areas)), _MIN_STEP, longest / _MAX_CELLS)
    sides = max(len(profile.sides) for profile, _ in profiles)
    for _ in range(_MAX_COARSENINGS):
        epsilon = _smallest_epsilon(profiles, step, 0, delta)
        if math.isfinite(epsilon):
            break
        step *= 4.0
    for factor in (4.0, 1.0) if sides > 1 else ():  # the other direction mostly costs less, as a coarse grid shows
        other_epsilon = _smallest_epsilon(profiles, step * factor, 1, delta)
        if other_epsilon <= epsilon:
            return step, epsilon
    return step, max(epsilon, other_epsilon) if sides > 1 else epsilon


def _smallest_epsilon(profiles: Profiles, step: float, side: int, delta: float) -> float:
    if any(_find_last_cell(profile, step) * step > LARGEST_EXPONENT for profile, _ in profiles):
        return math.inf
    return _compose_on_grid(profiles, step, side).smallest_epsilon(delta)


def _find_last_cell(profile: PrivacyProfile, step: float) -> int:
    return math.ceil(profile.epsilons[-1] / step * (1.0 - 1e-12))


@lru_cache(maxsize=2)  # the two bounds on models ask for one account at a dozen δ
def _compose_on_grid(profiles: Profiles, step: float, side: int) -> GridComposition:
    grid_queries = []
    for profile, count in profiles:
        losses, weights, infinite = dominating_atoms(on_grid(profile, step), side)
        cells = np.round(losses / step).astype(np.int64)
        masses = np.asarray(np.bincount(cells - cells[0], weights), dtype=np.float64)
        grid_queries.append(GridQueries(int(cells[0]), masses, infinite, count))
    return GridComposition(grid_queries, step)


def _choose_step(profile: PrivacyProfile) -> float:
    """Return the step of an even profile, or a part of the range of another."""
    steps = np.diff(profile.epsilons)
    if steps.size == 0:
        return math.inf
    if np.max(steps) <= np.min(steps) * (1.0 + 1e-6):
        return float(np.min(steps))
    first_epsilon, last_epsilon = profile.epsilons[1], profile.epsilons[-1]
    return max(min(last_epsilon / _PARTS, first_epsilon / _PARTS_TO_CORNER), last_epsilon / _PARTS**2)


def get_profile(cost: PrivacyCost) -> PrivacyProfile:
    if cost.profile is not None:
        return cost.profile
    if cost.guarantee is None:
        raise ValueError("a cost with neither a profile nor a guarantee has no loss distribution")
    return PrivacyProfile.from_pair(cost.guarantee)


def on_grid(profile: PrivacyProfile, step: float) -> PrivacyProfile:
    """Read a convex profile at the multiples of ``step``, whose chords are above it.

    Multiples far from every point of the profile are on a chord between others, and are left out. Multiples that
    miss a point by its last few digits count as that point.
    """
    points = np.array(profile.epsilons)
    last_cell = _find_last_cell(profile, step)
    cells = np.floor(points / step)
    grid = step * np.unique(np.clip(np.concatenate([cells + k for k in (-1.0, 0.0, 1.0, 2.0)]), 0.0, last_cell))
    nearest = points[np.searchsorted(0.5 * (points[1:] + points[:-1]), grid)]
    is_point = (np.abs(nearest - grid) <= 1e-12 * grid) & (nearest <= grid)
    parts = []
    for values in profile.parts[1:]:
        part_profile = PrivacyProfile(profile.epsilons, values)
        # slightly to the left, where δ is at least as large
        deltas = part_profile.deltas_at(np.asarray(grid * (1.0 - 1e-13), dtype=np.float64))
        deltas[is_point] = np.minimum(deltas[is_point], part_profile.deltas_at(nearest[is_point]))
        parts.append(np.maximum.accumulate(deltas[::-1])[::-1])
    return PrivacyProfile(tuple(grid.tolist()), *(tuple(np.minimum(part, parts[0]).tolist()) for part in parts))


def dominating_atoms(profile: PrivacyProfile, side: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Build the pair of distributions whose privacy profile is the convex hull of the points [ZDW22, Proposition 8].

    With x = e^ε the profile H is convex and H(x) = 1 − x + x·H'(1/x) for x < 1, H' being that of the two exchanged:
    H itself unless more is known. A kink of the hull at x with slope change s is an outcome of loss log x, with
    probabilities x·s and s; the probability of an infinite loss is the last δ.
    """
    grid = np.array(profile.epsilons)
    deltas, reverse_deltas = (np.array(values) for values in profile.sides[side % len(profile.sides)])
    losses = np.concatenate([-grid[:0:-1], grid])
    below = 1.0 - 1.0 / np.exp(grid[:0:-1]) + reverse_deltas[:0:-1] / np.exp(grid[:0:-1])
    x = np.concatenate([[0.0], np.exp(losses)])
    y = np.concatenate([[1.0], below, deltas])
    kept = _find_lower_hull(x, y)
    x, y = x[kept], y[kept]
    slopes = np.append(np.diff(y) / np.diff(x), 0.0)
    masses = x[1:] * np.maximum(np.diff(slopes), 0.0)
    # rounding errors: if the profile of these outcomes is below the hull, the difference counts as infinite
    tail_masses, tail_weights = (np.append(np.cumsum(part[::-1])[::-1], 0.0) for part in (masses, masses / x[1:]))
    profile_values = tail_masses - x * tail_weights
    infinite = float(np.max(y - profile_values)) + x.size * 2.0**-52
    return losses[np.array(kept[1:]) - 1], masses, min(infinite, 1.0)


def _find_lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[int]:
    hull: list[int] = []
    for index in range(x.size):
        while len(hull) >= 2:
            previous, last = hull[-2], hull[-1]
            if (y[last] - y[previous]) * (x[index] - x[previous]) <= (y[index] - y[previous]) * (x[last] - x[previous]):
                break
            hull.pop()
        hull.append(index)
    return hull


BoundRule = Callable[[Account, float], Bound | None]
CLOSED_FORMS: tuple[BoundRule, ...] = (simple_bound, general_bound, optimal_bound, renyi_bound)
