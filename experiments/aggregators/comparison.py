"""Every aggregator on one workload, at one budget: how often it tells the truth, and where ours is worse."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from darrm.advise import Contender, advise
from darrm.advise import contenders as registry
from darrm.laws.priors import CommonP
from darrm.plan.option import ReleaseOption
from darrm.problem import Workload
from darrm.system.report_text import spread
from experiments.pages import Claim

MOST_LEVELS = 32  # kept of a long curve in the JSON
SAME = 1e-9  # lies of 2⁻³⁶ and the searches' last digits are no difference


@dataclass(frozen=True)
class Comparison:
    """One workload's results, as plain data.

    ``levels`` are the numbers of votes l at which ``truth`` is kept; ``options`` one for each aggregator, ours first:
    name, right (the share of right labels) and accuracy under the common prior, epsilon, bound, settings, truth, and
    for the others worst_margin and worst_difference: where ours minus theirs is smallest, and that difference;
    ``absent`` (name, reason) of those that do not apply; ``seconds`` how long ours took to find.
    """

    workload: dict[str, Any]
    levels: list[int]
    options: list[dict[str, Any]]
    absent: list[tuple[str, str]]
    seconds: float

    @property
    def title(self) -> str:
        """The workload in a few words."""
        w = self.workload
        reach = "all" if w["overlap"] is None else w["overlap"]
        voters = w["voters"] if w["voters"] == "plain" else f"{w['voters']}-private"
        return f"K = {w['K']}, {voters}, overlap {reach}, Q = {w['queries']}, ({w['epsilon']}, {w['delta']})"

    @property
    def is_plain(self) -> bool:
        """Whether the voters are not private."""
        return bool(self.workload["voters"] == "plain")


def compare(work: Workload, *, contenders: Sequence[Contender] | None = None) -> tuple[Comparison, list[ReleaseOption]]:
    """Run every aggregator, by default `registry.CONTENDERS`; also return the options themselves, ours first."""
    prior = CommonP()
    started = time.perf_counter()
    (ours,) = advise(work, prior=prior, contenders=[registry.OURS]).options
    seconds = time.perf_counter() - started
    asked = registry.CONTENDERS if contenders is None else contenders
    rest = [each for each in asked if each is not registry.OURS]
    others = advise(work, prior=prior, contenders=rest)
    kept = spread(ours.truth.size, MOST_LEVELS)
    first = work.voters.first_majority
    options = []
    for option in (ours, *others.options):
        difference = ours.truth - option.truth
        worst = int(np.argmin(difference))
        entry = {
            "name": option.name,
            "right": option.right,
            "accuracy": option.accuracy(prior),
            "epsilon": option.cost.epsilon,
            "bound": option.cost.name,
            "settings": dict(option.settings),
            "truth": option.truth[kept].round(6).tolist(),
        }
        if option is not ours:
            entry |= {"worst_margin": 2 * (first + worst) - work.voters.K, "worst_difference": float(difference[worst])}
        options.append(entry)
    described = {
        "K": work.voters.K,
        "voters": str(work.voters.each) if work.voters.each.is_private else "plain",
        "overlap": work.voters.overlap,
        "queries": work.queries,
        "epsilon": work.total.epsilon,
        "delta": work.total.delta,
    }
    levels = [first + place for place in kept]
    return Comparison(described, levels, options, [*others.absent], seconds), [ours, *others.options]


def decide(comparisons: list[Comparison]) -> list[Claim]:
    """Decide what was to be shown or refuted, for plain and for private voters."""
    found = []
    for voters, chosen in (
        ("voters that are not private, overlap 1", [each for each in comparisons if each.is_plain]),
        ("private voters", [each for each in comparisons if not each.is_plain]),
    ):
        one = [each for each in chosen if each.workload["queries"] == 1]
        many = [each for each in chosen if each.workload["queries"] > 1]
        found += [
            _claim(f"one query, {voters}: ours is at least as good at every margin", one, _by_margin),
            _claim(f"one query, {voters}: ours has at least the expected accuracy", one, _by_accuracy),
            _claim(f"many queries, {voters}: ours has at least the expected accuracy", many, _by_accuracy),
            _claim(f"many queries, {voters}: ours is at least as good at every margin", many, _by_margin),
        ]
    return [claim for claim in found if claim is not None]


def _claim(
    statement: str, chosen: list[Comparison], lead: Callable[[Comparison], list[tuple[float, str]]]
) -> Claim | None:
    leads = [(value, f"{rival}; {each.title}") for each in chosen for value, rival in lead(each)]
    if not leads:
        return None
    worst, where = min(leads)
    broken = sum(value < -SAME for value, _ in leads)
    measured = f"{len(leads) - broken} of {len(leads)} comparisons; least lead {worst:.3g} ({where})"
    return Claim(statement, measured, broken == 0)


def _by_margin(comparison: Comparison) -> list[tuple[float, str]]:
    return [(o["worst_difference"], f"{o['name']} at margin {o['worst_margin']}") for o in comparison.options[1:]]


def _by_accuracy(comparison: Comparison) -> list[tuple[float, str]]:
    ours = comparison.options[0]["accuracy"]
    return [(ours - o["accuracy"], o["name"]) for o in comparison.options[1:]]
