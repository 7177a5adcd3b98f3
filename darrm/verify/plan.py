"""What a plan claims of its release: the workload, the total and by which bound, the share right under which prior.

Beside that share there are three, of voters that are divided, mixed or agree: Dirichlet's laws of concentration 1, 1/C
and 1/(10C), of open answers Ewens' of θ = 10, 1 and 0.1. Their mean is the prior called ``spread``.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import count, islice, takewhile

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from darrm.account.accountant import PrivacyAccountant
from darrm.laws import priors
from darrm.laws.priors import Dirichlet, Ewens, Prior, Spread
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload, classes_in_words, is_law_a_gamma, is_open
from darrm.system.files import Json
from darrm.verify.answering import Costs
from darrm.verify.exact import expected_error
from darrm.verify.label_law import law_of, open_law_of
from darrm.verify.noisy_labels import Array
from darrm.verify.plurality import partitions, share_right
from darrm.verify.totals import proved_total
from darrm.verify.verdicts import ABOUT_PLAN, CLAIMED, CONSISTENT, FALSE, NOTE, PROVED, UNKNOWN, Verdict, judged

_AGREES = 1e-6  # relative: machines agree on a total to so much
_LISTED, _DRAWN = 20_000, 4_000  # histograms that are added up, or drawn where there are more
_ERRORS = 5.2  # standard errors: chance alone is beyond once in five million figures
_EXACTLY = 1e-6  # of shares that are added up, under priors in floats
_PLANNED = 4096  # histograms: a plan adds up as many, and draws as many where there are more, but for long lists
_COUNTS, _LEAST = 2**19, 512  # of those at most so many counts, but at least so many histograms
_CHANCE = 14.5  # -log of how often chance alone makes a standard error of drawn histograms larger than `_figure` says
_SEED = 20260  # what is drawn is the same in each audit
_FIELDS = {"family", "workload", "spent", "prior"}
_MORE = {"share_right", "columns", "expected_error"}
_COLUMNS = ("divided", "mixed", "agreeing")  # a third of what `Spread` draws each, in turn


@dataclass(frozen=True)
class _Figure:
    """A share as computed here, and what histograms that a plan draws may do to its own."""

    value: float
    error: float = 0.0  # the standard error here
    variance: float = 0.0  # of one histogram
    varies: float = 0.0  # by so much at most in those of a plan
    drawn: float = math.inf  # how many a plan draws; all are added up
    planners: bool = False  # the weights are what the planner's code says of the prior

    def error_of(self, value: float) -> float:
        """Bound the standard error of a plan with a share: one of numbers in [0, 1] has at most that of zeros and ones.

        Where a share is drawn in thirds, each has a mean of its own: three more histograms are enough for that.
        """
        most = min(self.variance + self.varies, max(0.0, value * (1.0 - value)))
        return math.sqrt(most / (self.drawn - 3.0))


def judge_plan(claims: Json, exact: Costs) -> Iterator[Verdict]:
    """Judge what a file says under ``plan`` of what it releases."""
    form = "it says what a plan says"
    try:
        workload, prior = _read(claims)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        yield Verdict(ABOUT_PLAN, form, FALSE, f"{type(error).__name__}: {error}")
        return
    yield Verdict(ABOUT_PLAN, form, CONSISTENT, "all fields are there, with what they hold, and no others")
    same = (workload.voters, workload.classes) == (exact.voters, exact.classes)
    asked = f"{workload.queries:,} votes of {workload.voters} on {classes_in_words(workload.classes)}"
    yield judged(ABOUT_PLAN, f"it is for {asked}", "the voters and classes of the release", holds=same)
    yield Verdict(ABOUT_PLAN, f"the family is called {claims['family']!r}", CLAIMED, NOTE)
    if not same:
        return
    yield from _judge_total(claims["spent"], workload, exact)
    yield from _judge_share(claims, workload, prior, exact)


def judge_workload(told: Json, exact: Costs) -> Iterator[Verdict]:
    """Judge what a saved estimator says of all its answers: that they stay within their budget."""
    try:
        workload = _workload({"classes": 2, **told})
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        yield Verdict(ABOUT_PLAN, "it says what it was planned for", FALSE, f"{type(error).__name__}: {error}")
        return
    asked, fits = f"it answers {workload.voters} on {workload.classes} classes", exact.voters.cover(workload.voters)
    reason = f"its release is for {exact.voters} on {exact.classes}"
    yield judged(ABOUT_PLAN, asked, reason, holds=fits and workload.classes == exact.classes)
    charge: Charge = exact.cost().repeated(workload.queries)
    spent = PrivacyAccountant(charges=(charge,)).spent(workload.total.delta)
    claim = f"all {workload.queries:,} answers together are within the budget {workload.total}"
    if spent.epsilon > workload.total.epsilon * (1.0 + _AGREES):
        yield Verdict(ABOUT_PLAN, claim, FALSE, f"the accountant has ({spent.epsilon:.9g}, {spent.delta:g})")
    else:
        yield from proved_total(
            ABOUT_PLAN, claim, workload.total.epsilon, [(charge, exact)], workload.total.exact_delta
        )


def _workload(told: Json) -> Workload:
    told = dict(told)
    queries, missing, classes = told.pop("queries"), told.pop("missing", 0), told.pop("classes")
    total = PrivacyParams.from_json(told.pop("total"))
    workload = Workload(Voters.from_json(told), queries, total, classes, missing)
    if workload.voters.to_json() != told:
        raise ValueError("the voters are not as this release would write them")
    return workload


def _read(claims: Json) -> tuple[Workload, Prior]:
    if not isinstance(claims, dict) or not _FIELDS <= claims.keys() <= _FIELDS | _MORE:
        raise ValueError(f"a plan says {', '.join(sorted(_FIELDS | _MORE))}")
    workload, spent = _workload(claims["workload"]), claims["spent"]
    if spent.keys() != {"epsilon", "delta", "bound"} or not isinstance(spent["bound"], str):
        raise ValueError("spent is epsilon, delta and the name of a bound")
    if "expected_error" in claims and not workload.has_noise_function:
        raise ValueError("there is no expected error of more than two classes")
    numbers = [spent["epsilon"], spent["delta"], claims.get("expected_error", 0.0)]
    shares = [claims["share_right"]] if "share_right" in claims else []
    if "columns" in claims:
        if claims["columns"].keys() != set(_COLUMNS):
            raise ValueError(f"columns are {', '.join(_COLUMNS)}")
        shares += claims["columns"].values()
    if any(share.keys() != {"value", "standard_error"} for share in shares):
        raise ValueError("a share is a value and its standard error")
    numbers += [share[name] for share in shares for name in ("value", "standard_error")]
    if any(isinstance(number, bool) or not math.isfinite(number) or number < 0.0 for number in numbers):
        raise ValueError("a figure is no number")
    return workload, priors.from_json(claims["prior"])


def _judge_total(spent: Json, workload: Workload, exact: Costs) -> Iterator[Verdict]:
    one: Charge = exact.cost()
    charge = one.repeated(-(-workload.queries // one.labels))
    account = PrivacyAccountant(charges=(charge,))
    again = account.spent(workload.total.delta)
    epsilon, total = spent["epsilon"], workload.total
    claim = f"all {workload.queries:,} answers together are ({epsilon:.9g}, {spent['delta']:g})-private"
    told = {bound.name: bound.epsilon for bound in again.bounds}.get(spent["bound"])
    claim += f" by the bound {spent['bound']!r}"
    if spent["delta"] != total.delta or told is None or epsilon < told * (1.0 - _AGREES):
        reason = f"the accountant has ({again.epsilon:.9g}, {again.delta:g}) by {again.bound!r}"
        yield Verdict(ABOUT_PLAN, claim, FALSE, reason)
    else:
        yield from proved_total(ABOUT_PLAN, claim, epsilon, [(charge, exact)], total.exact_delta)
        if epsilon > told * (1.0 + _AGREES):
            reason = f"that has {told:.9g}: another version planned it, or it was planned for something else"
            yield Verdict(ABOUT_PLAN, f"{epsilon:.9g} is what the bound {spent['bound']!r} gives", UNKNOWN, reason)
    within = Fraction(repr(float(epsilon))) <= total.exact_epsilon * (1 + Fraction(1, 10**12))
    yield judged(ABOUT_PLAN, f"that is within the budget {total}", f"ε is {epsilon:.9g}", holds=within, how=PROVED)


def _judge_share(claims: Json, workload: Workload, prior: Prior, exact: Costs) -> Iterator[Verdict]:
    shares, under = _Shares(workload, exact), f"under {priors.in_words(prior)}"
    if "share_right" in claims:
        yield _judged(("share right", under), claims["share_right"], partial(shares.under, prior), workload)
    if "expected_error" in claims:
        figure = {"value": claims["expected_error"], "standard_error": 0.0}
        yield _judged(("expected error", under), figure, partial(shares.error, prior), workload)
    if prior == Spread() and {"share_right", "columns"} <= claims.keys() and not workload.missing:
        told, columns = claims["share_right"]["value"], [claims["columns"][name]["value"] for name in _COLUMNS]
        mean = shares.mean(columns)
        claim, reason = f"the share right is the mean of those of {', '.join(_COLUMNS)} voters", f"that is {mean:.9g}"
        yield judged(ABOUT_PLAN, claim, reason, holds=abs(told - mean) <= _EXACTLY)
    for place, name in enumerate(_COLUMNS if "columns" in claims else ()):
        law = _columns_of(workload.classes)[place].text.partition(":")
        where = f"where voters are {name}: {law[0]}:{float(law[2] or 1):.4g}"
        yield _judged(("share right", where), claims["columns"][name], partial(shares.column, place), workload)


def _judged(about: tuple[str, str], figure: Json, computed: Callable[[], _Figure], workload: Workload) -> Verdict:
    claim = f"the {about[0]} is {figure['value']:.9g} {about[1]}"
    if workload.missing:
        return Verdict(ABOUT_PLAN, claim, CLAIMED, "fair dice stand for missing votes; that is not computed here")
    try:
        ours = computed()
    except ValueError as failed:
        return Verdict(ABOUT_PLAN, claim, UNKNOWN, str(failed))
    error, most = figure["standard_error"], ours.error_of(figure["value"])
    if error > most + _EXACTLY:
        why = f"histograms, as a plan draws them, have {most:.2g} at most"
        return Verdict(ABOUT_PLAN, f"{claim}, with the standard error {error:.3g}", FALSE, why)
    # a plan may have drawn nothing that is rare, and so see no error
    error = max(error, math.sqrt(ours.variance / ours.drawn))
    apart, allowed = abs(figure["value"] - ours.value), _EXACTLY + _ERRORS * math.hypot(error, ours.error)
    shown = f"computed anew it is {ours.value:.9g}" + (f" ± {ours.error:.2g}" if ours.error else "")
    shown += " with the planner's weights" if ours.planners else ""
    told, proved = f"{shown}; up to {allowed:.2g} more or less would not be seen", not (error or ours.error)
    how = PROVED if proved and not ours.planners else CONSISTENT
    return judged(ABOUT_PLAN, claim, told, holds=apart <= allowed, how=how)


class _Shares:
    """How often a release is right; each prior's votes are asked about once."""

    def __init__(self, workload: Workload, exact: Costs) -> None:
        self.K, self.classes, self._exact = workload.voters.K, workload.classes, exact
        self._known: dict[Prior, tuple[Array, Array | None]] = {}
        few = _PLANNED if is_open(self.classes) else max(_LEAST, _COUNTS // self.classes)
        self._drawn = min(_PLANNED, few)  # where a plan draws; `Spread` draws a third for each column

    def _law(self, counts: NDArray[np.int64]) -> Array:
        return (open_law_of if is_open(self.classes) else law_of)(self._exact.aggregator)(counts)

    def _right(self, prior: Prior) -> tuple[Array, Array | None]:
        """Compute how often histograms are answered right, and their weights; None where they are drawn."""
        if prior not in self._known:
            counts, weights = _histograms(prior, self.K, self.classes)
            leading = counts == counts.max(axis=1, keepdims=True)
            self._known[prior] = np.where(leading, self._law(counts), 0.0).sum(axis=1), weights
        return self._known[prior]

    def _of_open_table(self, prior: Prior, planned: float) -> _Figure | None:
        table = getattr(self._exact.aggregator, "table", None)
        if not is_open(self.classes) or table is None or (share := share_right(table, prior)) is None:
            return None
        return (
            _Figure(float(share))
            if self._are_few()
            else _Figure(float(share), 0.0, float(share * (1 - share)), 1.0, planned)
        )

    def error(self, prior: Prior) -> _Figure:
        """Compute the expected error of two classes: half of Σ_l E|α_l − α_{K−l}|·(1 − γ_l), l ones in a majority.

        Of Dirichlet's law E|α_l − α_{K−l}| is 2·Pr[l ones]·(Pr[p > 1/2 | l] − Pr[p < 1/2 | l]), where p ~ Beta.
        """
        K, ones = self.K, np.arange(self.K + 1)
        counts, upper = np.column_stack([K - ones, ones]), ones[K // 2 + 1 :]
        law = self._law(counts)
        gamma = np.clip(law[upper, 1] + law[::-1][upper, 0] - 1.0, 0.0, 1.0)
        if prior == Dirichlet():
            return _Figure(float(expected_error(K, [Fraction(value) for value in gamma.tolist()], None)))
        if not (known := _known_concentrations(prior, 2)):
            return _Figure(float(priors.weights_of(prior, K) @ (1.0 - gamma)) / 2.0, planners=True)
        of_each = [_dirichlet(counts, a)[upper] * (1.0 - 2.0 * betainc(upper + a, K - upper + a, 0.5)) for a in known]
        return _Figure(float(np.mean(of_each, axis=0) @ (1.0 - gamma)))

    def mean(self, columns: list[float]) -> float:
        """Compute the mean of all that a plan draws in turn, or adds up, from the means of each."""
        listed = is_law_a_gamma(self.classes) or self._are_few()
        sizes = [1] * 3 if listed else [len(range(place, self._drawn, 3)) for place in range(3)]
        return float(np.average(columns, weights=sizes))

    def _are_few(self) -> bool:
        """Whether a plan adds up all histograms of a known law."""
        return sum(1 for _ in islice(partitions(self.K, self.classes or self.K, self.K), _PLANNED + 1)) <= _PLANNED

    def under(self, prior: Prior) -> _Figure:
        """Compute a share, its standard error, and that which a plan may have."""
        if (alone := self._of_open_table(prior, self._drawn)) is not None:
            return alone
        right, weights = self._right(prior)
        known = isinstance(prior, Dirichlet | Ewens | Spread)
        samples = 3 if weights is None and isinstance(prior, Spread) else 1
        figure = _figure(right, weights, self._planned(weights, self._drawn, known=known), samples)
        return replace(figure, planners=weights is not None and not known)

    def column(self, place: int) -> _Figure:
        """Compute the share of one of `_COLUMNS` from what `Spread` is answered."""
        if (alone := self._of_open_table(_columns_of(self.classes)[place], self._drawn // 3)) is not None:
            return alone
        right, weights = self._right(Spread())
        if weights is None:
            return _figure(right[place::3], None, self._drawn // 3)
        _, own = _histograms(_columns_of(self.classes)[place], self.K, self.classes)
        return _figure(right, own, self._planned(weights, self._drawn // 3, known=True))

    def _planned(self, weights: Array | None, drawn: int, *, known: bool) -> float:
        """Count what a plan draws; it adds up all that is said of two classes, or few histograms of a known law."""
        few = known and weights is not None and len(weights) <= _PLANNED
        return math.inf if few or is_law_a_gamma(self.classes) else drawn


def _figure(right: Array, weights: Array | None, planned: float, samples: int = 1) -> _Figure:
    """Estimate how much the variance of a plan's histograms may be above ours, (n,), which are ``samples`` in turn.

    By Bernstein's inequality, of the squares of what is apart from the mean; and something rare, of which these see
    nothing, is among those of a plan k times with probability (m/(m + n))^k at most, for m that a plan draws.
    """
    if weights is not None and planned == math.inf:
        return _Figure(float(right @ weights))
    own, n = (np.full(len(right), 1.0 / len(right)), len(right)) if weights is None else (weights, math.inf)
    means = [float(np.average(right[place::samples], weights=own[place::samples])) for place in range(samples)]
    squares = (right - np.resize(means, len(right))) ** 2
    variance = float(squares @ own)
    wide = max(0.0, float(squares**2 @ own) - variance**2)
    varies = math.sqrt(2.0 * _CHANCE * wide * (1.0 / n + 1.0 / planned))
    varies += _CHANCE * (1.0 / 3.0 + 1.0 / math.log1p(n / planned)) / planned
    return _Figure(float(right @ own), math.sqrt(variance / n), variance, varies, planned)


def _columns_of(C: int) -> tuple[Prior, ...]:
    return (Ewens(10.0), Ewens(1.0), Ewens(0.1)) if is_open(C) else tuple(map(Dirichlet, _concentrations(C)))


def _concentrations(C: int) -> tuple[float, ...]:
    return 1.0, 1.0 / C, 0.1 / C


def _known_concentrations(prior: Prior, C: int) -> tuple[float, ...]:
    if isinstance(prior, Spread):
        return (10.0, 1.0, 0.1) if is_open(C) else _concentrations(C)
    if isinstance(prior, Ewens):
        return (prior.theta,)
    return (prior.concentration,) if isinstance(prior, Dirichlet) else ()


def _histograms(prior: Prior, K: int, C: int) -> tuple[NDArray[np.int64], Array | None]:
    known = _known_concentrations(prior, C)
    if C == 2:
        ones = np.arange(K + 1)
        counts = np.column_stack([K - ones, ones])
        return counts, _mean_of_dirichlets(counts, known) if known else np.exp(prior.log_probabilities(counts))
    if known:
        parts = list(takewhile(lambda numbered: numbered[0] <= _LISTED, zip(count(), partitions(K, C or K, K))))
        if len(parts) <= _LISTED:
            counts = np.array([part for _, part in parts])
            if is_open(C):
                return counts, np.mean([_ewens(counts, theta) for theta in known], axis=0)
            arranged = [_arrangements(part.tolist()) for part in counts]
            return counts, _mean_of_dirichlets(counts, known) * np.array(arranged)
    rng = np.random.default_rng(_SEED)
    return prior.sample(K, C, _DRAWN, rng=rng), None


def _mean_of_dirichlets(counts: NDArray[np.int64], concentrations: tuple[float, ...]) -> Array:
    return np.asarray(np.mean([_dirichlet(counts, concentration) for concentration in concentrations], axis=0))


def _dirichlet(counts: NDArray[np.int64], concentration: float) -> Array:
    """Compute K!/Π n_c!·Π (a)_{n_c}/(Ca)_K of single histograms."""
    K, C = int(counts[0].sum()), counts.shape[1]
    rising = [math.lgamma(n + concentration) - math.lgamma(concentration) - math.lgamma(n + 1) for n in range(K + 1)]
    whole = math.lgamma(K + 1) - math.lgamma(K + C * concentration) + math.lgamma(C * concentration)
    return np.asarray(np.exp(np.array(rising)[counts].sum(axis=1) + whole))


def _ewens(counts: NDArray[np.int64], theta: float) -> Array:
    """Compute K!/(θ)_K·Π (θ/j)^{m_j}/m_j! of partitions of which m_j strings have j votes."""
    K = int(counts[0].sum())
    whole = math.lgamma(K + 1) - math.lgamma(K + theta) + math.lgamma(theta)
    logs = [
        sum(m * math.log(theta / j) - math.lgamma(m + 1) for j, m in Counter(part).items() if j)
        for part in counts.tolist()
    ]
    return np.exp(np.array(logs) + whole)


def _arrangements(part: list[int]) -> float:
    return math.factorial(len(part)) / math.prod(math.factorial(part.count(votes)) for votes in set(part))
