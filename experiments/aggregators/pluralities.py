"""More than two classes: the share of right labels of every release, at equal budgets, under public beliefs."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from darrm.advise import advise
from darrm.laws.histogram_priors import HistogramPrior
from darrm.losses.charges import Charge
from darrm.losses.renyi import RenyiCurve
from darrm.optimize.plurality_bounds import share_right_at_most
from darrm.plan.budget import account_of
from darrm.plan.share_right import MOST_LISTED, histograms
from darrm.probability.bisection import last_allowed
from darrm.problem import Workload
from experiments.pages import Claim, table

BY_COUNTS, BY_LABEL, SHAPED = "GNMax, tight σ", "GNMax by label", "shaped noise"
SAME = 1e-9
LESS_NOISE = (0.75, 0.85)  # of σ: what "about a fifth smaller" means
LEAST_SIGMA, MOST_SIGMA = 1e-2, 1e6


@dataclass(frozen=True)
class PluralityComparison:
    """One workload's results under one belief, as plain data.

    ``options`` hold one entry for each release: name, right (its share of right labels), standard_error, settings,
    epsilon, bound, released (whether this library draws it); ``coin`` is the share of a label that looks at nothing,
    ``at_most`` what no private release exceeds, ``sigma_by_counts`` the least σ of GNMax that the accountant admits by
    the Rényi curve of its noisy counts, ``absent`` (name, reason) of what does not apply, ``seconds`` how long it took.
    """

    workload: dict[str, Any]
    prior: str
    coin: float
    at_most: float
    sigma_by_counts: float
    options: list[dict[str, Any]]
    absent: list[tuple[str, str]]
    seconds: float

    @property
    def title(self) -> str:
        """The workload in a few words."""
        w = self.workload
        return f"C = {w['classes']}, K = {w['K']:,}, Q = {w['queries']:,}, {self.prior}"

    def of(self, name: str) -> dict[str, Any] | None:
        """Return the entry of a release."""
        return next((option for option in self.options if option["name"] == name), None)


def compare_pluralities(work: Workload, prior: HistogramPrior) -> PluralityComparison:
    """Calibrate every release to one workload."""
    started = time.perf_counter()
    found = advise(work, prior=prior)
    counts, weights = histograms(prior, work.voters.K, work.classes, MOST_LISTED)
    options = [
        {
            "name": option.name,
            "right": option.right,
            "standard_error": 0.0 if option.share_right is None else option.share_right.standard_error,
            "settings": dict(option.settings),
            "epsilon": option.cost.epsilon,
            "bound": option.cost.name,
            "released": option.aggregator is not None,
        }
        for option in found.options
    ]
    total = work.total
    described = {"K": work.voters.K, "classes": work.classes, "queries": work.queries}
    return PluralityComparison(
        {**described, "epsilon": total.epsilon, "delta": total.delta},
        prior.text,
        0.0 if found.coin is None else found.coin.value,
        share_right_at_most(work, counts, weights),
        _sigma_by_counts(work),
        options,
        [*found.absent],
        time.perf_counter() - started,
    )


def decide_pluralities(comparisons: Sequence[PluralityComparison]) -> list[Claim]:
    """Decide what was to be shown or refuted for more than two classes."""
    found = []
    for classes in sorted({each.workload["classes"] for each in comparisons}):
        chosen = [each for each in comparisons if each.workload["classes"] == classes]
        who = f"{classes} classes"
        found += [
            _claim(f"{who}: ours is right at least as often as every release that is only compared", chosen, _lead),
            _claim(f"{who}: shaped noise is right at least as often as Gaussian noise by label", chosen, _shaped_lead),
            _claim(f"{who}: no release exceeds what is proved that none can", chosen, _room),
        ]
    many = [each for each in comparisons if each.workload["queries"] > 1 and each.of(BY_LABEL) and each.of(BY_COUNTS)]
    for statement, by_counts, (least, most) in (
        ("by the same accountant the label lets GNMax use about a fifth less noise", _admitted, LESS_NOISE),
        ("the label lets GNMax use less noise than any accounting of its counts", _tight, (0.0, 1.0)),
    ):
        ratios = [(_sigma_of(each, BY_LABEL) / by_counts(each), each.title) for each in many]
        if ratios:
            (low, first), (high, last) = min(ratios), max(ratios)
            measured = f"σ is {low:.3f} ({first}) to {high:.3f} ({last}) of that by counts, {len(ratios)} workloads"
            found.append(Claim(f"many queries: {statement}", measured, least <= low and high <= most))
    return [claim for claim in found if claim is not None]


def shares_table(comparisons: Iterable[PluralityComparison]) -> str:
    """Tabulate the shares of right labels, the best of every row in bold."""
    chosen = list(comparisons)
    names = list(dict.fromkeys(option["name"] for each in chosen for option in each.options))
    rows = []
    for each in chosen:
        best = max(option["right"] for option in each.options)
        entries = [each.of(name) for name in names]
        cells = ["–" if entry is None else _cell(entry["right"], best) for entry in entries]
        rows.append([each.title, f"{each.coin:.4f}", *cells, f"{each.at_most:.4f}"])
    return table(["workload", "a guess", *names, "none exceeds"], rows)


def _cell(value: float, best: float) -> str:
    return f"**{value:.4f}**" if value >= best - 5e-5 else f"{value:.4f}"


def _claim(
    statement: str, chosen: Sequence[PluralityComparison], lead: Callable[[PluralityComparison], float | None]
) -> Claim | None:
    leads = [(value, each.title) for each in chosen if (value := lead(each)) is not None]
    if not leads:
        return None
    worst, where = min(leads)
    broken = sum(value < -SAME for value, _ in leads)
    measured = f"{len(leads) - broken} of {len(leads)} workloads; least lead {worst:.3g} ({where})"
    return Claim(statement, measured, broken == 0)


def _lead(each: PluralityComparison) -> float | None:
    """Ours, the best that this library draws, minus the best that is only compared."""
    ours = [option["right"] for option in each.options if option["released"]]
    others = [option["right"] for option in each.options if not option["released"]]
    return max(ours) - max(others) if ours and others else None


def _shaped_lead(each: PluralityComparison) -> float | None:
    shaped, gaussian = each.of(SHAPED), each.of(BY_LABEL)
    return None if shaped is None or gaussian is None else shaped["right"] - gaussian["right"]


def _room(each: PluralityComparison) -> float:
    return each.at_most - max(float(option["right"]) for option in each.options)


def _sigma_of(each: PluralityComparison, name: str) -> float:
    entry = each.of(name)
    return float("nan") if entry is None else float(entry["settings"]["sigma"])


def _admitted(each: PluralityComparison) -> float:
    return each.sigma_by_counts


def _tight(each: PluralityComparison) -> float:
    return _sigma_of(each, BY_COUNTS)


def _sigma_by_counts(work: Workload) -> float:
    """Bisect for the least σ of GNMax that the accountant admits by the Rényi curve λ/σ² of its noisy counts."""

    def admitted(sigma: float) -> bool:
        curve = RenyiCurve.of(lambda orders: orders / sigma**2)
        return account_of(work, Charge("GNMax by counts", renyi=curve, reached=1)).admits(work.total)

    return last_allowed(admitted, MOST_SIGMA, LEAST_SIGMA, tolerance=1e-6, geometric=True)
