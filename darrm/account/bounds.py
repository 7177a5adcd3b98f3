"""The bounds that an accountant compares: each gives the ε of a whole account at a given δ, or None.

An account is a tuple of charges, one for each kind of query, with its count. Every bound holds when the kinds and their
numbers were fixed before the first answer, however the queries themselves depend on earlier answers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add

from darrm.loss.composition import (
    Group,
    TooManyKindsError,
    general_epsilon,
    log_remaining_delta,
    optimal_epsilon,
    round_up,
)
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.renyi import RenyiCurve
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.problem import Voters

Account = tuple[PrivacyCost, ...]

MOST_PROFILE_QUERIES = 20_000  # beyond, trying every point takes longer than a minute, and the PLD bound is better


@dataclass(frozen=True)
class Bound:
    """One bound on the privacy loss: the account is (epsilon, δ)-private."""

    name: str  # simple, general, optimal, profile, renyi, pld, filter, or one of `MODELS_BOUNDS`
    epsilon: float
    explanation: str  # the reason in words


def exact_sum(account: Account) -> tuple[Fraction, Fraction] | None:
    """Add every ε and every δ exactly; None if some charge has no such pair, or costs something besides."""
    groups = guarantees_of(account)
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
    groups = guarantees_of(account)
    if groups is None:
        return None
    epsilon, slack = _closed_form(groups, delta)
    return _finite("general", epsilon, f"closed form with delta' = {slack:.3g}")


def _closed_form(groups: list[Group], delta: float) -> tuple[float, float]:
    log_slack = log_remaining_delta(groups, delta)
    # a subnormal slack has lost its digits
    if not log_slack > math.log(1e-300):
        return math.inf, 0.0
    slack = math.exp(log_slack) * (1.0 - 1e-12)  # exp of a logarithm of size below 700 loses fewer digits than that
    return general_epsilon(groups, slack), slack


def optimal_bound(account: Account, delta: float) -> Bound | None:
    """Compose the guarantees exactly [KOV15, Theorem 3.3], [MV16, Theorem 1.5]."""
    groups = guarantees_of(account)
    if groups is None:
        return None
    try:
        epsilon = optimal_epsilon(groups, delta)
    except TooManyKindsError:
        return None
    return _finite("optimal", epsilon, "the best that the (epsilon, delta) of each query allow")


def profile_bound(account: Account, delta: float) -> Bound | None:
    """Compose optimally the best single point of the privacy profile; for queries of one kind only."""
    if len(account) != 1 or account[0].profile is None or account[0].count > MOST_PROFILE_QUERIES:
        return None
    charge, profile = account[0], account[0].profile
    if charge.count == 1:
        epsilon, point = profile.epsilon_at(delta), delta
    else:
        pairs = zip(profile.epsilons, profile.deltas, strict=True)
        points = [[(PrivacyParams(e, d), charge.count)] for e, d in pairs if d < 1.0]
        epsilon, point = math.inf, 0.0
        # the likeliest first: of most others one look shows that they are no better
        for groups in sorted(points, key=lambda groups: _closed_form(groups, delta)[0]):
            composed = optimal_epsilon(groups, delta, to_beat=epsilon)
            epsilon, point = min((epsilon, point), (composed, groups[0][0].delta))
    return _finite("profile", epsilon, f"exact divergence of one query, taken at delta = {point:.3g} a query")


def renyi_bound(account: Account, delta: float) -> Bound | None:
    """Add Rényi curves; an (ε, δ) query counts as a pure one whose δ is set aside [M17, Proposition 6]."""
    orders = next((charge.renyi.orders for charge in account if charge.renyi is not None), None)
    if orders is None or delta == 0.0:
        return None
    curves: list[RenyiCurve] = []
    failing: list[Group] = []
    for charge in account:
        if charge.renyi is not None:
            curve = charge.renyi
        elif charge.guarantee is not None:
            curve = RenyiCurve.of_pure(charge.guarantee.epsilon, orders)
            failing.append((charge.guarantee, charge.count))
        else:
            return None
        if not (curve.orders.shape == orders.shape and bool((curve.orders == orders).all())):
            return None
        curves.append(curve.repeated(charge.count))
    log_delta = log_remaining_delta(failing, delta)
    if log_delta == -math.inf:
        return None
    best = reduce(add, curves).best(math.exp(log_delta) * (1.0 - 1e-12))
    edge = ", at the edge of the grid: a wider grid may give less" if best.at_edge else ""
    return _finite("renyi", best.epsilon * (1.0 + 1e-12), f"Rényi curves added, best order {best.order:g}{edge}")


MODELS_BOUNDS = ("private models", "subsampling", "plain voters", "both ends")


def models_bound(voters: Voters | None, delta: float) -> Bound | None:
    """Bound any number of answers by the models that a person reaches, whose post-processing they are.

    None unless the voters are private models: nothing in the votes shows whether they draw fresh randomness.

    >>> models_bound(Voters(11, PrivacyParams(0.0892, 1e-4), overlap=1, models=True), 1e-4).epsilon
    0.0892
    """
    if voters is None or not (voters.models and voters.each.is_private):
        return None
    groups = voters.largest(voters.reached)
    simple = sum((n * each.exact_epsilon for each, n in groups), Fraction(0))
    simple_delta = sum((n * each.exact_delta for each, n in groups), Fraction(0))
    epsilon = round_up(simple) if simple_delta <= Fraction(delta) else math.inf
    try:
        epsilon = min(epsilon, optimal_epsilon(groups, delta))
    except TooManyKindsError:
        epsilon = min(epsilon, optimal_epsilon([(voters.each, voters.reached)], delta))
    reached = "the one model" if voters.reached == 1 else f"the {voters.reached} models"
    explanation = (
        f"answers are post-processing of models that are already private: any number of them costs no more than "
        f"{reached} that a person's data reach, so the aggregator's noise buys nothing beyond this"
    )
    return _finite("private models", epsilon, explanation)


def subsampling_bound(voters: Voters, account: Account, delta: float) -> Bound | None:
    """Bound labels that look at fewer models than a person reaches, see `darrm.table.release`."""
    samples = [(charge.sample, charge.count) for charge in account if charge.sample is not None]
    looked = sum(sample.voters * count for sample, count in samples)
    if len(samples) < len(account) or looked >= voters.reached or not voters.each.is_private:
        return None
    groups = voters.largest(looked)
    most = math.fsum(n * each.epsilon for each, n in groups) * (1.0 + 1e-9)
    distance = math.fsum(sample.distance * count for sample, count in samples) * (1.0 + 1e-9)
    left = delta - (1.0 + math.exp(min(most, LARGEST_EXPONENT))) * distance
    epsilon = optimal_epsilon(groups, left) if left >= 0.0 else math.inf
    if epsilon > most:
        return None
    explanation = f"all labels together use at most {looked} models, and one person influences {voters.reached}"
    return Bound("subsampling", epsilon, explanation)


def plain_bound(voters: Voters, epsilon: float, name: str) -> Bound | None:
    """Bound the answers of models by the cost of the release for non-private voters, by the named bound."""
    explanation = (
        f"as for non-private voters, of which a person's data influence {voters.reached}: the costs of their queries "
        f"add up, by {name}"
    )
    return _finite("plain voters", epsilon, explanation)


def both_ends_bound(voters: Voters, epsilons: tuple[float, float]) -> Bound | None:
    """Bound the answers of models by both, the models and the release: see `darrm.loss.joint_bound`.

    The two are ε with all the models that a person reaches exchanged at once, and one after another.
    """
    at_once = epsilons[0] <= epsilons[1]
    way = "all at once" if at_once else "one after another"
    count = "the one model" if voters.reached == 1 else f"the {voters.reached} models, exchanged {way},"
    explanation = f"the release is private as for plain voters, and {count} that a person reaches: together"
    return _finite("both ends", min(epsilons), explanation)


def guarantees_of(account: Account) -> list[Group] | None:
    """List the (ε, δ) pairs and counts; None if some charge has no such pair."""
    pairs = [(charge.guarantee, charge.count, charge.vanishing) for charge in account]
    groups = [(own, count) for own, count, vanishing in pairs if own is not None and not vanishing]
    return groups if len(groups) == len(account) else None


def _finite(name: str, epsilon: float, explanation: str) -> Bound | None:
    return Bound(name, epsilon, explanation) if math.isfinite(epsilon) else None


BoundRule = Callable[[Account, float], Bound | None]
CLOSED_FORMS: tuple[BoundRule, ...] = (simple_bound, general_bound, optimal_bound, renyi_bound)
