"""What answers of private models cost together, in the auditor's own arithmetic: four bounds, whatever is asked.

A person's data reach t models, each (ε, Δ)-private, trained once. Costs of their answers do not add up; what holds is

================  ====================================================================================================
private models    answers are post-processing of t models: their composition, as `darrm.verify.sums` adds them
subsampling       answers that look at n_i models each are post-processing of Σn_i of them, but for what their laws
                  differ by from such: (1 + e^ε)·Σ of the distances is left out of δ
plain voters      given all other models, answers are releases to t voters about whom nothing is promised, which add up
both ends         H_{e^x} ≤ R·h(y), e^y = 1 + (e^x − 1)/R, with R ≥ H_{e^x} of the t models and h of all releases to t
                  plain voters; or, one model after another, t steps of (x/t, d) with d·Σ e^{ix/t} ≤ δ, i < t
================  ====================================================================================================

`darrm.losses.both_ends` and `darrm.proof.sample` have the proofs. Of models that differ the largest ε and the largest Δ
stand for those reached: no choice of so many is less private. With fixed x the last bound is decided, not searched: it
is tried at the ε that is enough, and somewhat above.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import comb

from darrm.losses.charges import Charge, Sample
from darrm.problem import Voters
from darrm.verify.answering import OfTable, Priced, Recomputed
from darrm.verify.exact import exponential
from darrm.verify.filters import ball, upper_end
from darrm.verify.majority import ExactMajority
from darrm.verify.points import MOST_EPSILON
from darrm.verify.sums import Kind, composed_delta, composed_epsilon

CAP, SUBSAMPLING, PLAIN, BOTH_ENDS = NAMES = ("private models", "subsampling", "plain voters", "both ends")
# of the ε that is enough: first what floats on either side may differ by
_TRIED = (1 + Fraction(9, 10**10), Fraction(1001, 1000), Fraction(101, 100), Fraction(11, 10))
# what answers cost together, δ, and an ε that is enough → an ε that is proved
SumOf = Callable[[Sequence[Priced], Fraction, Fraction], Fraction | None]


@dataclass(frozen=True)
class OfModels:
    """Answers of models of which the charges say the same."""

    models: Voters
    priced: Sequence[Priced]
    delta: Fraction
    sum_of: SumOf  # of answers to plain voters

    def proved(self, name: str, enough: Fraction) -> Fraction | None:
        """Prove an ε by one of `NAMES`, not much above the one that is enough; None where nothing is proved."""
        reached, each = self.models.reached, self.models.each
        if (each.is_private and each.exact_epsilon > MOST_EPSILON) or (name == BOTH_ENDS and enough > MOST_EPSILON):
            return None
        match name:
            case "private models" if self.models.each.is_private:
                return composed_epsilon(self._kinds(reached), self.delta, enough=enough)
            case "subsampling" if self.models.each.is_private:
                return self._subsampled(enough)
            case "plain voters":
                plain = self._plain(reached)
                return None if plain is None else self.sum_of(plain, self.delta, enough)
            case "both ends":
                tried = (enough * factor for factor in _TRIED)
                return next((x for x in tried if self._holds(x, 1) or (reached > 1 and self._holds(x, reached))), None)
        return None

    def _kinds(self, count: int) -> list[Kind]:
        own = self.models.own or (self.models.each,) * count
        epsilons, deltas = (
            sorted(ends, reverse=True)[:count]
            for ends in ((each.exact_epsilon for each in own), (each.exact_delta for each in own))
        )
        return [([pair], times) for pair, times in Counter(zip(epsilons, deltas, strict=True)).items()]

    def _subsampled(self, enough: Fraction) -> Fraction | None:
        if not all(_looks_at_few(charge.sample, exact) for charge, exact in self.priced):
            return None
        samples = [(charge.sample, charge.count) for charge, _ in self.priced if charge.sample is not None]
        looked = sum(sample.voters * count for sample, count in samples)
        if looked >= self.models.reached:
            return None
        kinds = self._kinds(looked)
        most = sum((points[0][0] * count for points, count in kinds), Fraction(0))
        distance = sum((Fraction(sample.distance) * count for sample, count in samples), Fraction(0))
        left = self.delta - ((1 + exponential(most).upper) * distance if distance else 0)
        epsilon = composed_epsilon(kinds, left, enough=enough) if left >= 0 else None
        return epsilon if epsilon is not None and epsilon <= most else None

    def _plain(self, overlap: int) -> list[Priced] | None:
        described: list[Priced] = []
        for charge, exact in self.priced:
            fitting = [(one.reached, one) for one in charge.for_plain_voters if (one.reached or 0) >= overlap]
            if not fitting:
                return None
            plain = min(fitting, key=lambda pair: pair[0] or 0)[1]
            own = None if exact is None else exact.for_plain_voters(overlap)
            described.append((_proved_pair(plain, own).repeated(charge.count), own))
        return described

    def _holds(self, x: Fraction, steps: int) -> bool:
        reached, step = self.models.reached // steps, x / steps
        private = self.models.each.is_private
        divergence = composed_delta(self._kinds(reached), step) if private else Fraction(1)
        allowed = self.delta / sum(exponential(step * place).upper for place in range(steps))
        plain = self._plain(reached)
        if divergence <= allowed or plain is None:
            return divergence <= allowed
        y = -upper_end(-(1 + ball((exponential(step).lower - 1) / divergence)).log())
        total = self.sum_of(plain, allowed / divergence, y)
        return total is not None and total <= y


def of_models(priced: Sequence[Priced], delta: Fraction, sum_of: SumOf) -> OfModels | None:
    """Gather answers of private models; None where there are none, or charges speak of different ones."""
    kinds = {charge.models for charge, _ in priced}
    models = kinds.pop() if len(kinds) == 1 else None
    return None if models is None else OfModels(models, priced, delta, sum_of)


def _proved_pair(plain: Charge, own: Recomputed | None) -> Charge:
    if plain.guarantee is None or not isinstance(own, OfTable):
        return plain
    deltas = own.deltas([plain.guarantee.exact_epsilon])
    holds = deltas is not None and deltas[0].upper <= plain.guarantee.exact_delta
    return plain if holds else replace(plain, guarantee=None)


def _looks_at_few(sample: Sample | None, exact: Recomputed | None) -> bool:
    """Whether a label is near the majority of so many voters, mixed with a fair coin; a ledger alone is believed."""
    if sample is None or not (exact is None or isinstance(exact, ExactMajority)):
        return False
    if exact is None:
        return True
    K, n, half = exact.release.K, sample.voters, exact.release.half
    for ones, value in zip(range(K // 2 + 1, K + 1), half, strict=True):
        ways = [comb(ones, drawn) * comb(K - ones, n - drawn) for drawn in range(n + 1)]
        lead = Fraction(sum(ways[n // 2 + 1 :]) - sum(ways[: -(-n // 2)]), comb(K, n))
        if abs(value - half[-1] * lead) > 2 * Fraction(sample.distance):
            return False
    return True
