"""Composition of discretized privacy loss distributions by fast Fourier transform.

Queries with a privacy profile are represented by a pair of distributions that dominates them [ZDW22, Proposition 8];
queries with an (ε, δ) pair by randomized response that confesses with probability δ, whose profile bends once. A
coarser grid reads the same profiles at fewer points, and the chords between these lie above them.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from darrm.account.bounds import Account, Bound
from darrm.loss.grid_composition import GridComposition, GridQueries
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams

_MOST_CELLS = 2**21  # steps that all losses together span
_PARTS, _PARTS_TO_CORNER = 256, 16  # of an uneven profile, up to its last point and up to its first corner
_LEAST_STEP = 1e-15  # e^0 and e^step are to be different floats
# of queries that rarely tell anything: what chords may add to a variance, and how often the step is taken four times
_CHORDS, _COARSER = 3e-3, 6
_CELLS_A_STEP = 16  # with several kinds no common grid hits every loss, so the grid is this much finer than the steps


Profiles = tuple[tuple[PrivacyProfile, int], ...]


def discretized_bound(account: Account, delta: float) -> Bound | None:
    """Compose the loss distributions of all queries on a grid; None at a too small δ, or for too many queries."""
    if not all(charge.profile or _has_profile(charge.guarantee) for charge in account):
        return None
    profiles = tuple((profile_of(charge), charge.count) for charge in account)
    span = sum(profile.epsilons[-1] * count for profile, count in profiles)
    if span == 0.0:
        return None
    if any(charge.sampling is not None for charge in account):
        step, epsilon = _of_drawn(profiles, delta)
    else:
        smallest_step = min(_step_of(profile) for profile, _ in profiles)
        fineness = 1.0 if len(profiles) == 1 else 1.0 / _CELLS_A_STEP
        step = max(smallest_step * fineness, 2.0 * span / _MOST_CELLS)
        # with too many queries one cell would hold all losses of one
        if not _LEAST_STEP <= step <= max(profile.epsilons[-1] for profile, _ in profiles):
            return None
        epsilon = _smallest_epsilon(profiles, step, 0, delta)
    if not math.isfinite(epsilon):
        return None
    source = "profiles" if any(charge.profile is not None for charge in account) else "guarantees"
    return Bound("pld", epsilon * (1.0 + 1e-12), f"privacy loss distribution of the {source}, grid step {step:.3g}")


def _of_drawn(profiles: Profiles, delta: float) -> tuple[float, float]:
    # chords between multiples of the step add step²/24, or less, to ∫ δ dε, and as much to the variance of the losses
    areas = (float(np.trapezoid(profile.deltas, profile.epsilons)) for profile, _ in profiles)
    longest = max(profile.epsilons[-1] for profile, _ in profiles)
    step = max(math.sqrt(24.0 * _CHORDS * min(areas)), _LEAST_STEP, longest / _MOST_CELLS)
    sides = max(len(profile.sides) for profile, _ in profiles)
    for _ in range(_COARSER):
        epsilon = _smallest_epsilon(profiles, step, 0, delta)
        if math.isfinite(epsilon):
            break
        step *= 4.0
    for finer in (4.0, 1.0) if sides > 1 else ():  # the other direction mostly costs less: a coarse look shows it
        other = _smallest_epsilon(profiles, step * finer, 1, delta)
        if other <= epsilon:
            return step, epsilon
    return step, max(epsilon, other) if sides > 1 else epsilon


def _smallest_epsilon(profiles: Profiles, step: float, side: int, delta: float) -> float:
    """Compose on a grid; ∞ if its last point would exceed the largest ε of a profile."""
    if any(_last_cell(profile, step) * step > LARGEST_EXPONENT for profile, _ in profiles):
        return math.inf
    return _composed(profiles, step, side).smallest_epsilon(delta)


def _last_cell(profile: PrivacyProfile, step: float) -> int:
    return math.ceil(profile.epsilons[-1] / step * (1.0 - 1e-12))


@lru_cache(maxsize=2)  # both ends of models ask for one account at a dozen δ
def _composed(profiles: Profiles, step: float, side: int) -> GridComposition:
    kinds = []
    for profile, count in profiles:
        losses, weights, infinite = dominating_atoms(on_grid(profile, step), side)
        cells = np.round(losses / step).astype(np.int64)
        masses = np.asarray(np.bincount(cells - cells[0], weights), dtype=np.float64)
        kinds.append(GridQueries(int(cells[0]), masses, infinite, count))
    return GridComposition(kinds, step)


def _has_profile(guarantee: PrivacyParams | None) -> bool:
    return guarantee is not None and guarantee.epsilon <= LARGEST_EXPONENT


def _step_of(profile: PrivacyProfile) -> float:
    """Return the step of an even profile, and a part of the range of one that is given at its corners."""
    steps = np.diff(profile.epsilons)
    if steps.size == 0:
        return math.inf
    if np.max(steps) <= np.min(steps) * (1.0 + 1e-6):
        return float(np.min(steps))
    first, last = profile.epsilons[1], profile.epsilons[-1]
    return max(min(last / _PARTS, first / _PARTS_TO_CORNER), last / _PARTS**2)


def profile_of(charge: PrivacyCost) -> PrivacyProfile:
    """Return the profile of a charge, or that of the worst mechanism with its (ε, δ): with one bend."""
    if charge.profile is not None:
        return charge.profile
    if charge.guarantee is None:
        raise ValueError("a charge with neither a profile nor a guarantee has no loss distribution")
    return PrivacyProfile.of_pair(charge.guarantee)


def on_grid(profile: PrivacyProfile, step: float) -> PrivacyProfile:
    """Read a profile at the multiples of ``step``: the chords of a convex function lie above it, so nothing is lost.

    Multiples far from every point of the profile are on a chord between others, and are left out. Multiples that
    miss a point of the profile by its last few digits count as that point.
    """
    known = np.array(profile.epsilons)
    last = _last_cell(profile, step)
    beside = np.floor(known / step)
    grid = step * np.unique(np.clip(np.concatenate([beside + k for k in (-1.0, 0.0, 1.0, 2.0)]), 0.0, last))
    nearest = known[np.searchsorted(0.5 * (known[1:] + known[:-1]), grid)]
    at = (np.abs(nearest - grid) <= 1e-12 * grid) & (nearest <= grid)
    parts = []
    for values in profile.parts[1:]:
        one = PrivacyProfile(profile.epsilons, values)
        # a hair to the left: δ is at least as large there
        deltas = one.deltas_at(np.asarray(grid * (1.0 - 1e-13), dtype=np.float64))
        deltas[at] = np.minimum(deltas[at], one.deltas_at(nearest[at]))
        parts.append(np.maximum.accumulate(deltas[::-1])[::-1])
    return PrivacyProfile(tuple(grid.tolist()), *(tuple(np.minimum(part, parts[0]).tolist()) for part in parts))


def dominating_atoms(profile: PrivacyProfile, side: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Build the pair of distributions whose privacy profile is the convex hull of the given points.

    With x = e^ε the profile H is convex and H(x) = 1 − x + x·H'(1/x) for x < 1, H' being that of the two exchanged:
    H itself unless more is known. A kink of the hull at x with slope change s is an outcome of probability x·s and s
    under the two data sets, so its loss is log x; the probability of an infinite loss is the last δ [ZDW22,
    Proposition 8].
    """
    grid = np.array(profile.epsilons)
    bounds, back = (np.array(values) for values in profile.sides[side % len(profile.sides)])
    losses = np.concatenate([-grid[:0:-1], grid])
    below = 1.0 - 1.0 / np.exp(grid[:0:-1]) + back[:0:-1] / np.exp(grid[:0:-1])
    x = np.concatenate([[0.0], np.exp(losses)])
    y = np.concatenate([[1.0], below, bounds])
    kept = _lower_hull(x, y)
    x, y = x[kept], y[kept]
    slopes = np.append(np.diff(y) / np.diff(x), 0.0)
    masses = x[1:] * np.maximum(np.diff(slopes), 0.0)
    # rounding errors: if the profile of these outcomes is below the hull, the difference counts as infinite
    above, damped = (np.append(np.cumsum(part[::-1])[::-1], 0.0) for part in (masses, masses / x[1:]))
    reached = above - x * damped
    infinite = float(np.max(y - reached)) + x.size * 2.0**-52
    return losses[np.array(kept[1:]) - 1], masses, min(infinite, 1.0)


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[int]:
    hull: list[int] = []
    for index in range(x.size):
        while len(hull) >= 2:
            first, last = hull[-2], hull[-1]
            if (y[last] - y[first]) * (x[index] - x[first]) <= (y[index] - y[first]) * (x[last] - x[first]):
                break
            hull.pop()
        hull.append(index)
    return hull
